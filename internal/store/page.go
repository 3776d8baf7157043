package store

import (
	"math"

	"github.com/belaydev/belay/internal/machine"
)

// RowBytes is what a row counts for in a page beside its payload.
const RowBytes = 200

// Budget is how many bytes of each kind of row a query for a page reads.
func (q Read) Budget() int64 {
	if q.Bytes <= 0 {
		return math.MaxInt64
	}
	return int64(q.Bytes)
}

// Page cuts what was read to resume from to those rows behind which nothing is missing. The
// checkpoints and the signals were read in order of seq, each up to a budget of bytes; the
// newest that there are have the seqs lastCheckpoint and lastSignal.
func Page(r *machine.Record, lastCheckpoint, lastSignal int64) {
	upTo := int64(math.MaxInt64)
	if n := len(r.Checkpoints); n > 0 && r.Checkpoints[n-1].Seq < lastCheckpoint {
		upTo = r.Checkpoints[n-1].Seq
	}
	if n := len(r.Signals); n > 0 && r.Signals[n-1].Seq < lastSignal {
		upTo = min(upTo, r.Signals[n-1].Seq)
	}
	if r.More = upTo != math.MaxInt64; !r.More {
		return
	}
	for n := len(r.Checkpoints); n > 0 && r.Checkpoints[n-1].Seq > upTo; n-- {
		r.Checkpoints = r.Checkpoints[:n-1]
	}
	for n := len(r.Signals); n > 0 && r.Signals[n-1].Seq > upTo; n-- {
		r.Signals = r.Signals[:n-1]
	}
}
