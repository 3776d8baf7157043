package machine

import (
	"crypto/sha256"
	"time"

	"github.com/belaydev/belay"
)

// OpSum stands beside the id of an operation wherever that is kept: it is of what the
// operation was and all that it said. It is zero where it is not known, which every
// operation matches: rows that an older server wrote have none.
type OpSum [16]byte

// OpRef names an operation on an execution.
type OpRef struct {
	Execution belay.ExecutionID
	Op        belay.OpID
}

// Op is an operation that was carried out before.
type Op struct {
	OpRef
	Seq int64
	Sum OpSum
}

// saying builds the sum of an operation. The same said in another way is the same:
// JSON with other white space between its parts, a time that was rounded to
// milliseconds on its way.
type saying []byte

func say(what string) saying { return appendString(make([]byte, 0, 128), what) }

func (s saying) text(v string) saying { return appendString(s, v) }
func (s saying) int(v int64) saying   { return appendInt(s, v) }
func (s saying) bytes(v []byte) saying {
	return append(appendInt(s, int64(len(v))), v...)
}

// json adds a payload. It is the last of what an operation says, so that its length
// need not be known before.
func (s saying) json(v []byte) saying { return appendJSON(s, v) }

func (s saying) duration(d time.Duration) saying {
	if d > 0 && d < time.Millisecond {
		return appendInt(s, 1)
	}
	return appendInt(s, d.Milliseconds())
}

// sum is that of what was said.
func (s saying) sum() OpSum {
	h := sha256.Sum256(s)
	return OpSum(h[:16])
}

// did finds the operation that was carried out under an id, in the store or earlier
// in this fold, and its seq. An id stands for one operation with one body: it is
// CodeIdempotencyMismatch if it was another.
func (w *world) did(op string, id belay.ExecutionID, named belay.OpID, sum OpSum) (int64, bool, error) {
	if named.IsZero() {
		return 0, false, nil
	}
	found, ok := w.operation(OpRef{id, named})
	switch {
	case !ok:
		return 0, false, nil
	case found.Sum != (OpSum{}) && found.Sum != sum:
		return 0, true, refuse(belay.CodeIdempotencyMismatch, op,
			"operation %s was carried out on %s before, with seq %d, and was another or said something else", named, id,
			found.Seq)
	}
	return found.Seq, true, nil
}

// operation finds what was carried out under an id.
func (w *world) operation(ref OpRef) (Op, bool) {
	for _, o := range w.Ops {
		if o.OpRef == ref {
			return o, true
		}
	}
	for _, r := range w.Rows.Runs {
		if r.Execution == ref.Execution && r.Op == ref.Op && r.EndedSeq != 0 {
			return Op{ref, r.EndedSeq, r.OpSum}, true
		}
	}
	for _, c := range w.out.Checkpoints {
		if c.Execution == ref.Execution && c.Op == ref.Op {
			return Op{ref, c.Seq, c.OpSum}, true
		}
	}
	for _, s := range w.out.Signals {
		if s.Execution == ref.Execution && s.Op == ref.Op {
			return Op{ref, s.Seq, s.OpSum}, true
		}
	}
	for _, d := range w.out.Deeds {
		if d.Execution == ref.Execution && d.Op == ref.Op {
			return Op{ref, d.Seq, d.OpSum}, true
		}
	}
	for _, r := range w.out.Runs {
		if r.Execution == ref.Execution && r.Op == ref.Op && r.EndedSeq != 0 {
			return Op{ref, r.EndedSeq, r.OpSum}, true
		}
	}
	return Op{}, false
}
