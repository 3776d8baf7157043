package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/httpapi"
)

// full is a Backend whose disk is full.
type full struct{ belay.Backend }

var errFull = &belay.Error{Code: belay.CodeUnavailable, Message: "the disk is full"}

func (full) Execution(context.Context, belay.ExecutionID) (belay.Execution, error) {
	return belay.Execution{}, errFull
}

func (full) Detail(context.Context, belay.ExecutionID) (belay.ExecutionDetail, error) {
	return belay.ExecutionDetail{}, errFull
}

func (full) Submit(_ context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	out := make([]belay.Submitted, len(s))
	for i := range out {
		out[i].Err = errFull
	}
	return out, nil
}

// The log has one warning that the store is unavailable, with the reason, and another warning a
// minute later if the outage lasts, however many requests are refused.
func TestAnOutageIsLogged(t *testing.T) {
	var minutes atomic.Int64
	s := serveOn(t, full{}, httpapi.Options{Now: func() time.Time {
		return time.Unix(60*minutes.Load(), 0).Add(time.Hour)
	}})
	told := func() int { return strings.Count(s.log.text.String(), "level=WARN") }
	for range 3 {
		s.refused(http.StatusServiceUnavailable, belay.CodeUnavailable, http.MethodGet, somewhere, "")
	}
	if told() != 1 || !strings.Contains(s.log.text.String(), "the disk is full") {
		t.Errorf("three refusals are logged as\n%s", s.log.text)
	}
	minutes.Store(2)
	for range 3 {
		s.want(http.StatusOK, nil, http.MethodPost, "/v1/batch",
			`{"ops": [{"submit": {"workflow": "w"}}, {"submit": {"workflow": "w"}}]}`)
	}
	if told() != 2 {
		t.Errorf("two minutes later it is logged %d times in all, want 2:\n%s", told(), s.log.text)
	}
}
