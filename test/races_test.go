package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// arena is an engine on SQLite and one worker session, whose requests the tests make one by one.
type arena struct {
	t    *testing.T
	p    *place
	b    *embedded.Backend
	rand *rand.Rand

	worker belay.WorkerID
	claims int64
	queue  string
}

func newArena(t *testing.T, r *rand.Rand) *arena {
	t.Helper()
	p := newPlace(t)
	b, err := embedded.Open(t.Context(), "sqlite:"+p.data, embedded.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	a := &arena{t: t, p: p, b: b, rand: r, queue: "arena"}
	s, err := b.OpenWorker(t.Context(), belay.WorkerSpec{
		Name: "arena", Queues: []string{a.queue}, Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 10,
		TTL: belay.Duration(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	a.worker = s.ID
	return a
}

// op returns a new operation id.
func (a *arena) op() belay.OpID { return belay.OpID(embedded.NewID()) }

func (a *arena) submit() belay.ExecutionID {
	a.t.Helper()
	return a.submission(belay.Submission{Workflow: "w", Queue: a.queue})
}

func (a *arena) submission(s belay.Submission) belay.ExecutionID {
	a.t.Helper()
	out, err := a.b.Submit(a.t.Context(), s)
	if err != nil || out[0].Err != nil {
		a.t.Fatal(err, out)
	}
	return out[0].ID
}

// claim sends a claim with the next claim number.
func (a *arena) claim(wait time.Duration) ([]belay.Assignment, error) {
	a.claims++
	r, err := a.b.Claim(a.t.Context(), belay.ClaimRequest{Worker: a.worker, Number: a.claims, Slots: 10, Wait: wait})
	return r.Assignments, err
}

// won claims an execution, and fails the test if the claim does not return it.
func (a *arena) won(id belay.ExecutionID) belay.Assignment {
	a.t.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		// a claim may return early without an execution, because a message waits for the worker
		got, err := a.claim(time.Second)
		if err != nil {
			a.t.Fatalf("claim %s: %v\n%s", id, err, a.history(id))
		}
		if len(got) == 1 && got[0].Lease.Execution == id {
			return got[0]
		}
		if len(got) > 0 {
			a.t.Fatalf("claimed %+v, want %s", got, id)
		}
		a.beat(a.claims)
	}
	a.t.Fatalf("%s cannot be claimed\n%s", id, a.history(id))
	return belay.Assignment{}
}

// beat sends a heartbeat of the worker.
func (a *arena) beat(seen int64, holds ...belay.Lease) belay.HeartbeatReply {
	a.t.Helper()
	h := belay.Heartbeat{Worker: a.worker, ClaimSeen: seen}
	for _, l := range holds {
		h.Holds = append(h.Holds, belay.Held{Execution: l.Execution, Token: l.Token})
	}
	r, err := a.b.Heartbeat(a.t.Context(), h)
	if err != nil {
		a.t.Fatalf("heartbeat: %v", err)
	}
	return r
}

func (a *arena) settle(l belay.Lease, o belay.Outcome) error {
	return a.b.Settle(a.t.Context(), belay.Settlement{Lease: l, Op: a.op(), Outcome: o})
}

func (a *arena) control(id belay.ExecutionID, action belay.Action) error {
	_, err := a.b.Control(a.t.Context(), belay.Control{Execution: id, Action: action, Actor: "test", Op: a.op()})
	return err
}

// ends completes a run as succeeded and checks that the execution has succeeded.
func (a *arena) ends(l belay.Lease) {
	a.t.Helper()
	if err := a.settle(l, belay.OutcomeSucceeded); err != nil {
		a.t.Fatalf("settle: %v\n%s", err, a.history(l.Execution))
	}
	a.is(l.Execution, belay.Succeeded)
}

// is checks that an execution has one of the given states, and returns its state.
func (a *arena) is(id belay.ExecutionID, states ...belay.State) belay.State {
	a.t.Helper()
	e, err := a.b.Execution(a.t.Context(), id)
	if err != nil {
		a.t.Fatal(err)
	}
	if !slices.Contains(states, e.State) {
		a.t.Fatalf("%s is %s, want %s\n%s", id, e.State, states, a.history(id))
	}
	return e.State
}

func (a *arena) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *arena) history(id belay.ExecutionID) string { return show(events(a.t, a.b, id)) }

// first returns the kind of event that came first in a history.
func (a *arena) first(id belay.ExecutionID, kinds ...string) string {
	a.t.Helper()
	for _, ev := range events(a.t, a.b, id) {
		if slices.Contains(kinds, ev.Kind) {
			return ev.Kind
		}
	}
	a.t.Fatalf("none of %s\n%s", kinds, a.history(id))
	return ""
}

// together makes two calls at the same time, with a random delay of up to 50 microseconds before
// one of them.
func (a *arena) together(one, other func()) {
	late := [2]time.Duration{}
	late[a.rand.IntN(2)] = between(a.rand, 0, 50*time.Microsecond)
	start := make(chan struct{})
	var both sync.WaitGroup
	calls := []func(){one, other}
	a.rand.Shuffle(2, func(i, k int) { calls[i], calls[k] = calls[k], calls[i] })
	for i, f := range calls {
		both.Go(func() {
			<-start
			spin(late[i])
			f()
		})
	}
	close(start)
	both.Wait()
}

// spin waits actively for a time that is too short for any timer.
func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

// race is two calls at the same time. A round makes both calls, checks that the execution has one
// of the allowed states afterwards, and returns the kind of event that came first.
type race struct {
	name  string
	round func(a *arena) string
}

// Rule: whichever of two simultaneous calls the engine carries out first, an execution that must
// continue does continue, and an execution that has ended stays ended (guarantees G4, G5 and G7).
// The test repeats each race on SQLite until both orders have happened.
func TestRaces(t *testing.T) {
	t.Parallel()
	r := dice(t)
	least, most := 60, 2000
	if *long {
		least = 1000
	}
	for _, x := range races {
		source := rand.New(rand.NewPCG(r.Uint64(), 0))
		t.Run(strings.ReplaceAll(x.name, " ", "-"), func(t *testing.T) {
			a := newArena(t, source)
			seen := make(map[string]int)
			for i := 0; i < least || i < most && len(seen) < 2; i++ {
				seen[x.round(a)]++
			}
			t.Logf("%s came first: %v", x.name, seen)
			if len(seen) < 2 {
				t.Errorf("INCONCLUSIVE: only %v ever came first", seen)
			}
			a.over()
		})
	}
}

// over checks that every execution has ended and that every history is well formed.
func (a *arena) over() {
	a.t.Helper()
	a.must(a.b.CloseWorker(a.t.Context(), a.worker))
	cursor := ""
	for {
		page, err := a.b.Executions(a.t.Context(), belay.Filter{Children: true, Limit: 1000, Cursor: cursor})
		a.must(err)
		for _, e := range page.Executions {
			wellFormed(a.t, events(a.t, a.b, e.ID))
			if !e.State.Terminal() {
				a.t.Errorf("G5: %s is still %s\n%s", e.ID, e.State, a.history(e.ID))
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	a.must(a.b.Close())
	r := a.p.reader()
	defer r.Close()
	overdue, err := r.Overdue(a.t.Context())
	if err != nil || overdue != 0 {
		a.t.Errorf("G5: %d entries are overdue, %v", overdue, err)
	}
}

var races = []race{
	{"signal against suspend", func(a *arena) string {
		id := a.submit()
		run := a.won(id)
		payload := json.RawMessage(fmt.Sprintf(`{"n":%d}`, a.rand.IntN(1000)))
		var signalled, suspended error
		a.together(
			func() {
				signalled = a.b.Signal(a.t.Context(), belay.SignalRequest{
					Execution: id, Name: "go", Payload: payload, Op: a.op(),
				})
			},
			func() { suspended = a.suspend(run) },
		)
		a.must(signalled)
		a.must(suspended)
		again := a.won(id) // the execution is claimable at once, in either order of the two calls
		if len(again.Signals) != 1 || again.Signals[0].Name != "go" ||
			string(again.Signals[0].Payload) != string(payload) {
			a.t.Fatalf("the signal is lost: %+v\n%s", again.Signals, a.history(id))
		}
		_, err := a.b.Save(a.t.Context(), belay.Save{
			Lease: again.Lease, Op: a.op(), Kind: belay.KindWait, Key: "go", Consumes: again.Signals[0].Seq,
		})
		a.must(err)
		a.ends(again.Lease)
		return a.first(id, "signal", "suspended")
	}},

	{"child end against suspend", func(a *arena) string {
		id := a.submit()
		run := a.won(id)
		kid := belay.ChildID(id, run.Generation, "kid")
		a.submission(belay.Submission{ID: kid, Workflow: "w", Queue: a.queue, Parent: &run.Lease, ParentKey: "kid"})
		child := a.won(kid)
		var ended, suspended error
		a.together(
			func() { ended = a.settle(child.Lease, belay.OutcomeSucceeded) },
			func() { suspended = a.suspend(run) },
		)
		a.must(ended)
		a.must(suspended)
		again := a.won(id)
		if len(again.Signals) != 1 || again.Signals[0].Child != kid {
			a.t.Fatalf("the child's end is lost: %+v\n%s", again.Signals, a.history(id))
		}
		a.ends(again.Lease)
		return a.first(id, "child", "suspended")
	}},

	{"cancel against complete", func(a *arena) string {
		id := a.submit()
		run := a.won(id)
		var cancelled, completed error
		a.together(
			func() { cancelled = a.control(id, belay.ActionCancel) },
			func() { completed = a.settle(run.Lease, belay.OutcomeSucceeded) },
		)
		a.must(completed) // the owner may still end the run, since the grace period of the cancel has not passed
		if a.is(id, belay.Succeeded, belay.Cancelled) == belay.Succeeded {
			if belay.CodeOf(cancelled) != belay.CodeConflict {
				a.t.Fatalf("G7: the execution had succeeded and the cancel returned %v\n%s", cancelled, a.history(id))
			}
			return "complete"
		}
		a.must(cancelled)
		return "cancel"
	}},

	{"pause against claim", func(a *arena) string {
		id := a.submit()
		var got []belay.Assignment
		var paused, claimed error
		a.together(
			func() { paused = a.control(id, belay.ActionPause) },
			func() { got, claimed = a.claim(time.Millisecond) },
		)
		a.must(paused)
		a.must(claimed)
		first := "pause"
		if len(got) == 1 {
			first = "claim"
			if r := a.beat(a.claims, got[0].Lease); len(r.Pause) != 1 {
				a.t.Fatalf("the owner did not learn of the pause: %+v\n%s", r, a.history(id))
			}
			a.must(a.settle(got[0].Lease, belay.OutcomeReleased))
		}
		a.is(id, belay.Paused)
		a.must(a.control(id, belay.ActionResume))
		a.ends(a.won(id).Lease)
		return first
	}},

	{"heartbeat that gave up against claim", func(a *arena) string {
		id := a.submit()
		number := a.claims + 1
		var got []belay.Assignment
		var refused error
		a.together(
			func() { got, refused = a.claim(time.Second) },
			func() { a.beat(number) }, // a worker that waited too long for the claim's reply sends such a heartbeat
		)
		again := a.won(id) // the execution is claimable at once, in either order of the two calls
		if len(got) == 0 {
			if refused != nil && belay.CodeOf(refused) != belay.CodeConflict {
				a.t.Fatalf("the claim returned %v", refused)
			}
			a.ends(again.Lease)
			return "heartbeat"
		}
		if again.Lease.Token <= got[0].Lease.Token {
			a.t.Fatalf("G1: token %d after %d", again.Lease.Token, got[0].Lease.Token)
		}
		if err := a.settle(got[0].Lease, belay.OutcomeSucceeded); belay.CodeOf(err) != belay.CodeLeaseLost {
			a.t.Fatalf("G2: the lost run was settled: %v\n%s", err, a.history(id))
		}
		a.ends(again.Lease)
		return "claim"
	}},

	{"heartbeat that has not seen the reply against claim", func(a *arena) string {
		id := a.submit()
		seen := a.claims
		var got []belay.Assignment
		var refused error
		var beaten time.Time
		var won time.Time
		a.together(
			func() { got, refused = a.claim(time.Millisecond); won = time.Now() },
			func() { a.beat(seen); beaten = time.Now() },
		)
		a.must(refused)
		if len(got) == 0 {
			got = []belay.Assignment{a.won(id)}
		}
		for range 2 {
			if r := a.beat(a.claims, got[0].Lease); len(r.Revoked) != 0 {
				a.t.Fatalf("the heartbeat took away the new claim: %+v\n%s", r, a.history(id))
			}
		}
		a.ends(got[0].Lease)
		if n := count(events(a.t, a.b, id), "started"); n != 1 {
			a.t.Fatalf("claimed %d times\n%s", n, a.history(id))
		}
		if won.Before(beaten) {
			return "claim"
		}
		return "heartbeat"
	}},
}

// suspend ends a run so that the execution waits for a signal or a child.
func (a *arena) suspend(run belay.Assignment) error {
	return a.b.Settle(a.t.Context(), belay.Settlement{
		Lease: run.Lease, Op: a.op(), Outcome: belay.OutcomeSuspended, SignalSeen: run.SignalSeq, WaitText: "the race",
	})
}
