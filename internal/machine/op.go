package machine

import (
	"crypto/sha256"
	"time"

	"github.com/belaydev/belay"
)

// OpSum is a checksum of an operation's kind and content, stored with the operation's id. Rows that
// an older server wrote have no sum: a sum of zero matches every operation.
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

// opContent collects the content of an operation for its sum. Differences of encoding do not change
// the sum: white space between the parts of JSON, and times that a transport has rounded to
// milliseconds.
type opContent []byte

func contentOf(what string) opContent { return appendString(make([]byte, 0, 128), what) }

func (s opContent) text(v string) opContent { return appendString(s, v) }
func (s opContent) int(v int64) opContent   { return appendInt(s, v) }

// cost adds a cost. A cost of whole tokens gives the same sum as in older servers, which know only
// whole tokens. Any other cost is written as a negative number, so that it never gets the sum of a
// cost of whole tokens.
func (s opContent) cost(c belay.Cost) opContent {
	if whole, rest := c.Tokens(); rest == 0 {
		return appendInt(s, whole)
	}
	return appendInt(s, -int64(c))
}

func (s opContent) bytes(v []byte) opContent {
	return append(appendInt(s, int64(len(v))), v...)
}

// json adds a payload. It must be the last call, because it does not add the payload's length.
func (s opContent) json(v []byte) opContent { return appendJSON(s, v) }

func (s opContent) duration(d time.Duration) opContent {
	if d > 0 && d < time.Millisecond {
		return appendInt(s, 1)
	}
	return appendInt(s, d.Milliseconds())
}

// sum is the checksum of the collected content.
func (s opContent) sum() OpSum {
	h := sha256.Sum256(s)
	return OpSum(h[:16])
}

// repetition finds the operation that was carried out under an id, in the store or earlier in
// this batch, and its seq. An id stands for one operation with one content; repetition refuses
// another operation under the same id with CodeIdempotencyMismatch.
func (w *world) repetition(op string, id belay.ExecutionID, named belay.OpID, sum OpSum) (int64, bool, error) {
	if named.IsZero() {
		return 0, false, nil
	}
	found, ok := w.operation(OpRef{id, named})
	switch {
	case !ok:
		return 0, false, nil
	case found.Sum != (OpSum{}) && found.Sum != sum:
		return 0, true, refuse(belay.CodeIdempotencyMismatch, op,
			"operation %s was carried out on %s before, with seq %d, and was another one or had another body",
			named, id, found.Seq)
	}
	return found.Seq, true, nil
}

// operation finds the operation that was carried out under an id.
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
