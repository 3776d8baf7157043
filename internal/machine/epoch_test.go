package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// The tokens of an epoch are above all of those before, and stay below 2^53.
func TestEpochsGrow(t *testing.T) {
	may := At(time.Date(2027, 5, 1, 12, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		name  string
		known int64
		now   Time
		want  int64
	}{
		{"the clock counts", 0, may, 69_912},
		{"a second restore of the same backup, later", 0, may.Add(10 * time.Minute), 69_913},
		{"a second one at once, beside the first", 69_912, may, 69_913},
		{"the clock was set back", 69_912, 0, 69_913},
		{"the clock shows nothing", 0, 0, 1},
		{"long after the clock stopped counting", 0, latest, epochLatest},
		{"and after many more", epochLatest + 1000, latest, epochLatest + 1001},
	} {
		got := NextEpoch(c.known, c.now)
		if got != c.want {
			t.Errorf("%s: epoch %d, want %d", c.name, got, c.want)
		}
		highest := belay.Token(c.known<<32 + 1<<32 - 1)
		if first := token(highest, got); first <= highest || first >= 1<<53 {
			t.Errorf("%s: token %d after %d", c.name, first, highest)
		}
	}
}
