package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// The tokens of an epoch (the time from one restore or failover to the next) are above all tokens
// of earlier epochs, and stay below 2^53.
func TestEpochsGrow(t *testing.T) {
	const span = belay.Token(1) << 32
	may := At(time.Date(2027, 5, 1, 12, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		name  string
		known belay.Token
		now   Time
		want  belay.Token
	}{
		{"the clock counts", 0, may, 69_912 * span},
		{"a second restore of the same backup, a second later", 0, may.Add(time.Second), 69_912*span + span/600},
		{"a second one at the same moment, which knows the first", 69_912 * span, may, 69_913 * span},
		{"the clock was set back", 69_912 * span, 0, 69_913 * span},
		{"the clock shows nothing", 0, 0, span},
		{"long after the clock stopped counting", 0, latest, lastSpan * span},
		{"and after many more", (lastSpan + 1000) * span, latest, (lastSpan + 1001) * span},
	} {
		for _, random := range []uint64{0, 1, 1<<64 - 1} {
			got := NextEpoch(c.known, c.now, random)
			if off := got - c.want; off < 0 || off >= epochChances*epochStep {
				t.Errorf("%s: epoch %d, want %d", c.name, got, c.want)
			}
			if first := token(c.known, got); first <= c.known || first >= 1<<53 {
				t.Errorf("%s: token %d after %d", c.name, first, c.known)
			}
		}
	}
}

// If two copies of one database are promoted at least 200 ms apart, all tokens of the later copy
// are above the tokens that the earlier copy has given out, so they never give out the same token.
func TestPromotedCopiesGetDifferentEpochs(t *testing.T) {
	may := At(time.Date(2027, 5, 1, 12, 0, 0, 0, time.UTC))
	for _, apart := range []time.Duration{200 * time.Millisecond, time.Second, time.Minute, 10 * time.Minute,
		24 * time.Hour} {
		for random := range uint64(epochChances) {
			first := NextEpoch(1<<32, may, random)
			second := NextEpoch(1<<32, may.Add(apart), epochChances-1-random)
			// Until the second copy is promoted, the first copy claims one execution a thousand
			// times a second.
			if last := first + belay.Token(apart.Seconds()*1000); second <= last {
				t.Fatalf("%s apart: epoch %d after token %d", apart, second, last)
			}
		}
	}
}

// Two copies whose clocks show the same moment most likely begin different epochs (with different
// least tokens).
func TestEpochsOfOneMomentDiffer(t *testing.T) {
	may := At(time.Date(2027, 5, 1, 12, 0, 0, 0, time.UTC))
	floors := make(map[belay.Token]bool)
	for random := range uint64(epochChances) {
		floors[NextEpoch(0, may, random)] = true
	}
	if len(floors) != epochChances {
		t.Errorf("%d floors of %d numbers", len(floors), epochChances)
	}
}
