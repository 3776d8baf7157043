package machine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

func won(r Reply) (ids []belay.ExecutionID) {
	for _, c := range r.Claims {
		ids = append(ids, c.Execution.ID)
	}
	return ids
}

func priority(n int) func(*belay.Submission) { return func(b *belay.Submission) { b.Priority = n } }

func anyJob(s *belay.WorkerSpec) {
	s.Queues = []string{"default", "q"}
	s.Workflows = []belay.Registration{{Workflow: "job"}, {Workflow: "other"}}
}

// Guarantee G12 (order of claims): executions of higher priority are claimed first. Within one
// priority, in all lanes together, the execution that has been due for longest is claimed first;
// among executions that became due at the same time, the oldest.
func TestClaimsFollowPriorityThenDueTime(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", anyJob)
	inQ := func(b *belay.Submission) { b.Queue = "q" }
	other := func(b *belay.Submission) { b.Workflow = "other" }
	low := s.submit(priority(-1))
	later := s.submit(func(b *belay.Submission) { b.DueAt = s.now.Add(2 * time.Second).Time() })
	a := s.submit()
	b := s.submit(inQ)
	s.pass(time.Second)
	c := s.submit(other)
	high := s.submit(priority(1), inQ)
	s.pass(time.Second)
	d := s.submit()
	want := []belay.ExecutionID{high, a, b, c, later, d, low}
	s.submit(func(b *belay.Submission) { b.DueAt = s.now.Add(1).Time() })
	if got := won(s.do(s.claims(w, 3))); cmp.Diff(want[:3], got) != "" {
		t.Errorf("first %v, want %v", got, want[:3])
	}
	if got := won(s.do(s.claims(w, 9))); cmp.Diff(want[3:], got) != "" {
		t.Errorf("then %v, want %v", got, want[3:])
	}
}

// Queues with work of the same priority take turns, within a claim and from one claim to the next;
// a queue without work loses its turn. Within a queue the longest due execution comes first.
// Executions of a higher priority come before all turns.
func TestQueuesTakeTurns(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", func(w *belay.WorkerSpec) { w.Queues = []string{"a", "b", "c"} })
	in := func(queue string) func(*belay.Submission) { return func(b *belay.Submission) { b.Queue = queue } }
	var a, b []belay.ExecutionID
	for range 20 { // a backlog
		a = append(a, s.submit(in("a")))
	}
	s.pass(time.Second)
	for range 3 {
		b = append(b, s.submit(in("b")))
	}
	low := s.submit(in("c"), priority(-1))
	first := s.submit(in("a"), priority(1))
	claim := func(slots int, after string) []belay.ExecutionID {
		c := s.claims(w, slots)
		c.After = after
		return won(s.do(c))
	}
	for i, c := range []struct {
		slots int
		after string
		want  []belay.ExecutionID
	}{
		{1, "", []belay.ExecutionID{first}},
		{2, "", []belay.ExecutionID{a[0], b[0]}}, // the queue with the longest due execution has the first turn
		{1, "a", []belay.ExecutionID{b[1]}},
		{3, "b", []belay.ExecutionID{a[1], b[2], a[2]}},
		{2, "gone", []belay.ExecutionID{a[3], a[4]}},
		{16, "a", append(append([]belay.ExecutionID{}, a[5:]...), low)},
	} {
		if diff := cmp.Diff(c.want, claim(c.slots, c.after)); diff != "" {
			t.Errorf("claim %d of %d after %q (-want +won):\n%s", i+1, c.slots, c.after, diff)
		}
	}
}

// Several claims in one batch take the executions in the order of their due times. They win each
// execution exactly once.
func TestClaimsOfOneFoldWinEachExecutionOnce(t *testing.T) {
	s := newStage(t)
	a, b, c := s.worker("a"), s.worker("b"), s.worker("c")
	var ids []belay.ExecutionID
	for range 5 {
		ids = append(ids, s.submit())
	}
	_, r := s.batch(s.claims(a, 2), s.claims(b, 2), s.claims(c, 2))
	var got []belay.ExecutionID
	for _, r := range r {
		got = append(got, won(r)...)
	}
	if cmp.Diff(ids, got) != "" {
		t.Errorf("won %v, want %v", got, ids)
	}
}

// An execution can start in the commit that accepts its submission.
func TestClaimInTheFoldOfTheSubmission(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	old := s.submit()
	fresh, late := s.submission(), s.submission(func(b *belay.Submission) { b.DueAt = s.now.Add(1).Time() })
	changes, r := s.batch(fresh, late, s.claims(w, 5))
	if got, want := won(r[2]), []belay.ExecutionID{old, fresh.ID}; cmp.Diff(want, got) != "" {
		t.Fatalf("won %v, want %v", got, want)
	}
	if string(r[2].Claims[1].Input) != `{"n":1}` {
		t.Errorf("input %s", r[2].Claims[1].Input)
	}
	if len(changes.Lanes) != 1 || len(changes.Executions) != 3 {
		t.Errorf("%d lanes and %d executions written", len(changes.Lanes), len(changes.Executions))
	}
}

// If a run ends in a batch and its execution is due again, a later claim of the batch can win the
// execution. A claim cannot win an execution that was cancelled or paused earlier in the batch.
func TestAClaimSeesEarlierChangesOfItsFold(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	gone, paused, kept := s.submit(), s.submit(), s.submit()
	c := s.claims(w, 9)
	_, r := s.batch(s.settle(l, belay.OutcomeReleased), s.act(gone, belay.ActionCancel),
		s.act(paused, belay.ActionPause), c)
	if got, want := won(r[3]), []belay.ExecutionID{kept, l.Execution}; cmp.Diff(want, got) != "" {
		t.Errorf("won %v, want %v", got, want)
	}
}

// Guarantee G1 (one writer): a claim wins an execution that became due twice in one batch only
// once, even if the claim has slots left.
func TestClaimWinsNothingTwice(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	id := s.submit()
	pause, resume := s.act(id, belay.ActionPause), s.act(id, belay.ActionResume)
	again, back := s.act(id, belay.ActionPause), s.act(id, belay.ActionResume)
	_, r := s.batch(pause, resume, again, back, s.claims(w, 3))
	if got := won(r[4]); len(got) != 1 {
		t.Errorf("won %v", got)
	}
	if e := s.row(id); e.Token != 1 {
		t.Errorf("token %d", e.Token)
	}
}

// A claim can win an execution that becomes due in the same batch, and gets the execution's present
// input.
func TestAClaimTakesExecutionsMadeDueInItsFold(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	paused := s.submit()
	s.do(s.act(paused, belay.ActionPause))
	signalled := s.run(w)
	s.do(s.settle(signalled, belay.OutcomeSuspended))
	parent := s.run(w)
	s.submit(s.childOf(parent, "c"))
	child := s.win(w)
	s.do(s.settle(parent, belay.OutcomeSuspended))
	failed := s.run(w, policy(belay.Policy{MaxAttempts: 1}))
	s.do(s.settle(failed, belay.OutcomeFailed))
	requeue := s.act(failed.Execution, belay.ActionRequeue, func(c *belay.Control) { c.Input = []byte(`"new"`) })
	fork := s.act(failed.Execution, belay.ActionFork)
	_, r := s.batch(s.act(paused, belay.ActionResume), s.signal(signalled.Execution, "go"),
		s.settle(child, belay.OutcomeSucceeded),
		requeue, fork, s.claims(w, 9))
	want := []belay.ExecutionID{paused, signalled.Execution, parent.Execution, failed.Execution, fork.Fork}
	if d := cmp.Diff(want, won(r[5])); d != "" {
		t.Fatal(d)
	}
	for _, i := range []int{3, 4} {
		if got := string(r[5].Claims[i].Input); got != `"new"` {
			t.Errorf("input %s", got)
		}
	}
}

// If a run fails or is lost in a batch, a later claim of the batch cannot win the execution before
// its backoff or lock delay is over.
func TestAClaimWaitsForTheBackoffInOneFold(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w)
	lost := s.run(s.worker("x"), policy(belay.Policy{LockDelay: belay.Duration(time.Second)}))
	s.do(&End{Worker: lost.Worker, Dead: "gone"})
	_, r := s.batch(s.settle(l, belay.OutcomeFailed), &Lose{
		lost.Execution, lost.Token, lost.Worker, false, true, false,
	}, s.claims(w, 9))
	if len(r[2].Claims) != 0 {
		t.Errorf("won %v", won(r[2]))
	}
}

// A repeated claim gets the runs that the first try has won, and no others, however often it is
// repeated. Claims with older numbers, or with numbers that the worker has given up, win nothing.
func TestAClaimNumberWinsOnce(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	a, b := s.submit(), s.submit()
	first := s.claims(w, 1)
	s.do(first)
	again := *first
	again.Repeat, again.Slots = true, 1
	r := s.do(&again)
	if got := won(r); len(got) != 1 || got[0] != a || r.Claims[0].Execution.Token != 1 {
		t.Fatalf("asked again it won %v, want %s", got, a)
	}
	second := s.claims(w, 1)
	if got := won(s.do(second)); len(got) != 1 || got[0] != b {
		t.Fatalf("the next won %v", got)
	}
	s.refused(&again, belay.CodeConflict) // refused, because the worker has made a claim with a newer number
	s.do(s.settle(leaseOf(s.row(b)), belay.OutcomeSucceeded))
	repeat := *second
	repeat.Repeat = true
	s.refused(&repeat, belay.CodeConflict) // the run that this claim won has ended, so its number cannot be used again
	s.do(s.beat(w, leaseOf(s.row(a))))
	s.refused(&repeat, belay.CodeConflict) // refused, because the heartbeat has given up the claim of this number
	third := s.claims(w, 1)
	s.do(third) // this claim wins nothing, so its number may be used again
	s.submit()
	if got := won(s.do(third)); len(got) != 1 {
		t.Errorf("a number that had won nothing won %v", got)
	}
}

// The repetition of a claim may be in the same batch as its first try.
func TestAClaimMayBeRepeatedInOneFold(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	a, b := s.submit(), s.submit()
	c := s.claims(w, 2)
	again := *c
	again.Repeat = true
	_, r := s.batch(c, &again, &again)
	for i := range r {
		if got := won(r[i]); cmp.Diff([]belay.ExecutionID{a, b}, got) != "" {
			t.Errorf("answer %d: %v", i, got)
		}
	}
	if got := s.row(a).Token; got != 1 {
		t.Errorf("token %d", got)
	}
}

// A claim is refused if the worker has given up the claim before the claim is committed.
func TestAClaimThatWasGivenUpIsRefused(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	id := s.submit()
	c := s.claims(w, 1)
	_, r := s.batch(s.beat(w), c)
	if belay.CodeOf(r[1].Err) != belay.CodeConflict {
		t.Errorf("answered %+v", r[1])
	}
	s.is(id, "pending")
}

func TestClaimIsRefused(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	s.submit()
	for _, slots := range []int{-1, 3} {
		c := s.claims(w, 2)
		c.Slots = slots
		s.refused(c, belay.CodeInvalid)
	}
	zero := s.claims(w, 1)
	zero.Number = 0
	s.refused(zero, belay.CodeConflict)
	stranger := s.claims(belay.WorkerID(s.id()), 1)
	s.refused(stranger, belay.CodeLeaseLost, belay.CauseExpired)
	if got := won(s.do(s.claims(w, 0))); len(got) != 0 {
		t.Errorf("without a slot it won %v", got)
	}
	var n Need
	negative := *zero
	negative.Slots, negative.Lanes = -5, []Lane{{ID: 1}}
	(&Claim{ClaimRequest: belay.ClaimRequest{Slots: 3}, Lanes: []Lane{{ID: 1}}}).Need(&n)
	negative.Need(&n)
	if n.Ready[0].Limit != 3 {
		t.Errorf("a negative claim takes from its neighbour's limit: %+v", n.Ready)
	}
}

// A new run does not inherit the requests (such as cancel and pause) to the previous run. Its
// attempt number is the number of counted attempts plus one.
func TestAClaimBeginsAFreshRun(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(hour))
	l := s.run(w)
	s.do(s.act(l.Execution, belay.ActionPreempt))
	s.do(s.settle(l, belay.OutcomeFailed, failing))
	s.pass(time.Minute)
	s.win(w)
	e := s.row(l.Execution)
	if e.Preempting || e.Reason != "" || e.RunAt != s.now || e.ProgressAt != s.now || e.StartedAt == s.now ||
		e.DueAt != 0 {
		t.Errorf("%+v", *e)
	}
	runs := s.records[l.Execution].runs
	if len(runs) != 2 || runs[1].Attempt != 2 || runs[1].Worker != w || runs[1].StartedAt != s.now {
		t.Errorf("run %+v", *runs[len(runs)-1])
	}
}

// A scheduled execution is accepted once, by the named worker with its token. A repetition gets the
// same lease; any other accept is refused (guarantee G14).
func TestScheduleAndAccept(t *testing.T) {
	s := newStage(t)
	w, other := s.worker("w"), s.worker("other")
	id := s.submit()
	r := s.do(&Schedule{Execution: id, Worker: w, Secret: belay.Secret{5}})
	token := r.Execution.Token
	s.refused(&Schedule{Execution: id, Worker: other, Secret: belay.Secret{6}}, belay.CodeConflict)
	s.refused(&Accept{other, id, token, 1}, belay.CodeConflict)
	s.refused(&Accept{w, id, token - 1, 1}, belay.CodeConflict)
	s.refused(s.save(leaseOf(r.Execution), belay.KindStep, "k"), belay.CodeLeaseLost, belay.CauseExpired)
	accepted := s.do(&Accept{w, id, token, 1}).Claims[0]
	if string(accepted.Input) != `{"n":1}` {
		t.Errorf("input %s", accepted.Input)
	}
	first := accepted.Execution
	again := s.do(&Accept{w, id, token, 1})
	if !again.Replayed || leaseOf(&again.Claims[0].Execution) != leaseOf(&first) || first.Secret != (belay.Secret{5}) {
		t.Errorf("answered %+v, first %+v", again, first)
	}
	s.do(s.save(leaseOf(&first), belay.KindStep, "k"))
	runs := s.records[id].runs
	if len(runs) != 1 || runs[0].ScheduledSeq != 2 || runs[0].StartedSeq != 3 {
		t.Errorf("run %+v", *runs[0])
	}
	claimed := s.run(w)
	s.refused(&Accept{w, claimed.Execution, claimed.Token, 2}, belay.CodeConflict)
}

// A claim that assigns picks as other claims do, and its worker must accept what it picked: gates hold and park
// executions, and a worker that may not claim or has no mailbox gets none. It does not change
// the numbers of the worker's claims.
func TestClaimsThatAssign(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	assign := func(slots int) Reply {
		c := &Claim{ClaimRequest: belay.ClaimRequest{Worker: w, Slots: slots}, Assign: true}
		s.fillClaim(c)
		return s.do(c)
	}
	first := s.submit(limit("x", 1))
	if r := assign(1); !r.NoClaims || len(r.Claims) != 0 {
		t.Errorf("a worker without a mailbox got %+v", r)
	}
	s.do(&Mailbox{w, "a queue"})
	held := s.submit(limit("x", 1))
	s.pass(time.Millisecond)
	second, third := s.submit(), s.submit()
	r := assign(3) // reads the first three
	if len(r.Claims) != 2 || r.Claims[0].Execution.ID != first || r.Claims[1].Execution.ID != second {
		t.Fatalf("assigned %v", r.Claims)
	}
	if e := s.row(held); e.State != belay.Pending || e.Gate != "limit:x" {
		t.Errorf("the execution behind the limit is %+v", e)
	}
	for i := range r.Claims {
		e := &r.Claims[i].Execution
		if e.State != belay.Scheduled || e.ScheduledAt != s.now || e.Secret == (belay.Secret{}) || e.Worker != w {
			t.Errorf("assigned %+v", e)
		}
		s.do(&Accept{w, e.ID, e.Token, int64(i + 1)})
	}
	if x := s.workers[w]; x.ClaimNo != 0 {
		t.Errorf("the worker's newest claim is %d", x.ClaimNo)
	}
	s.do(&Cordon{belay.Cordon{Worker: w}})
	if r := assign(1); !r.NoClaims || len(r.Claims) != 0 {
		t.Errorf("a cordoned worker got %+v", r)
	}
	s.do(&Cordon{belay.Cordon{Worker: w, Off: true}})
	if r := assign(1); len(r.Claims) != 1 || r.Claims[0].Execution.ID != third {
		t.Errorf("assigned %+v", r.Claims)
	}
}
