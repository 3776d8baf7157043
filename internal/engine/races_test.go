package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// rounds is the number of rounds of each race. All rounds run at the same time, each with a
// different timing.
const rounds = 60

// race runs all rounds of a race at the same time.
func race(round func(n int)) {
	var all sync.WaitGroup
	for n := range rounds {
		all.Go(func() { round(n) })
	}
	all.Wait()
}

// tally counts how often each side has won a race.
type tally struct {
	mu            sync.Mutex
	first, second int
}

func (y *tally) count(first bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if first {
		y.first++
	} else {
		y.second++
	}
}

// until repeats a race until each side has won at least once. On a busy machine this may take
// several repetitions.
func (y *tally) until(t *testing.T, round func(n int)) {
	t.Helper()
	for range 10 {
		race(round)
		if y.first > 0 && y.second > 0 {
			t.Logf("%d to %d", y.first, y.second)
			return
		}
	}
	t.Errorf("%d to %d: there was no race", y.first, y.second)
}

// label is the name of a workflow that only one round uses.
func label(name string, n int) string { return fmt.Sprint(name, " ", n) }

// at waits until the given time.
func at(moment time.Time) { <-time.After(time.Until(moment)) }

// session reads a session.
func (x server) session(t testing.TB, id belay.WorkerID) belay.Worker {
	t.Helper()
	all, err := x.Workers(t.Context())
	if err != nil {
		t.Error(err)
	}
	i := slices.IndexFunc(all, func(w belay.Worker) bool { return w.ID == id })
	if i < 0 {
		t.Errorf("there is no session %s", id)
		return belay.Worker{}
	}
	return all[i]
}

// ended waits until a session has ended, and reads it. A session that has expired may claim
// nothing, but counts as open until the reaper has ended it.
func (x server) ended(t testing.TB, id belay.WorkerID) belay.Worker {
	t.Helper()
	for {
		if s := x.session(t, id); s.State.Ended() || t.Failed() || t.Context().Err() != nil {
			return s
		}
		at(time.Now().Add(10 * time.Millisecond))
	}
}

// history checks that the tokens of an execution rise with each run (guarantee G1), and returns the
// runs, oldest first.
func (x server) history(t testing.TB, id belay.ExecutionID) []belay.RunRecord {
	t.Helper()
	runs, err := x.Runs(t.Context(), id)
	if err != nil {
		t.Error(err)
	}
	slices.Reverse(runs)
	for i := 1; i < len(runs); i++ {
		if runs[i].Token <= runs[i-1].Token {
			t.Errorf("token %d after %d", runs[i].Token, runs[i-1].Token)
		}
	}
	return runs
}

// A claim at one server races the reaper of another server, which ends the claim's session. If the
// claim is committed first, its run has begun before the end of the session, and is lost with the
// session. If the end of the session is committed first, the claim wins nothing. In both cases
// another worker runs the execution.
func TestRaceOfAClaimAndTheReaper(t *testing.T) {
	a, b := two(t)
	var wins tally
	wins.until(t, func(n int) {
		const ttl = time.Second
		name := label("x", n)
		opened := time.Now()
		w := a.open(t, "w", name, ttl)
		out, err := a.Submit(t.Context(), belay.Submission{Workflow: name, DueAt: opened.Add(ttl / 2)})
		if err != nil {
			t.Error(err)
			return
		}
		at(opened.Add(ttl + time.Duration(n-20)*time.Millisecond))
		r, err := b.Claim(t.Context(), belay.ClaimRequest{Worker: w, Number: 1, Slots: 1})
		switch {
		case err != nil && belay.CodeOf(err) != belay.CodeLeaseLost:
			t.Errorf("the claim: %v", err)
			return
		case err == nil && len(r.Assignments) == 0 && !r.Attention:
			t.Error("an open session won nothing though something was due")
		}
		wins.count(len(r.Assignments) > 0)
		other := b.open(t, "other", name, time.Minute)
		won := a.won(t, other, 1)
		a.settle(t, won)
		s := a.ended(t, w)
		if s.State != belay.WorkerLost {
			t.Errorf("the session is %s", s.State)
		}
		for _, run := range a.history(t, out[0].ID) {
			if run.Worker == w && (run.Outcome != belay.OutcomeLost || run.StartedAt.After(s.EndedAt)) {
				t.Errorf("a session that ended at %s has a run that began at %s and is %s", s.EndedAt, run.StartedAt,
					run.Outcome)
			}
		}
	})
}

// A heartbeat that arrives at the moment at which its session expires has one of two results: it
// renews the session, which keeps all its runs, or it is refused, and all runs of the session are
// lost.
func TestRaceOfALateHeartbeatAndTheReaper(t *testing.T) {
	a, b := two(t)
	var wins tally
	wins.until(t, func(n int) {
		const ttl = time.Second
		name := label("x", n)
		a.submit(t, name)
		opened := time.Now()
		w := a.open(t, "w", name, ttl)
		r, err := a.Claim(t.Context(), belay.ClaimRequest{Worker: w, Number: 1, Slots: 1})
		if belay.CodeOf(err) == belay.CodeLeaseLost {
			return // on a busy machine the session's time is already over
		}
		if err != nil || len(r.Assignments) != 1 {
			t.Errorf("claimed %+v, %v", r, err)
			return
		}
		lease := r.Assignments[0].Lease // the claim may win an execution of an earlier round
		at(opened.Add(ttl + time.Duration(n-20)*time.Millisecond))
		beat, err := b.Heartbeat(t.Context(), belay.Heartbeat{
			Worker: w, ClaimSeen: 1, Holds: []belay.Held{{Execution: lease.Execution, Token: lease.Token}},
		})
		save := func() error {
			_, err := a.Save(t.Context(), belay.Save{
				Lease: lease, Op: belay.OpID(lease.Secret), Kind: belay.KindStep, Key: "s",
			})
			return err
		}
		wins.count(err == nil)
		switch {
		case err == nil:
			if len(beat.Revoked) > 0 {
				t.Errorf("renewed, and revoked %v", beat.Revoked)
			}
			if err := save(); err != nil {
				t.Errorf("renewed, and the lease does not hold: %v", err)
			}
		case belay.CodeOf(err) == belay.CodeLeaseLost:
			if err := save(); belay.CodeOf(err) != belay.CodeLeaseLost {
				t.Errorf("lost, and a write of its lease got %v", err)
			}
		default:
			t.Errorf("the heartbeat: %v", err)
		}
	})
}

// A drain at one server races claims at another: a claim that is sent after the answer to the drain
// wins nothing (guarantee G11).
func TestRaceOfADrainAndClaims(t *testing.T) {
	a, b := two(t)
	for range 10 {
		a.submit(t, "x")
	}
	race(func(n int) {
		w := a.open(t, "w", "x", time.Minute)
		for range 3 {
			a.submit(t, "x")
		}
		var drained sync.WaitGroup
		drained.Go(func() {
			at(time.Now().Add(time.Duration(n) * 100 * time.Microsecond))
			if err := a.Drain(t.Context(), w); err != nil {
				t.Error(err)
			}
		})
		done := make(chan struct{})
		go func() {
			drained.Wait()
			close(done)
		}()
		for number := int64(1); ; {
			after := false
			select {
			case <-done:
				after = true
			default:
			}
			r, err := b.Claim(t.Context(), belay.ClaimRequest{Worker: w, Number: number, Slots: 1})
			if err != nil {
				t.Error(err)
				return
			}
			if after && len(r.Assignments) > 0 {
				t.Error("a claim won something after the drain")
			}
			for _, won := range r.Assignments {
				number++
				b.settle(t, won)
			}
			if after {
				break
			}
		}
		if err := b.CloseWorker(t.Context(), w); err != nil {
			t.Error(err)
		}
		if s := a.session(t, w); s.State != belay.WorkerDrained || s.Running != 0 {
			t.Errorf("the session is %s and owns %d", s.State, s.Running)
		}
	})
}

// Batches of two servers that name the same executions in any order wait for each other without a
// deadlock.
func TestRaceOfBatchesWithOverlappingExecutions(t *testing.T) {
	a, b := two(t)
	const many = 100
	s := make([]belay.Submission, many)
	for i := range s {
		s[i].Workflow = "x"
	}
	out, err := a.Submit(t.Context(), s...)
	if err != nil {
		t.Fatal(err)
	}
	const each = 8
	var all sync.WaitGroup
	for i := range each {
		for _, x := range []server{a, b} {
			order := rand.New(rand.NewPCG(1, uint64(i))).Perm(many)
			for _, at := range order {
				all.Go(func() {
					if err := x.Signal(t.Context(), belay.SignalRequest{Execution: out[at].ID, Name: "s"}); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	all.Wait()
	for _, o := range out {
		events, err := a.Events(t.Context(), belay.EventQuery{Execution: o.ID})
		if err != nil || len(events) != 1+2*each {
			t.Errorf("%d events, %v", len(events), err)
		}
	}
	deadlocks, err := pgtest.Shared(t).Query(nameOf(a.url),
		"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
	if err != nil || deadlocks != "0" {
		t.Errorf("deadlocks: %s, %v", deadlocks, err)
	}
}

// If two children of one parent end at two servers at the same time, both are counted, and the
// parent is woken exactly once.
func TestRaceOfTwoChildrenOfOneParent(t *testing.T) {
	a, b := two(t)
	race(func(n int) {
		parents, children := a.open(t, "p", label("parent", n), time.Minute), b.open(t, "c", label("child", n),
			time.Minute)
		id := a.submit(t, label("parent", n))
		p := a.won(t, parents, 1)
		var wons []belay.Assignment
		for i, key := range []string{"one", "two"} {
			out, err := a.Submit(t.Context(), belay.Submission{
				ID: belay.ChildID(id, p.Generation, key), Workflow: label("child", n), Parent: &p.Lease, ParentKey: key,
			})
			if err != nil || out[0].Err != nil {
				t.Error(err, out)
				return
			}
			wons = append(wons, b.won(t, children, int64(i+1)))
		}
		if err := a.Settle(t.Context(), belay.Settlement{Lease: p.Lease, Op: belay.OpID(p.Lease.Secret),
			Outcome: belay.OutcomeSuspended}); err != nil {
			t.Error(err)
			return
		}
		var both sync.WaitGroup
		for i, x := range []server{a, b} {
			both.Go(func() { x.settle(t, wons[i]) })
		}
		both.Wait()
		a.settle(t, a.won(t, parents, 2))
		if runs := b.history(t, id); len(runs) != 2 {
			t.Errorf("the parent ran %d times", len(runs))
		}
		var kinds []string
		events, err := b.Events(t.Context(), belay.EventQuery{Execution: id})
		for i, e := range events {
			if e.Seq != int64(i+1) {
				t.Errorf("event %d has seq %d", i+1, e.Seq)
			}
			kinds = append(kinds, e.Kind)
		}
		slices.Sort(kinds)
		if want := []string{"child", "child", "started", "started", "submitted", "succeeded",
			"suspended"}; err != nil || !slices.Equal(kinds, want) {
			t.Errorf("the parent's history is %v (%v)", kinds, err)
		}
	})
}
