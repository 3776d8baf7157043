package machine

import (
	"testing"

	"github.com/belaydev/belay"
)

// A refused command does not affect the other commands of its batch: they succeed, and the rows are
// the same as without the refused command.
func TestARefusalDoesNotAffectOtherCommands(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	stale := l
	stale.Token++
	_, r := s.batch(
		s.save(stale, belay.KindStep, "stale"), s.save(l, belay.KindStep, "a"), s.save(l, belay.KindStep, ""),
		s.act(l.Execution, "explode"), s.signal(l.Execution, "go"), s.settle(l, belay.OutcomeLost),
		s.settle(l, belay.OutcomeSuspended),
		s.save(l, belay.KindStep, "late"),
	)
	for i, passes := range []bool{false, true, false, false, true, false, true, false} {
		if (r[i].Err == nil) != passes {
			t.Errorf("command %d: %v", i, r[i].Err)
		}
		if r[i].Err != nil && (r[i].Seq != 0 || r[i].Execution != nil || r[i].Follow != nil) {
			t.Errorf("a refusal answers more than an error: %+v", r[i])
		}
	}
	s.is(l.Execution, "waiting(signal due)")
	if got := kinds(Events(s.records[l.Execution].history(), 0, 99)); got != "submitted started step signal suspended" {
		t.Errorf("history %s", got)
	}
}

// A reply shows the execution in its state after the command; later commands of the batch do not
// change the reply.
func TestRepliesDoNotChangeLater(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	sub := s.submission()
	pause, resume := s.act(sub.ID, belay.ActionPause), s.act(sub.ID, belay.ActionResume)
	fork := s.act(sub.ID, belay.ActionFork)
	schedule := &Schedule{Execution: sub.ID, Worker: w, Secret: belay.Secret{1}}
	steal, cancel := s.act(sub.ID, belay.ActionSteal), s.act(sub.ID, belay.ActionCancel)
	_, r := s.batch(sub, pause, resume, fork, pause, schedule, s.act(fork.Fork, belay.ActionCancel), steal,
		s.claims(w, 1), cancel)
	for i, want := range map[int]belay.State{
		1: belay.Paused, 2: belay.Pending, 3: belay.Pending, 5: belay.Scheduled, 6: belay.Cancelled, 7: belay.Pending,
	} {
		if r[i].Err != nil || r[i].Execution.State != want {
			t.Errorf("command %d: %v, shows %s, want %s", i, r[i].Err, r[i].Execution.State, want)
		}
	}
	if !r[4].Replayed || r[4].Execution.State != belay.Pending {
		t.Errorf("the repeated pause is answered %+v", r[4])
	}
	if c := r[8].Claims; len(c) != 1 || c[0].Execution.State != belay.Running || c[0].Execution.CancelBy != 0 {
		t.Errorf("the claim shows %+v", c)
	}
	if at := r[5].Execution.CheckAt; at != s.now.Add(belay.DefaultScheduled.D()) {
		t.Errorf("the assignment is shown to be looked at again at %d", at)
	}
	if len(s.records) != 2 {
		t.Errorf("%d executions", len(s.records))
	}
}

// An execution may be submitted, run and end in one batch. The batch writes one new row of the
// execution, in the execution's last state, and the whole history.
func TestAnExecutionMayBeginAndEndInOneFold(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	sub, other := s.submission(), s.submission()
	changes, r := s.batch(sub, other, s.signal(sub.ID, "go"), s.claims(w, 1), s.act(sub.ID, belay.ActionCancel),
		s.act(sub.ID, belay.ActionSteal))
	for i := range r {
		if r[i].Err != nil {
			t.Fatalf("command %d: %v", i, r[i].Err)
		}
	}
	if len(changes.Executions) != 2 || !changes.Executions[0].New || len(changes.Runs) != 1 || !changes.Runs[0].New {
		t.Errorf("%+v", changes)
	}
	s.is(sub.ID, "cancelled")
	s.is(other.ID, "pending")
	if got := kinds(Events(s.records[sub.ID].history(), 0, 99)); got != "submitted signal started cancel steal!" {
		t.Errorf("history %s", got)
	}
}

// If two commands of one batch end the same execution, the first succeeds and the second is refused.
func TestOneEndPerGeneration(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	_, r := s.batch(s.settle(l, belay.OutcomeSucceeded), s.settle(l, belay.OutcomeFailed),
		s.act(l.Execution, belay.ActionCancel))
	if r[0].Err != nil || belay.CodeOf(r[1].Err) != belay.CodeLeaseLost ||
		belay.CodeOf(r[2].Err) != belay.CodeConflict {
		t.Errorf("answers %v, %v, %v", r[0].Err, r[1].Err, r[2].Err)
	}
	s.is(l.Execution, "succeeded")
}

// A session that ends in a batch loses its leases at once: later commands of the batch that write
// under them are refused.
func TestNoWriteIsAcceptedAfterTheSessionEndedInItsFold(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	s.submit()
	_, r := s.batch(s.save(l, belay.KindStep, "a"), &End{Worker: w}, s.save(l, belay.KindStep, "b"), s.beat(w, l),
		s.claims(w, 1),
		&Lose{l.Execution, l.Token, w, false, true, false})
	for i, code := range []belay.Code{"", "", belay.CodeLeaseLost, belay.CodeLeaseLost, belay.CodeLeaseLost, ""} {
		if (code == "") != (r[i].Err == nil) || code != "" && belay.CodeOf(r[i].Err) != code {
			t.Errorf("command %d: %v, want %q", i, r[i].Err, code)
		}
	}
}

// A batch without effect writes nothing.
func TestAFoldWithoutEffectWritesNothing(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	changes, _ := s.batch()
	if !changes.Empty() {
		t.Errorf("%+v", changes)
	}
	changes, _ = s.batch(&Tick{Execution: l.Execution}, s.act(l.Execution, belay.ActionResume), s.claims(w, 0),
		&Progress{l.Execution, l.Token, s.now})
	if !changes.Empty() {
		t.Errorf("%+v", changes)
	}
}
