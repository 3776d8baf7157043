package machine

import (
	"errors"
	"testing"

	"github.com/belaydev/belay"
)

// fill appends chunks with numbers n, from ≤ n < to. Only the last chunk may be refused; fill
// returns that refusal.
func (s *stage) fill(l belay.Lease, name string, from, to int64, with ...func(*belay.Chunk)) *belay.Error {
	s.t.Helper()
	data := make([]byte, belay.MaxChunk)
	for n := from; n < to; n++ {
		c := belay.Chunk{Lease: l, Name: name, N: n, Data: data}
		for _, w := range with {
			w(&c)
		}
		_, r := s.batch(&Append{Chunk: c})
		if r[0].Err != nil {
			if n != to-1 {
				s.t.Fatalf("chunk %d of %s: %v", n, name, r[0].Err)
			}
			var e *belay.Error
			if !errors.As(r[0].Err, &e) {
				s.t.Fatalf("chunk %d of %s: %v", n, name, r[0].Err)
			}
			return e
		}
	}
	return nil
}

// Rule: a log that keeps only its head and its tail keeps at most MaxLog bytes.
func TestALogKeepsAtMostMaxLogBytes(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	const most = belay.MaxLog / belay.MaxChunk
	keep := func(c *belay.Chunk) { // keeps the first four chunks, and as many of the last chunks as fit
		if c.N >= most {
			c.DropFrom, c.DropTo = c.N-most+4, c.N-most+5
		}
	}
	if err := s.fill(l, "log", 0, 2*most, keep); err != nil {
		t.Fatal(err)
	}
	if sum := s.sum(SumRef{l.Execution, "log"}); sum.Bytes != belay.MaxLog || !sum.Log {
		t.Errorf("%+v, want %d bytes", sum, belay.MaxLog)
	}
	if err := s.fill(l, "log", 2*most, 2*most+1); err == nil || err.Code != belay.CodePayloadTooLarge {
		t.Errorf("one chunk more: %v", err)
	}
}

// Rule: an artifact has at most MaxArtifact bytes. In addition, the artifact of an earlier run may
// stay until the new artifact that replaces it is complete.
func TestAnArtifactKeepsAtMostMaxArtifactBytes(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	l := s.run(w)
	const most = belay.MaxArtifact / belay.MaxChunk
	if err := s.fill(l, "patch", 0, most+1); err == nil || err.Code != belay.CodePayloadTooLarge {
		t.Fatalf("one chunk too many: %v", err)
	}
	s.do(s.settle(l, belay.OutcomeReleased))
	l = s.win(w)
	if err := s.fill(l, "patch", most, 2*most-1); err != nil {
		t.Fatal(err)
	}
	if err := s.fill(l, "patch", 2*most-1, 2*most, func(c *belay.Chunk) { c.DropTo = most }); err != nil {
		t.Fatal(err)
	}
	if sum := s.sum(SumRef{l.Execution, "patch"}); sum.Bytes != belay.MaxArtifact || sum.Log {
		t.Errorf("%+v, want %d bytes", sum, belay.MaxArtifact)
	}
}

// Rule: a dropped chunk cannot be read any more, and a new chunk may have its number, even in the
// same batch.
func TestADroppedNumberMayBeUsedAgain(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	chunk := func(n int64, data string, to int64) *Append {
		return &Append{Chunk: belay.Chunk{Lease: l, Name: "log", N: n, Data: []byte(data), DropTo: to}}
	}
	s.do(chunk(0, "zero", 0))
	_, r := s.batch(chunk(1, "one", 0), chunk(2, "two", 2), chunk(0, "new", 0), chunk(1, "new", 0))
	for i := range r {
		if r[i].Err != nil {
			t.Errorf("append %d: %v", i, r[i].Err)
		}
	}
	if n := len(s.records[l.Execution].chunks); n != 3 {
		t.Errorf("%d chunks are kept, want 3", n)
	}
}
