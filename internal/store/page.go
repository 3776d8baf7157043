package store

import (
	"cmp"
	"math"
	"slices"

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

// Tidy brings rows that were read in two ways into one order, each once, with its payload if
// either had it.
func Tidy(r *machine.Record) {
	r.Runs = merged(r.Runs, func(r *machine.Run) int64 {
		return int64(r.Token)
	}, func(r *machine.Run) int { return len(r.Output) })
	r.Checkpoints = merged(r.Checkpoints, func(k *machine.Checkpoint) int64 {
		return k.Seq
	}, func(k *machine.Checkpoint) int { return len(k.Data) })
	r.Signals = merged(r.Signals, func(s *machine.Signal) int64 {
		return s.Seq
	}, func(s *machine.Signal) int { return len(s.Payload) })
}

func merged[R any](rows []R, key func(R) int64, payload func(R) int) []R {
	slices.SortStableFunc(rows, func(a, b R) int {
		return cmp.Or(cmp.Compare(key(a), key(b)), cmp.Compare(payload(b), payload(a)))
	})
	return slices.CompactFunc(rows, func(a, b R) bool { return key(a) == key(b) })
}
