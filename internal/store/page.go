package store

import (
	"cmp"
	"math"
	"slices"

	"github.com/belaydev/belay/internal/machine"
)

// RowBytes is the number of bytes that a store adds to the payload of each row when it computes the
// size of a page.
const RowBytes = 200

// Budget is the number of bytes that a query for a page may read of each kind of row.
func (q Read) Budget() int64 {
	if q.Bytes <= 0 {
		return math.MaxInt64
	}
	return int64(q.Bytes)
}

// Page shortens the lists of rows that were read for a resume. The store read checkpoints and
// signals separately, each in order of seq up to a number of bytes, so one list may end at an
// earlier seq than the other list. Page removes all rows after the earlier of these two seqs, so
// that no row is missing between the rows that remain. lastCheckpoint and lastSignal are the newest
// seqs in the store.
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

// Tidy sorts the rows that two queries have read and removes duplicates. Of two copies of a row it
// keeps the copy with the payload.
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
