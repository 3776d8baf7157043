package machine

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// ownerWrites lists the commands of an owner under a lease.
func (s *stage) ownerWrites(l belay.Lease) []Command {
	all := []Command{
		s.save(l, belay.KindStep, "k"), s.save(l, belay.KindState, "k"), s.save(l, belay.KindWait, "k"),
		&Append{Chunk: belay.Chunk{Lease: l, Name: "log", Data: []byte("x")}},
		s.submission(func(b *belay.Submission) {
			b.ID, b.Parent, b.ParentKey = belay.ChildID(l.Execution, 1, "k"), &l, "k"
		}),
	}
	for o := belay.OutcomeSucceeded; o <= belay.OutcomeCancelled; o++ {
		all = append(all, s.settle(l, o))
	}
	return all
}

// Guarantees G1 (one writer) and G2 (no stale write): in every situation, every write under a lease
// that differs from the present one in any field is refused.
func TestEveryWriteUnderAWrongLeaseIsRefused(t *testing.T) {
	wrong := map[string]func(*belay.Lease, *subject){
		"an older token": func(l *belay.Lease, _ *subject) { l.Token-- },
		"a newer token":  func(l *belay.Lease, _ *subject) { l.Token++ },
		"another secret": func(l *belay.Lease, _ *subject) { l.Secret[15]++ },
		"no secret":      func(l *belay.Lease, _ *subject) { l.Secret = belay.Secret{} },
		"another worker": func(l *belay.Lease, x *subject) { l.Worker = x.other },
		"no worker":      func(l *belay.Lease, _ *subject) { l.Worker = belay.WorkerID{} },
		"another execution": func(l *belay.Lease, x *subject) {
			l.Execution = x.run(x.other).Execution
		},
	}
	for _, at := range situations[1:] {
		for what, change := range wrong {
			x := &subject{stage: newStage(t)}
			x.owner, x.other = x.worker("owner"), x.worker("other")
			at.set(x)
			l := x.lease
			change(&l, x)
			t.Log(at.name, what)
			for _, c := range x.ownerWrites(l) {
				x.refused(c, belay.CodeLeaseLost)
			}
		}
	}
}

// The refusal of a stale write gives the cause.
func TestTheRefusalOfAStaleWriteGivesTheCause(t *testing.T) {
	s := newStage(t)
	a, b := s.worker("a"), s.worker("b", ttl(time.Hour))
	old := s.run(a)
	s.do(s.act(old.Execution, belay.ActionSteal))
	// no worker has claimed the execution since
	s.refused(s.save(old, belay.KindStep, "k"), belay.CodeLeaseLost, belay.CauseExpired)
	now := s.win(b)
	s.refused(s.save(old, belay.KindStep, "k"), belay.CodeLeaseLost, belay.CauseReassigned)
	s.do(s.act(now.Execution, belay.ActionCancel))
	s.refused(s.save(old, belay.KindStep, "k"), belay.CodeLeaseLost, belay.CauseReassigned)
	s.do(s.save(now, belay.KindStep, "k"))
	s.pass(grace)
	s.refused(s.save(now, belay.KindStep, "k2"), belay.CodeLeaseLost, belay.CauseCancelled)
	s.do(&Tick{Execution: now.Execution})
	s.refused(s.save(now, belay.KindStep, "k2"), belay.CodeLeaseLost, belay.CauseCancelled)

	ended := s.run(b)
	s.do(s.settle(ended, belay.OutcomeSucceeded))
	s.refused(s.save(ended, belay.KindStep, "k"), belay.CodeLeaseLost, belay.CauseFinished)
}

// Guarantee G6 (losses are detected in time): a lease is valid until the last microsecond of its
// session and refused from expires_at on, whether the reaper has run or not.
func TestLeaseEndsWithItsSession(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(2*time.Second))
	l := s.run(w)
	s.pass(2*time.Second - time.Microsecond)
	s.do(s.save(l, belay.KindStep, "in time"))
	s.pass(time.Microsecond)
	s.refused(s.save(l, belay.KindStep, "late"), belay.CodeLeaseLost, belay.CauseExpired)
	s.do(&Expire{w})
	s.refused(s.save(l, belay.KindStep, "late"), belay.CodeLeaseLost, belay.CauseExpired)
	if n := len(s.records[l.Execution].checkpoints); n != 1 {
		t.Errorf("%d checkpoints, want the one in time", n)
	}
}

// Guarantee G1 (one writer): tokens of one execution grow with every claim and every assignment,
// across generations and losses, and jump up when a new epoch begins, as after a restore. They
// never fall.
func TestTokensGrowForEver(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	id := s.submit(policy(belay.Policy{MaxAttempts: 1}))
	last := belay.Token(0)
	claim := func(atLeast belay.Token) belay.Lease {
		t.Helper()
		l := s.win(w)
		if l.Token <= last || l.Token < atLeast {
			t.Fatalf("token %d after %d, want at least %d", l.Token, last, atLeast)
		}
		last = l.Token
		return l
	}
	s.do(s.settle(claim(1), belay.OutcomeReleased))
	s.do(s.settle(claim(2), belay.OutcomeFailed))
	s.do(s.act(id, belay.ActionRetry))
	claim(3)
	s.do(s.act(id, belay.ActionSteal))
	r := s.do(&Schedule{Execution: id, Worker: w, Secret: belay.Secret{1}})
	if last = r.Execution.Token; last != 4 {
		t.Fatalf("an assignment has token %d, want 4", last)
	}
	s.do(&Accept{w, id, last, 1})
	s.epoch = 3 << 32
	s.do(s.act(id, belay.ActionSteal))
	s.do(s.settle(claim(3<<32+1), belay.OutcomeReleased))
	s.do(s.settle(claim(3<<32+2), belay.OutcomeReleased))
	s.epoch = 0 // tokens must not fall even if the epoch does
	claim(3<<32 + 3)
	if last >= 1<<53 {
		t.Errorf("token %d cannot be written in JSON", last)
	}
}

// Guarantee G2 (no stale write): a repeated operation gets its first answer again, also after the
// execution has changed its owner or its state.
func TestRepeatedOperationsGetTheirFirstAnswer(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	l := s.run(w)
	save := s.save(l, belay.KindStep, "k")
	signal := s.signal(l.Execution, "go")
	pause := s.act(l.Execution, belay.ActionPause)
	settle := s.settle(l, belay.OutcomeReleased)
	commands := []Command{save, signal, pause, settle}
	var answers []int64
	for _, c := range commands {
		answers = append(answers, s.do(c).Seq)
	}
	s.do(s.act(l.Execution, belay.ActionResume))
	save.Repeat, settle.Repeat = true, true
	again := func(where string) {
		t.Helper()
		before := s.row(l.Execution)
		for i, c := range commands {
			if r := s.do(c); r.Seq != answers[i] || !r.Replayed {
				t.Errorf("%s: %T is answered %+v, first %d", where, c, r, answers[i])
			}
		}
		if !same(before, s.row(l.Execution)) {
			t.Errorf("%s: a repetition changed the execution", where)
		}
	}
	again("given back")
	next := s.win(w)
	again("reassigned")
	s.do(s.settle(next, belay.OutcomeSucceeded))
	again("ended")
}

// A repeated operation gets its first answer even if the repetition is in the same batch as the
// first try.
func TestRepeatedOperationsInOneFold(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	save, signal, act, settle := s.save(l, belay.KindStep, "k"), s.signal(l.Execution, "go"),
		s.act(l.Execution, belay.ActionPreempt), s.settle(l, belay.OutcomeSucceeded)
	again := *save
	again.Repeat = true
	_, r := s.batch(save, &again, signal, signal, act, act, settle, settle)
	for i := 0; i < len(r); i += 2 {
		if r[i].Err != nil || r[i+1].Err != nil || r[i].Seq != r[i+1].Seq || !r[i+1].Replayed {
			t.Errorf("answers %d: %+v and %+v", i, r[i], r[i+1])
		}
	}
	if got := s.row(l.Execution).Seq; got != 6 {
		t.Errorf("seq %d after four operations on a claimed execution, want 6", got)
	}
}

// Without an operation id each command is a new operation.
func TestOperationsWithoutAnIDAreNotRepeated(t *testing.T) {
	s := newStage(t)
	l := s.run(s.worker("w"))
	for want := int64(3); want < 6; want++ {
		c := s.save(l, belay.KindStep, "k")
		c.Op, c.Repeat = belay.OpID{}, true
		if r := s.do(c); r.Seq != want || r.Replayed {
			t.Errorf("the answer is %+v, want seq %d", r, want)
		}
	}
}
