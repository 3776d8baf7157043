package memory

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/belaydev/belay/internal/machine"
)

// The orders in which the rows of one execution are sorted, for binary search.

func byToken(r *machine.Run, token int64) int           { return cmp.Compare(int64(r.Token), token) }
func byGeneration(s *machine.Spec, n int) int           { return cmp.Compare(s.Generation, n) }
func byCheckpoint(k *machine.Checkpoint, seq int64) int { return cmp.Compare(k.Seq, seq) }
func bySignal(s *machine.Signal, seq int64) int         { return cmp.Compare(s.Seq, seq) }
func byDeed(d *machine.Deed, seq int64) int             { return cmp.Compare(d.Seq, seq) }
func byLetter(d *machine.DeadLetter, generation int) int {
	return cmp.Compare(d.Generation, generation)
}

func byChunk(k *machine.Chunk, ref machine.ChunkRef) int {
	return cmp.Or(cmp.Compare(k.Name, ref.Name), cmp.Compare(k.N, ref.N))
}

// find returns the index of a key among sorted rows, or the index at which it would be inserted.
func find[R, K any](rows []*R, order func(*R, K) int, key K) (int, bool) {
	return slices.BinarySearchFunc(rows, key, order)
}

// insert adds a row at its place in the order, and refuses a key that exists. It makes a new slice,
// because readers may still use the old slice.
func insert[R, K any](rows *[]*R, row *R, order func(*R, K) int, key K) error {
	i, taken := find(*rows, order, key)
	if taken {
		return refused("row", key)
	}
	*rows = slices.Insert(slices.Clip(*rows), i, row)
	return nil
}

// change replaces the row of a key, if there is such a row. It makes a new slice, because readers
// may still use the old slice.
func change[R, K any](rows *[]*R, order func(*R, K) int, key K, with func(*R) *R) bool {
	i, ok := find(*rows, order, key)
	if !ok {
		return false
	}
	next := slices.Clone(*rows)
	next[i] = with(next[i])
	*rows = next
	return true
}

// The store copies every row that it takes or returns, so that it shares no memory that a caller
// may change. The copies leave out flags, such as New, that are valid only in the batch that set
// them.

func copyOf[R any](r *R) *R {
	c := *r
	return &c
}

func copyExecution(e *machine.Execution) *machine.Execution {
	c := copyOf(e)
	c.New, c.Attention = false, false
	return c
}

func copySpec(s *machine.Spec, payload bool) *machine.Spec {
	c := copyOf(s)
	c.Input, c.TriggerPayload = payloadOf(s.Input, payload), payloadOf(s.TriggerPayload, payload)
	return c
}

func copyRun(r *machine.Run, payload bool) *machine.Run {
	c := copyOf(r)
	c.Output = payloadOf(r.Output, payload)
	c.New = false
	return c
}

func copyCheckpoint(k *machine.Checkpoint, payload bool) *machine.Checkpoint {
	c := copyOf(k)
	c.Data = payloadOf(k.Data, payload)
	return c
}

func copySignal(s *machine.Signal, payload bool) *machine.Signal {
	c := copyOf(s)
	c.Payload = payloadOf(s.Payload, payload)
	return c
}

func copyChunk(k *machine.Chunk, payload bool) *machine.Chunk {
	c := copyOf(k)
	c.Data = payloadOf(k.Data, payload)
	return c
}

func copyWorker(x *machine.Worker) *machine.Worker {
	c := copyOf(x)
	c.New, c.Told, c.Current = false, false, ""
	return c
}

// payloadOf returns a copy of a payload, nil if the payload is empty or not wanted.
func payloadOf(p []byte, wanted bool) []byte {
	if !wanted || len(p) == 0 {
		return nil
	}
	return bytes.Clone(p)
}
