package machine

import (
	"testing"

	"github.com/belaydev/belay"
)

// Guarantee G3 (nothing acknowledged is lost): if the repetition of a checkpoint arrives before its
// delayed first try, the checkpoint is written once. The first try may have been delayed in a
// stopped server or on a slow connection, while the owner repeated it through another server and
// wrote a newer state. The first try gets the answer of the repetition and does not restore the
// older state.
func TestTheFirstTryOfACheckpointArrivesAfterItsRepetition(t *testing.T) {
	for name, together := range map[string]bool{"in a later batch": false, "in the same batch": true} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			l := s.run(s.worker("w"))
			first := s.save(l, belay.KindState, "old")
			again := &Save{Save: first.Save}
			again.Repeat = true
			newer := s.save(l, belay.KindState, "new")
			var replies []Reply
			if together {
				_, replies = s.batch(again, newer, first)
			} else {
				for _, c := range []Command{again, newer, first} {
					_, r := s.batch(c)
					replies = append(replies, r...)
				}
			}
			for i, r := range replies {
				if r.Err != nil {
					t.Fatalf("write %d: %v", i, r.Err)
				}
			}
			if last := replies[2]; last.Seq != replies[0].Seq || !last.Replayed {
				t.Errorf("the first try was answered with %+v, its repetition with %+v", last, replies[0])
			}
			if e := s.row(l.Execution); e.StateSeq != replies[1].Seq {
				t.Errorf("the state has seq %d, the newest is %d", e.StateSeq, replies[1].Seq)
			}
		})
	}
}

// After a run has repeated a write, the store looks up the operation of each further write of that
// run, which may be a delayed first try. For the next run the store looks up no operations until
// the owner of that run repeats a write too.
func TestOnlyTheRunThatRepeatedAWriteIsLookedUp(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	again := s.save(l, belay.KindStep, "a")
	again.Repeat = true
	s.do(again)
	s.do(s.settle(l, belay.OutcomeReleased))
	next := s.win(w)
	need := NeedOf([]Command{s.save(next, belay.KindStep, "b")})
	if ops := need.Further(s.load(&need)).Ops; len(ops) != 0 {
		t.Errorf("the write of the next run looks up %v", ops)
	}
	again = s.save(next, belay.KindStep, "c")
	again.Repeat = true
	s.do(again)
	b := s.save(next, belay.KindStep, "d")
	need = NeedOf([]Command{b})
	if ops := need.Further(s.load(&need)).Ops; len(ops) != 1 || ops[0] != (OpRef{next.Execution, b.Op}) {
		t.Errorf("the write after a repetition looks up %v", ops)
	}
}

// Guarantee G2 (no stale write): the delayed first try of a repeated write is refused if another run
// has begun, also if it has begun in the same batch.
func TestADelayedFirstTryIsRefusedAfterTheNextRunBegan(t *testing.T) {
	for _, together := range []bool{false, true} {
		s := newStage(t)
		w := s.worker("w")
		l := s.run(w)
		first := s.save(l, belay.KindStep, "a")
		again := &Save{Save: first.Save}
		again.Repeat = true
		s.do(again)
		s.do(s.settle(l, belay.OutcomeReleased))
		schedule := &Schedule{Execution: l.Execution, Worker: w, Secret: belay.Secret{5}}
		var r []Reply
		if together {
			_, r = s.batch(schedule, first)
		} else {
			s.do(schedule)
			_, r = s.batch(first)
		}
		if err := r[len(r)-1].Err; belay.CodeOf(err) != belay.CodeLeaseLost {
			t.Errorf("in one batch %t: it was answered with %v", together, err)
		}
	}
}
