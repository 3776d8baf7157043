package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

func limit(name string, n int) func(*belay.Submission) {
	return func(b *belay.Submission) { b.Concurrency = &belay.Concurrency{Name: name, Max: n} }
}

func full(when belay.WhenFull) func(*belay.Submission) {
	return func(b *belay.Submission) { b.Concurrency.WhenFull = when }
}

func rate(name string, n int, per time.Duration) func(*belay.Submission) {
	return func(b *belay.Submission) { b.Rate = &belay.Rate{Name: name, Max: n, Per: belay.Duration(per)} }
}

func target(name string) func(*belay.Submission) {
	return func(b *belay.Submission) { b.Target = name }
}

// set returns an operator's command that changes a gate.
func (s *stage) set(gate belay.GateID, a belay.GateAction, with ...func(*belay.GateChange)) *SetGate {
	c := belay.GateChange{Gate: gate, Action: a, Actor: "ann", Reason: "because", Op: s.op()}
	for _, w := range with {
		w(&c)
	}
	return &SetGate{c}
}

// settled carries out a command and all commands that follow from it.
func (s *stage) settled(c Command) Reply {
	s.t.Helper()
	r := s.do(c)
	for queue := r.Follow; len(queue) > 0; queue = queue[1:] {
		if b, ok := queue[0].(*BeginSwap); ok { // as the engine does
			b.Execution = belay.ExecutionID(s.id())
		}
		queue = append(queue, s.do(queue[0]).Follow...)
	}
	return r
}

// sweepGates checks each gate whose next check is due, as the sweeper of the engine does.
func (s *stage) sweepGates() {
	s.t.Helper()
	for ref, o := range s.objects {
		if ref.Kind == GateObject && o.NextAt.over(s.now) {
			s.settled(&Admit{Gate: belay.GateID(o.Name), Heads: MaxHeads})
		}
	}
}

// all makes the worker claim up to ten executions, and returns the leases of the executions that
// the worker won.
func (s *stage) all(w belay.WorkerID) (leases []belay.Lease) {
	s.t.Helper()
	for _, c := range s.settled(s.claims(w, 10)).Claims {
		leases = append(leases, leaseOf(&c.Execution))
	}
	return leases
}

func executionsOf(leases []belay.Lease) (ids []belay.ExecutionID) {
	for _, l := range leases {
		ids = append(ids, l.Execution)
	}
	return ids
}

// Rule: a limit of n lets at most n executions be between their first run and their end. The other
// executions wait, ordered by priority and then by the time since which they are due. Each place
// that an execution gives back lets the next execution through.
func TestNoMoreExecutionsAreUnderWayThanALimitAllows(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	var ids []belay.ExecutionID
	for range 4 {
		ids = append(ids, s.submit(limit("crawler", 2)))
	}
	urgent := s.submit(limit("crawler", 2), priority(-1)) // comes last, because the others have a higher priority
	free := s.submit()
	won := s.all(w)
	if diff := cmp.Diff([]belay.ExecutionID{ids[0], ids[1], free}, executionsOf(won)); diff != "" {
		t.Fatalf("claimed (-want +got):\n%s", diff)
	}
	if e := s.row(ids[2]); e.Gate != "limit:crawler" || e.DueAt == 0 || e.Ready() != 0 || e.Attempts != 0 {
		t.Errorf("it is not parked: %+v", *e)
	}
	s.settled(s.settle(won[0], belay.OutcomeSucceeded))
	won = append(won[1:], s.all(w)...)
	if got := won[len(won)-1].Execution; got != ids[2] {
		t.Errorf("then %s got the place, want %s", got, ids[2])
	}
	s.settled(s.settle(won[0], belay.OutcomeFailed)) // the failed execution keeps its place for its next attempt
	if again := s.all(w); len(again) > 0 {
		t.Errorf("an execution that is retried gave its place to %v", executionsOf(again))
	}
	s.settled(s.act(ids[1], belay.ActionCancel))
	if again := executionsOf(s.all(w)); cmp.Diff([]belay.ExecutionID{ids[3]}, again) != "" {
		t.Errorf("a cancelled execution gave its place to %v", again)
	}
	if e := s.row(urgent); e.Gate == "" {
		t.Errorf("the last one is not parked: %+v", *e)
	}
	held, members := s.held("limit:crawler")
	if len(held) != 2 || len(members) != 3 {
		t.Errorf("%d hold a place of %d members", len(held), len(members))
	}
}

// Rule: executions wait at a gate ordered by priority, then by the time since which they are due.
// While others wait, an execution that arrives waits too, even if a place is free.
func TestTheLineOfAGateIsInOrder(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	one := limit("one", 1)
	first := s.run(w, one)
	low, later := s.submit(one, priority(-1)), s.submit(one)
	s.pass(time.Second)
	high := s.submit(one, priority(1))
	if won := s.all(w); len(won) > 0 {
		t.Fatalf("won %v", won)
	}
	r := s.do(s.settle(first, belay.OutcomeSucceeded)) // the Admit that follows is not carried out yet
	late := s.submit(one, priority(2))
	if won := s.do(s.claims(w, 5)); len(won.Claims) > 0 {
		t.Fatalf("%v overtook the line", executionsOf([]belay.Lease{leaseOf(&won.Claims[0].Execution)}))
	}
	s.follow(r)
	for _, want := range []belay.ExecutionID{late, high, later, low} {
		won := s.all(w)
		if len(won) != 1 || won[0].Execution != want {
			t.Fatalf("won %v, want %s", executionsOf(won), want)
		}
		s.settled(s.settle(won[0], belay.OutcomeSucceeded))
	}
}

// Rule: a limit is full if as many executions as it allows have not ended, including those that
// wait. Then a submission with when_full "reject" is refused, and a submission with "replace"
// cancels the oldest of these executions.
func TestWhenALimitIsFull(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	a := s.submit(limit("x", 1)) // no worker has claimed this execution
	s.refused(s.submission(limit("x", 1), full(belay.RejectWhenFull)), belay.CodeConflict)
	l := s.win(w)
	s.refused(s.submission(limit("x", 1), full(belay.RejectWhenFull)), belay.CodeConflict)
	b := s.submission(limit("x", 1), full(belay.ReplaceWhenFull))
	s.settled(b)
	if e := s.row(a); e.CancelBy == 0 {
		t.Errorf("the oldest goes on: %+v", *e)
	}
	c := s.submission(limit("x", 1), full(belay.ReplaceWhenFull))
	s.settled(c)
	if e := s.row(b.ID); e.State != belay.Cancelled {
		t.Errorf("the one that waited goes on: %+v", *e)
	}
	s.settled(s.settle(l, belay.OutcomeCancelled))
	if won := executionsOf(s.all(w)); cmp.Diff([]belay.ExecutionID{c.ID}, won) != "" {
		t.Errorf("won %v, want %s", won, c.ID)
	}
}

// Rule: the oldest execution of a limit is replaced, also if it was reopened earlier in the same batch.
func TestAReopenedExecutionIsReplacedFirst(t *testing.T) {
	s := newStage(t)
	oldest := s.submit(limit("x", 2))
	s.settled(s.act(oldest, belay.ActionCancel))
	second := s.submit(limit("x", 2))
	_, replies := s.batch(s.act(oldest, belay.ActionRetry),
		s.submission(limit("x", 2), full(belay.ReplaceWhenFull)))
	for _, r := range replies {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		for _, c := range r.Follow {
			s.settled(c)
		}
	}
	if a, b := s.row(oldest), s.row(second); a.State != belay.Cancelled || b.State != belay.Pending {
		t.Errorf("the oldest is %s, and the second is %s", a.State, b.State)
	}
}

// Rule: a limit whose name has the maximal length can replace executions too. The reason of the
// cancel contains the name, so it is cut to the maximal length of reasons, between two characters.
func TestALimitWithALongNameReplaces(t *testing.T) {
	for _, name := range []string{strings.Repeat("n", belay.MaxName), "x" + strings.Repeat("€", belay.MaxName/3)} {
		s := newStage(t)
		first := s.submit(limit(name, 1))
		s.settled(s.submission(limit(name, 1), full(belay.ReplaceWhenFull)))
		if e := s.row(first); e.State != belay.Cancelled {
			t.Errorf("%q: the oldest is %s", name, e.State)
		}
	}
}

// Rule: a child cannot name a limit that one of its ancestors names, because the ancestor could
// then wait for a child that waits for the ancestor's place.
func TestAChildIsNotUnderTheLimitOfItsAncestor(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	root := s.run(w, limit("x", 5))
	child := s.submission(s.childOf(root, "c"))
	s.do(child)
	l := s.win(w)
	s.refused(s.submission(s.childOf(l, "d"), limit("x", 5)), belay.CodeConflict)
	s.submit(s.childOf(l, "d"), limit("y", 5))
}

// Rule: if a gate has let an execution through and no worker claims it in time, the execution loses
// its place and stays due. The time for which it waited at the gate does not count towards its
// start timeout.
func TestAPlaceThatNoRunUsesIsGivenBack(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	l := s.run(w, limit("x", 1))
	waits := s.submit(limit("x", 1), policy(belay.Policy{StartTimeout: within(10 * time.Second)}))
	s.all(w)
	s.pass(time.Minute)
	s.do(&Tick{Execution: waits})
	s.settled(s.settle(l, belay.OutcomeSucceeded))
	e := s.row(waits)
	if e.Gate != "" || e.Places != PlaceLimit || e.AdmitBy != s.now.Add(admitFor) || e.CheckAt != e.AdmitBy {
		t.Fatalf("it was not let through: %+v", *e)
	}
	s.pass(admitFor)
	s.do(&Tick{Execution: waits})
	e = s.row(waits)
	if e.Places != 0 || e.State != belay.Pending || e.Ready() == 0 || e.CheckAt != s.now.Add(8*time.Second) {
		t.Fatalf("its place was not taken back: %+v", *e)
	}
	if won := s.all(w); len(won) != 1 {
		t.Errorf("won %v", won)
	}
}

// Rule: a paused or cancelled execution no longer waits at its gate, and gives back a place that no
// run has used. A resumed execution needs a place again.
func TestAPausedExecutionLeavesTheLine(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	l := s.run(w, limit("x", 1))
	a, b := s.submit(limit("x", 1)), s.submit(limit("x", 1))
	s.all(w)
	s.settled(s.act(a, belay.ActionPause))
	s.settled(s.settle(l, belay.OutcomeSucceeded))
	if e := s.row(b); e.Places != PlaceLimit {
		t.Fatalf("it was not let through: %+v", *e)
	}
	s.settled(s.act(b, belay.ActionPause))
	s.settled(s.act(a, belay.ActionResume))
	if won := executionsOf(s.all(w)); cmp.Diff([]belay.ExecutionID{a}, won) != "" {
		t.Errorf("won %v, want %s", won, a)
	}
	s.settled(s.act(b, belay.ActionResume))
	if won := s.all(w); len(won) > 0 || s.row(b).Gate == "" {
		t.Errorf("won %v, and it stands so: %+v", won, *s.row(b))
	}
}

// Rule: in any duration d a rate lets at most max + max·d/per runs start. The other executions wait
// and start when tokens come.
func TestARateLetsRunsStartAtItsPace(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	for range 30 {
		s.submit(rate("api", 5, time.Second))
	}
	var begun []Time
	for range 40 {
		s.sweepGates()
		for range s.all(w) {
			begun = append(begun, s.now)
		}
		s.pass(100 * time.Millisecond)
	}
	if len(begun) < 23 {
		t.Errorf("%d runs began in four seconds", len(begun))
	}
	for i, from := range begun {
		for j := i; j < len(begun); j++ {
			if most := 5 + int(5*begun[j].Sub(from)/time.Second); j-i+1 > most {
				t.Fatalf("%d runs began within %s", j-i+1, begun[j].Sub(from))
			}
		}
	}
}

// Rule: a run takes the token of its rate when it starts. An execution that the gate has let through
// and that no worker claims in time loses no token.
func TestATokenIsTakenByTheRunThatStarts(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", ttl(time.Hour))
	for range 4 {
		s.submit(rate("api", 1, time.Second))
	}
	if won := s.all(w); len(won) != 1 {
		t.Fatalf("%d runs began at once", len(won))
	}
	for range 3 { // the gate lets one execution through, and no worker claims it
		s.pass(time.Second)
		s.sweepGates()
	}
	var begun int
	for range 3 {
		begun += len(s.all(w))
		s.sweepGates()
	}
	if begun != 1 {
		t.Errorf("%d runs began at the same time", begun)
	}
	g, err := ReadGate(s.objects[GateRef("rate:api")])
	if err != nil {
		t.Fatal(err)
	}
	if full := s.now.Add(time.Second); g.Rate.Full != full {
		t.Errorf("the bucket is full in %s", g.Rate.Full.Sub(s.now))
	}
}

// Rule: if the clock is set back by an hour, a rate lets the next run start after the time in which
// one token is added, and not only after the hour.
func TestARateWorksAfterTheClockIsSetBack(t *testing.T) {
	r := &Rate{Named: &Pace{5, belay.Duration(time.Second)}, Full: began.Add(time.Hour)}
	if n, next := r.tokens(began), r.next(began, 0); n != 0 || next != began.Add(200*time.Millisecond) {
		t.Errorf("%d tokens, the next at %s", n, next.Sub(began))
	}
	if n := r.tokens(began.Add(2 * time.Hour)); n != 5 {
		t.Errorf("%d tokens when it is full", n)
	}
}

// Rule: a rate was used up, and would have been full only after a long time, when an operator makes
// it faster. Then the next runs start at the new rate.
func TestARateThatBecomesFasterOpensSoon(t *testing.T) {
	for _, gate := range []belay.GateID{"rate:api", "queue:default", "workflow:job"} {
		s := newStage(t)
		w := s.worker("w", ttl(time.Hour))
		pace := func(n int, per time.Duration) {
			change := func(c *belay.GateChange) { c.Max, c.Per = n, belay.Duration(per) }
			s.settled(s.set(gate, belay.GateSetRate, change))
		}
		pace(2, 24*time.Hour)
		for range 6 {
			s.submit(func(b *belay.Submission) {
				if gate.Kind() == belay.GateRate {
					rate(gate.Name(), 1, time.Hour)(b)
				}
			})
		}
		if won := s.all(w); len(won) != 2 {
			t.Fatalf("%s: %d runs began", gate, len(won))
		}
		pace(1, time.Second)
		begun := 0
		for range 6 {
			s.pass(time.Second)
			s.sweepGates()
			begun += len(s.all(w))
		}
		if begun != 4 {
			t.Errorf("%s: %d of 4 began in six seconds", gate, begun)
		}
	}
}

// Rule: while an operator has paused a queue or a workflow, none of its executions starts or
// changes. They start when an operator ends the pause or its time is over.
func TestAPausedQueueStartsNothing(t *testing.T) {
	for _, gate := range []belay.GateID{"queue:default", "workflow:job"} {
		s := newStage(t)
		w := s.worker("w", ttl(time.Hour))
		s.do(s.set(gate, belay.GatePause))
		id := s.submit()
		r := s.do(s.claims(w, 5))
		if len(r.Claims) > 0 || len(r.Shut) != 1 || r.Shut[0].Gate != gate || r.Shut[0].Until != 0 {
			t.Fatalf("%s: won %v, shut %v", gate, won(r), r.Shut)
		}
		if e := s.row(id); e.Gate != "" || e.Ready() == 0 || e.Seq != 1 {
			t.Errorf("%s: it changed: %+v", gate, *e)
		}
		s.refused(&Schedule{id, w, belay.Secret{1}}, belay.CodeConflict)
		s.refused(s.lock(belay.WorkerID(s.id()), id), belay.CodeConflict)
		s.do(s.set(gate, belay.GateResume))
		l := s.win(w)
		s.do(s.set(gate, belay.GatePause, func(c *belay.GateChange) { c.Until = s.now.Add(time.Minute).Time() }))
		s.do(s.settle(l, belay.OutcomeReleased)) // a run that began before the pause may end
		if r := s.do(s.claims(w, 5)); len(r.Claims) > 0 || r.Shut[0].Until != s.now.Add(time.Minute) {
			t.Errorf("%s: won %v, shut %v", gate, won(r), r.Shut)
		}
		s.pass(time.Minute)
		s.win(w)
		s.sweepGates()
		if g, err := ReadGate(s.objects[GateRef(gate)]); err != nil || g.Pause != nil {
			t.Errorf("%s: the pause is there still: %+v, %v", gate, g.Pause, err)
		}
		for _, over := range []time.Time{s.now.Time(), time.Unix(0, 0), time.Unix(0, 999), time.Unix(-1e9, 0)} {
			s.refused(s.set(gate, belay.GatePause, func(c *belay.GateChange) { c.Until = over }), belay.CodeInvalid)
		}
	}
}

// Rule: an operator's limit on a queue or workflow limits runs: a run gives its place back when it
// ends. The limit does not count runs that began before it was set.
func TestALimitOfAWorkflowCountsRuns(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	before := s.run(w)
	gate := belay.GateID("workflow:job")
	two := func(c *belay.GateChange) { c.Max = 2 }
	s.do(s.set(gate, belay.GateSetLimit, two))
	for range 4 {
		s.submit()
	}
	leases := s.all(w)
	if len(leases) != 2 {
		t.Fatalf("%d runs began", len(leases))
	}
	s.do(s.settle(before, belay.OutcomeSucceeded)) // this run began before the limit was set, and has no place
	if won := s.all(w); len(won) > 0 {
		t.Fatalf("%d more began", len(won))
	}
	s.do(s.settle(leases[0], belay.OutcomeSuspended, func(c *belay.Settlement) { c.Wait = time.Hour }))
	if won := s.all(w); len(won) != 1 {
		t.Fatalf("%d began in the place of one", len(won))
	}
	s.do(s.set(gate, belay.GateUnsetLimit))
	if won := s.all(w); len(won) != 1 {
		t.Fatalf("%d began without a limit", len(won))
	}
}

// Rule: a limit or a pause that an operator sets applies to later claims of the same commit.
func TestAChangedGateCountsAtOnce(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	s.submit()
	s.submit()
	_, replies := s.batch(s.set("workflow:job", belay.GateSetLimit, func(c *belay.GateChange) { c.Max = 1 }),
		s.claims(w, 2))
	if n := len(replies[1].Claims); n != 1 {
		t.Errorf("%d runs began under a limit of 1", n)
	}
	_, replies = s.batch(s.set("queue:default", belay.GatePause), s.claims(s.worker("x"), 2))
	if n := len(replies[1].Claims); n != 0 {
		t.Errorf("%d runs began in a paused queue", n)
	}
}

// Rule: if an operator repeats a pause, for example after a lost reply, the gate keeps the time at
// which the first pause began.
func TestARepeatedPauseKeepsItsBeginning(t *testing.T) {
	s := newStage(t)
	pause := s.set("queue:default", belay.GatePause)
	s.do(pause)
	since := s.now
	s.pass(time.Minute)
	if r := s.do(pause); !r.Replayed {
		t.Errorf("the repetition is no repetition: %+v", r)
	}
	s.do(s.set("queue:default", belay.GatePause, func(c *belay.GateChange) { c.Reason = "another" }))
	if g, err := ReadGate(s.objects[GateRef("queue:default")]); err != nil || g.Pause.Since != since ||
		g.Pause.Reason != "another" {
		t.Errorf("it is paused as %+v, %v", g.Pause, err)
	}
}

// Rule: the audit says to which value an operator has set a limit or a rate, and until when a pause lasts.
func TestTheAuditHasTheValuesOfGates(t *testing.T) {
	s := newStage(t)
	until := s.now.Add(time.Hour).Time()
	for _, x := range []struct {
		change belay.GateChange
		want   string
	}{
		{belay.GateChange{Action: belay.GateSetLimit, Max: 5, Reason: "a slow database"}, "to 5: a slow database"},
		{belay.GateChange{Action: belay.GateSetRate, Max: 9, Per: belay.Duration(time.Minute)}, "to 9 per 1m0s"},
		{belay.GateChange{Action: belay.GatePause, Until: until, Reason: "why"},
			"until " + until.UTC().Format(time.RFC3339) + ": why"},
		{belay.GateChange{Action: belay.GatePause, Reason: "why"}, "why"},
		{belay.GateChange{Action: belay.GateUnsetLimit}, ""},
	} {
		s.do(s.set("queue:default", x.change.Action, func(c *belay.GateChange) {
			c.Max, c.Per, c.Until, c.Reason = x.change.Max, x.change.Per, x.change.Until, x.change.Reason
		}))
		if got := s.audit[len(s.audit)-1]; got.Action != string(x.change.Action) || got.Reason != x.want {
			t.Errorf("%s: %q, want %q", got.Action, got.Reason, x.want)
		}
	}
}

// Rule: a batch locks all its gates together, after its other rows. If a command's Need listed a
// gate in Objects, which are locked first, batches of two servers could deadlock.
func TestGatesAreLockedTogether(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	s.do(s.set("queue:default", belay.GateSetLimit, func(c *belay.GateChange) { c.Max = 5 }))
	id := s.submit(limit("x", 1), target("y"))
	need := NeedOf([]Command{
		s.submission(limit("z", 1)), s.claims(w, 1), &Schedule{id, w, belay.Secret{1}},
		s.lock(belay.WorkerID(s.id()), id),
		s.set("workflow:job", belay.GatePause), &Admit{Gate: "limit:a", Heads: 1}, &Outcome{Target: "b"},
	})
	if len(need.Objects) > 0 {
		t.Errorf("%v are locked first", need.Objects)
	}
	more := need.Further(s.load(&need))
	want := []belay.GateID{
		"limit:a", "limit:x", "limit:z", "queue:default", "target:b", "target:y", "workflow:job",
	}
	var objects []belay.GateID
	for _, o := range more.Objects {
		objects = append(objects, belay.GateID(o.Name))
	}
	slices.Sort(objects)
	slices.Sort(more.Counts)
	if !slices.Equal(objects, want) || !slices.Equal(more.Counts, want) {
		t.Errorf("locked together: %v; counted: %v; want %v", objects, more.Counts, want)
	}
}

// Rule: if an operator's change is repeated because its reply was lost, the repetition does not
// undo a later change by another operator. An operation id cannot belong to two different changes.
func TestARepeatedChangeOfAGateDoesNotUndoALaterOne(t *testing.T) {
	s := newStage(t)
	pause := s.set("queue:default", belay.GatePause)
	s.do(pause)
	s.do(s.set("queue:default", belay.GateResume))
	if r := s.do(pause); !r.Replayed {
		t.Errorf("the repetition is none: %+v", r)
	}
	g, err := ReadGate(s.objects[GateRef("queue:default")])
	if err != nil || g.Pause != nil {
		t.Errorf("it is paused again: %+v, %v", g, err)
	}
	other := s.set("queue:default", belay.GateSetLimit, func(c *belay.GateChange) { c.Max, c.Op = 5, pause.Op })
	s.refused(other, belay.CodeIdempotencyMismatch)
	for n := range 2 * maxDone {
		s.do(s.set("queue:default", belay.GateSetLimit, func(c *belay.GateChange) { c.Max = n + 1 }))
	}
	if g, err = ReadGate(s.objects[GateRef("queue:default")]); err != nil || len(g.Done) != maxDone ||
		g.Done[maxDone-1].Max != 2*maxDone {
		t.Errorf("it remembers %+v, %v", g.Done, err)
	}
}

// The reason for which a gate is shut is a sentence for people: with the right number, and without words of the code.
func TestWordsOfAShutGate(t *testing.T) {
	for want, g := range map[string]*gate{
		"its only place is taken":          {Gate: Gate{Limit: &Limit{Named: 1}}, held: 1},
		"all of its 2 places are taken":    {Gate: Gate{Limit: &Limit{Named: 2}}, held: 2},
		"its circuit breaker is half open": {Gate: Gate{Breaker: &Breaker{State: BreakerHalfOpen}}},
	} {
		if got, _ := g.shut(1); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
