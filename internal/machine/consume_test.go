package machine

import (
	"testing"

	"github.com/belaydev/belay"
)

// A state can consume many ends of children and signals in one write. Afterwards each is consumed by this
// checkpoint, so that no later run receives it again.
func TestACheckpointConsumesManyEnds(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	for _, key := range []string{"a", "b", "c"} {
		s.submit(s.childOf(l, key))
		s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
	}
	seqs := []int64{s.do(s.signal(l.Execution, "go")).Seq}
	need := Need{Mailboxes: []belay.ExecutionID{l.Execution}}
	for _, x := range s.load(&need).Signals {
		if !x.Child.IsZero() {
			seqs = append(seqs, x.Seq)
		}
	}
	if len(seqs) != 4 {
		t.Fatalf("signals %v", seqs)
	}
	save := s.save(l, belay.KindState, "state")
	save.Consumes, save.AlsoConsumes = seqs[0], seqs[1:]
	seq := s.do(save).Seq
	for _, x := range s.load(&need).Signals {
		if x.ConsumedBy != seq {
			t.Errorf("signal %d is consumed by %d, not %d", x.Seq, x.ConsumedBy, seq)
		}
	}
	if e := s.row(l.Execution); e.Signals != 0 || e.SignalBytes != 0 {
		t.Errorf("%d signals of %d bytes count as kept", e.Signals, e.SignalBytes)
	}
	again := s.save(l, belay.KindState, "state")
	again.AlsoConsumes = seqs[1:2]
	s.refused(again, belay.CodeConflict)
}

// A checkpoint that consumes a signal twice, a signal that does not exist, or too many signals, is refused and changes
// nothing.
func TestWrongConsumptionIsRefused(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	seq := s.do(s.signal(l.Execution, "go")).Seq
	for _, c := range []struct {
		also []int64
		code belay.Code
	}{
		{[]int64{seq, seq}, belay.CodeInvalid},
		{[]int64{seq, seq + 100}, belay.CodeNotFound},
		{[]int64{0}, belay.CodeNotFound},
		{make([]int64, belay.MaxConsumes+1), belay.CodePayloadTooLarge},
	} {
		save := s.save(l, belay.KindState, "state")
		save.AlsoConsumes = c.also
		s.refused(save, c.code)
	}
	save := s.save(l, belay.KindState, "state")
	save.Consumes = seq
	s.do(save)
}

// Guarantee G9: a repetition that consumes other signals is another operation.
func TestARepetitionConsumesTheSameSignals(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	first, second := s.do(s.signal(l.Execution, "go")).Seq, s.do(s.signal(l.Execution, "go")).Seq
	save := s.save(l, belay.KindState, "state")
	save.AlsoConsumes = []int64{first}
	s.do(save)
	again := &Save{Save: save.Save}
	again.Repeat = true
	if r := s.do(again); !r.Replayed {
		t.Error("the repetition was carried out")
	}
	other := &Save{Save: save.Save}
	other.Repeat, other.AlsoConsumes = true, []int64{second}
	s.refused(other, belay.CodeIdempotencyMismatch)
}
