package httpapi

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: a flood from many addresses does not give other callers their quota again: most callers that
// have used up their quota stay refused. Callers with a full quota are forgotten first.
func TestAFloodDoesNotResetTheLimits(t *testing.T) {
	now := time.Now()
	l := newLimits(Rate{PerSecond: 0.001, Burst: 1}, 0, func() time.Time { return now })
	take := func(who string) bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://belay.example/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		err = l.take(r, who, &admitted{})
		if err != nil && belay.CodeOf(err) != belay.CodeRateLimited {
			t.Fatal(err)
		}
		return err == nil
	}
	const callers = 200
	for i := range callers {
		take(fmt.Sprint("caller ", i))
	}
	for i := range maxBuckets { // so many callers that maxBuckets is exceeded once
		take(fmt.Sprint("flood ", i))
	}
	refused := 0
	for i := range callers {
		if !take(fmt.Sprint("caller ", i)) {
			refused++
		}
	}
	if refused < callers*3/4 {
		t.Errorf("after a flood %d of %d callers are still limited", refused, callers)
	}
	if n := len(l.buckets); n > maxBuckets {
		t.Errorf("the server remembers %d callers", n)
	}
	now = now.Add(time.Hour) // every quota is full again
	for i := range maxBuckets {
		take(fmt.Sprint("second flood ", i))
	}
	if n := len(l.buckets); n > maxBuckets {
		t.Errorf("the server remembers %d callers", n)
	}
}
