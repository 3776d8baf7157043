package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/bulk/runner"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/worker"
)

var long = flag.Bool("long", false, "ten times as many dead letters")

var quiet = slog.New(slog.DiscardHandler)

// order is the input of the workflow "charge". The workflow fails without a retry if Bad is set, except if Not is the
// number of the order.
type order struct {
	N   int  `json:"n"`
	Bad bool `json:"bad,omitempty"`
	Not int  `json:"not,omitempty"`
}

// env is an engine in virtual time, with a worker for the workflow "charge".
type env struct {
	*testing.T
	*engine.Engine
	mu   sync.Mutex
	runs map[int]int // the number of runs for each order, by the number of the order
}

// in runs a test in virtual time.
func in(t *testing.T, test func(e *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &env{T: t, Engine: engine.New(memory.New(time.Now), engine.Options{Log: quiet}), runs: make(map[int]int)}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		e.hire(e, "default", func(w *worker.Worker) { worker.Register(w, "charge", e.charge) })
		test(e)
	})
}

func (e *env) charge(_ context.Context, o order) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs[o.N]++
	if o.Bad && o.Not != o.N {
		return 0, belay.Permanent(fmt.Errorf("order %d has no address", o.N))
	}
	return o.N, nil
}

// ran is the number of runs of the workflow "charge".
func (e *env) ran() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, times := range e.runs {
		n += times
	}
	return n
}

// hire starts a worker, and stops it at the end of the test.
func (e *env) hire(b belay.Backend, queue string, register func(*worker.Worker)) {
	w := worker.New(b, worker.Options{Concurrency: 100, Queues: []string{queue}, Log: quiet, Clock: clock(time.Now()),
		Grace: -1})
	register(w)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx)
	}()
	e.Cleanup(func() {
		stop()
		<-done
	})
}

type clock time.Time

func (c clock) Boottime() time.Duration { return time.Since(time.Time(c)) }

// serve starts a worker for bulks, whose calls go to b.
func (e *env) serve(b belay.Backend) {
	e.hire(b, belay.BulkWorkflow, func(w *worker.Worker) {
		worker.Register(w, belay.BulkWorkflow, (&runner.Runner{Backend: b}).Run)
	})
}

// broken submits n orders, and waits until all have failed. The first order has the number 1.
func (e *env) broken(n int) []belay.ExecutionID {
	e.Helper()
	ids := make([]belay.ExecutionID, n)
	for i := range ids {
		input, err := json.Marshal(order{N: i + 1, Bad: true})
		e.must(err)
		out, err := e.Submit(e.Context(), belay.Submission{Workflow: "charge", Input: input})
		e.must(err)
		ids[i] = out[0].ID
		time.Sleep(time.Millisecond)
	}
	for i, id := range ids {
		if x := e.end(id); x.State != belay.Failed {
			e.Fatalf("order %d: %s", i+1, x.State)
		}
	}
	return ids
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// end waits for the end of an execution.
func (e *env) end(id belay.ExecutionID) belay.Execution {
	e.Helper()
	x, err := e.Await(e.Context(), id, 6*time.Hour)
	e.must(err)
	return x
}

// begin starts a bulk.
func (e *env) begin(b belay.Bulk) belay.ExecutionID {
	e.Helper()
	reply, err := e.Bulk(e.Context(), b)
	e.must(err)
	return reply.Execution.ID
}

// progress waits for the end of a bulk, and returns its state and its output.
func (e *env) progress(id belay.ExecutionID, want belay.State) (x belay.Execution, p belay.BulkProgress) {
	e.Helper()
	x = e.end(id)
	if x.State != want {
		e.Fatalf("the bulk is %s, want %s: %+v", x.State, want, x.Error)
	}
	if len(x.Output) > 0 {
		e.must(json.Unmarshal(x.Output, &p))
	}
	return x, p
}

// saved is the newest state of a bulk.
func (e *env) saved(id belay.ExecutionID) (p belay.BulkProgress) {
	e.Helper()
	events, err := e.Events(e.Context(), belay.EventQuery{Execution: id, Data: true})
	e.must(err)
	for _, ev := range events {
		if ev.Kind == "state" && len(ev.Data) > 0 {
			p = belay.BulkProgress{}
			e.must(json.Unmarshal(ev.Data, &p))
		}
	}
	return p
}

// letters counts the dead letters of a resolution.
func (e *env) letters(resolution string) int {
	e.Helper()
	page, err := e.DeadLetters(e.Context(), belay.DeadLetterFilter{Resolution: resolution, Limit: 1000})
	e.must(err)
	return len(page.DeadLetters)
}

// reopened checks that each execution has been reopened once.
func (e *env) reopened(ids []belay.ExecutionID) {
	e.Helper()
	for i, id := range ids {
		x, err := e.Execution(e.Context(), id)
		e.must(err)
		if x.Generation != 2 {
			e.Errorf("order %d has generation %d", i+1, x.Generation)
		}
	}
}

func charges(action belay.BulkAction) belay.Bulk {
	return belay.Bulk{Action: action, Filter: belay.BulkFilter{Workflow: "charge"}, Actor: "ann", Notes: "no address"}
}

func fix(patch string) belay.Bulk {
	b := charges(belay.BulkRequeue)
	b.InputPatch = json.RawMessage(patch)
	return b
}

// A bulk with a bad fix stops at the canary: after one run, or after eleven if the first one succeeds.
func TestABadFixStopsAtTheCanary(t *testing.T) {
	n := 500 // the number of dead letters of a bulk
	if *long {
		n = 5000
	}
	for name, c := range map[string]struct {
		patch  string
		runs   int
		failed string
	}{
		"at the first stage":  {`{"bad": true}`, 1, "stopped at the canary: 1 of 1 failed, and at most 10 % may fail"},
		"at the second stage": {fmt.Sprintf(`{"not": %d}`, n), 11, "stopped at the canary: 10 of 11 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(e *env) {
				e.broken(n)
				e.serve(e)
				x, p := e.progress(e.begin(fix(c.patch)), belay.Failed)
				time.Sleep(time.Hour) // in this time, further executions that the bulk had reopened would run
				if got := e.ran() - n; got != c.runs || !strings.HasPrefix(x.Error.Message, c.failed) {
					e.Errorf("%d runs, %q", got, x.Error.Message)
				}
				if p.Stage != "stopped" || p.Selected != c.runs || p.Failed == 0 || p.Running != 0 {
					e.Errorf("%+v", p)
				}
				if got := e.letters(belay.ResolvedRequeued); got != c.runs {
					e.Errorf("%d dead letters are resolved", got)
				}
				_, err := e.Control(e.Context(), belay.Control{Execution: x.ID, Action: belay.ActionRetry})
				e.must(err)
				if e.progress(x.ID, belay.Failed); e.ran()-n != c.runs {
					e.Errorf("a retry of the stopped bulk runs more: %d", e.ran()-n)
				}
			})
		})
	}
}

// A bulk with a good fix reopens each execution once, at its rate, and its actions show who requested it
// and why.
func TestABulkRequeuesAll(t *testing.T) {
	in(t, func(e *env) {
		ids := e.broken(40)
		e.serve(e)
		b, began := fix(`{"bad": null}`), time.Now()
		b.Rate, b.Op = 2, belay.OpID{1}
		id := e.begin(b)
		if again := e.begin(b); again != id {
			e.Errorf("a repetition begins another bulk")
		}
		_, p := e.progress(id, belay.Succeeded)
		if p.Stage != "done" || p.Selected != 40 || p.Succeeded != 40 || p.Failed+p.Conflicts+p.Running != 0 {
			e.Errorf("%+v", p)
		}
		if took := time.Since(began); took < 39*time.Second/2 || took > time.Minute {
			e.Errorf("40 actions at two per second took %s", took)
		}
		e.reopened(ids)
		d, err := e.DeadLetter(e.Context(), ids[7], 1)
		e.must(err)
		if d.Resolution != belay.ResolvedRequeued || d.ResolvedBy != "ann" || len(d.Notes) != 1 ||
			d.Notes[0].Text != "no address (bulk "+id.String()+")" {
			e.Errorf("%+v", d.DeadLetter)
		}
	})
}

// A bulk does not act on the dead letters of the executions that it has reopened, even if all of these executions fail
// again and MaxFailures allows that.
func TestABulkDoesNotFollowItsOwnFailures(t *testing.T) {
	in(t, func(e *env) {
		ids := e.broken(30)
		e.serve(e)
		b, all := fix(`{"bad": true}`), 1.0
		b.MaxFailures, b.Canary = &all, []int{}
		_, p := e.progress(e.begin(b), belay.Succeeded)
		if p.Failed != 30 || p.Selected != 30 || len(p.Failures) != 10 || e.ran() != 60 {
			e.Errorf("%+v, %d runs", p, e.ran())
		}
		e.reopened(ids)
	})
}

// A bulk acts only on dead letters that existed when it was accepted, even if it begins to run later.
func TestABulkActsOnNothingNewer(t *testing.T) {
	all := 1.0
	for _, action := range []belay.BulkAction{belay.BulkRequeue, belay.BulkRetry} {
		in(t, func(e *env) {
			old := e.broken(3)
			b := charges(action)
			b.MaxFailures = &all
			time.Sleep(time.Millisecond)
			id := e.begin(b)
			time.Sleep(time.Millisecond)
			e.broken(4)
			e.serve(e)
			if _, p := e.progress(id, belay.Succeeded); p.Selected != 3 || e.letters("retried") != 3 {
				e.Errorf("%s: %+v", action, p)
			}
			e.reopened(old)
		})
	}
}

// If an execution that the bulk has reopened fails, and another caller reopens it before the bulk reads it again, the
// bulk counts it as failed.
func TestABulkCountsAFailureThatWasReopenedSince(t *testing.T) {
	in(t, func(e *env) {
		out, err := e.Submit(e.Context(), belay.Submission{Workflow: "charge", Queue: "without a worker"})
		e.must(err)
		act := func(id belay.ExecutionID, actions ...belay.Action) {
			e.Helper()
			for _, a := range actions {
				_, err := e.Control(e.Context(), belay.Control{Execution: id, Action: a})
				e.must(err)
			}
			time.Sleep(10 * time.Second)
		}
		act(out[0].ID, belay.ActionQuarantine)
		e.serve(e)
		id := e.begin(charges(belay.BulkRequeue))
		time.Sleep(10 * time.Second)
		if p := e.saved(id); p.Running != 1 || p.Stage != "canary" {
			e.Errorf("%+v", p)
		}
		act(id, belay.ActionPause)
		act(out[0].ID, belay.ActionQuarantine, belay.ActionRetry)
		act(id, belay.ActionResume)
		if x, p := e.progress(id, belay.Failed); p.Failed != 1 {
			e.Errorf("%+v, %+v", p, x.Error)
		}
	})
}

// Of two bulks over the same dead letters, each resolves some. Every dead letter is resolved once, and
// the bulk that is late counts a conflict and no failure.
func TestTwoBulksResolveEachDeadLetterOnce(t *testing.T) {
	in(t, func(e *env) {
		ids := e.broken(200)
		// Both bulks put all dead letters into their plans before either bulk acts.
		barrier := &meeting{Backend: e, parties: 2, met: make(chan struct{})}
		e.serve(barrier)
		b := fix(`{"bad": null}`)
		b.Canary, b.Rate = []int{}, 1000
		one, two := e.begin(b), e.begin(b)
		_, p := e.progress(one, belay.Succeeded)
		_, q := e.progress(two, belay.Succeeded)
		if p.Succeeded+q.Succeeded != 200 || p.Failed+q.Failed != 0 || p.Conflicts+q.Conflicts == 0 {
			e.Errorf("%+v\n%+v", p, q)
		}
		e.reopened(ids)
		if e.ran() != 400 {
			e.Errorf("%d runs", e.ran())
		}
	})
}

// meeting is the Backend of several bulks (the parties). It delays the first action of each bulk
// until all of them want to act.
type meeting struct {
	belay.Backend
	parties, come int
	mu            sync.Mutex
	met           chan struct{}
	seen          sync.Map
}

func (m *meeting) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	if _, known := m.seen.LoadOrStore(c.Reason, true); !known {
		m.mu.Lock()
		if m.come++; m.come == m.parties {
			close(m.met)
		}
		m.mu.Unlock()
		<-m.met
	}
	return m.Backend.Control(ctx, c)
}

// If the server of a bulk crashes at any of its actions, another server continues the bulk: each execution is reopened
// once and counted once, and the canary does not become larger.
func TestACrashActsOnNothingTwice(t *testing.T) {
	for k := 1; k <= 16; k++ {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("action %d, before %v", k, before), func(t *testing.T) {
				in(t, func(e *env) {
					ids := e.broken(15)
					x := &crashing{Backend: e, at: int64(k), before: before}
					e.serve(x)
					id := e.begin(fix(`{"bad": null}`))
					synctest.Wait()
					for !x.dead.Load() && e.saved(id).Stage != "done" {
						time.Sleep(time.Second)
					}
					e.serve(e)
					_, p := e.progress(id, belay.Succeeded)
					if p.Succeeded != 15 || p.Selected != 15 || p.Conflicts+p.Failed != 0 {
						e.Errorf("%+v", p)
					}
					e.reopened(ids)
					if e.ran() != 30 {
						e.Errorf("%d runs", e.ran())
					}
					if x.dead.Load() == (k == 16) {
						e.Errorf("crashed: %v", x.dead.Load())
					}
				})
			})
		}
	}
}

// A crash at the canary does not make the canary larger.
func TestACrashDoesNotEnlargeTheCanary(t *testing.T) {
	in(t, func(e *env) {
		e.broken(50)
		x := &crashing{Backend: e, at: 1}
		e.serve(x)
		id := e.begin(fix(`{"bad": true}`))
		for !x.dead.Load() {
			time.Sleep(time.Second)
		}
		e.serve(e)
		if _, p := e.progress(id, belay.Failed); p.Selected != 1 || p.Failed != 1 || e.ran() != 51 {
			e.Errorf("%+v, %d runs", p, e.ran())
		}
	})
}

var errDead = &belay.Error{Code: belay.CodeUnavailable, Message: "the server is dead"}

// crashing is a Backend of a process that dies at an action, before or after the engine has carried it
// out: from then on no call reaches the engine.
type crashing struct {
	belay.Backend
	at     int64
	before bool
	acts   atomic.Int64
	dead   atomic.Bool
}

func (c *crashing) Control(ctx context.Context, a belay.Control) (belay.Execution, error) {
	if c.dead.Load() {
		return belay.Execution{}, errDead
	}
	if c.acts.Add(1) != c.at {
		return c.Backend.Control(ctx, a)
	}
	if c.before {
		c.dead.Store(true)
		return belay.Execution{}, errDead
	}
	_, err := c.Backend.Control(ctx, a)
	c.dead.Store(true)
	return belay.Execution{}, errors.Join(errDead, err)
}

func call[T any](c *crashing, f func() (T, error)) (T, error) {
	if c.dead.Load() {
		var none T
		return none, errDead
	}
	return f()
}

func (c *crashing) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	return call(c, func() (belay.Session, error) { return c.Backend.OpenWorker(ctx, s) })
}

func (c *crashing) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	return call(c, func() (belay.ClaimReply, error) { return c.Backend.Claim(ctx, r) })
}

func (c *crashing) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	return call(c, func() (belay.HeartbeatReply, error) { return c.Backend.Heartbeat(ctx, h) })
}

func (c *crashing) Save(ctx context.Context, s belay.Save) (int64, error) {
	return call(c, func() (int64, error) { return c.Backend.Save(ctx, s) })
}

func (c *crashing) Settle(ctx context.Context, s belay.Settlement) error {
	_, err := call(c, func() (int, error) { return 0, c.Backend.Settle(ctx, s) })
	return err
}

func (c *crashing) CloseWorker(ctx context.Context, id belay.WorkerID) error {
	_, err := call(c, func() (int, error) { return 0, c.Backend.CloseWorker(ctx, id) })
	return err
}

// An operator can pause and resume a bulk, and stop it with a cancel. A cancelled bulk continues after a retry.
func TestAnOperatorStopsABulk(t *testing.T) {
	in(t, func(e *env) {
		e.broken(100)
		e.serve(e)
		b := fix(`{"bad": null}`)
		b.Rate = 1
		id := e.begin(b)
		act := func(a belay.Action) {
			e.Helper()
			_, err := e.Control(e.Context(), belay.Control{Execution: id, Action: a})
			e.must(err)
			time.Sleep(10 * time.Second)
		}
		time.Sleep(20 * time.Second)
		act(belay.ActionPause)
		paused := e.ran()
		time.Sleep(time.Hour)
		if p := e.saved(id); e.ran() != paused || paused < 110 || p.Succeeded+p.Running != paused-100 {
			e.Errorf("paused at %d runs, now %d: %+v", paused, e.ran(), p)
		}
		act(belay.ActionResume)
		act(belay.ActionCancel)
		e.progress(id, belay.Cancelled)
		cancelled := e.ran()
		if time.Sleep(time.Hour); e.ran() != cancelled || cancelled <= paused || cancelled > 160 {
			e.Errorf("cancelled at %d runs, now %d", cancelled, e.ran())
		}
		act(belay.ActionRetry)
		_, p := e.progress(id, belay.Succeeded)
		if e.ran() != 200 || p.Succeeded != 100 || p.Conflicts != 0 {
			e.Errorf("%d runs, %+v", e.ran(), p)
		}
	})
}

// A bulk that selects everything never acts on a bulk, not even on itself, and not on children.
func TestABulkNeverActsOnBulks(t *testing.T) {
	in(t, func(e *env) {
		for range 5 {
			_, err := e.Submit(e.Context(), belay.Submission{Workflow: "charge", Queue: "nobody's"})
			e.must(err)
		}
		waiting := fix(`{}`)
		waiting.Filter.Workflow = "other"
		other := e.begin(waiting)
		time.Sleep(time.Millisecond) // so that the executions above are older than the next bulk
		everything := belay.Bulk{Action: belay.BulkCancel, All: true}
		reply, err := e.Bulk(e.Context(), belay.Bulk{Action: belay.BulkCancel, All: true, DryRun: true})
		e.must(err)
		if reply.Preview.Count != 5 || len(reply.Preview.First) != 5 {
			e.Errorf("%+v", reply.Preview)
		}
		id := e.begin(everything)
		e.serve(e)
		_, p := e.progress(id, belay.Succeeded)
		if p.Selected != 5 || p.Succeeded != 5 {
			e.Errorf("%+v", p)
		}
		e.progress(other, belay.Succeeded)
	})
}

// A discard and a retry act on the executions that they select, and a dry run changes nothing.
func TestEachBulkAction(t *testing.T) {
	in(t, func(e *env) {
		ids := e.broken(25)
		e.serve(e)
		dry := charges(belay.BulkDiscard)
		dry.DryRun = true
		reply, err := e.Bulk(e.Context(), dry)
		e.must(err)
		if p := reply.Preview; reply.Execution != nil || p.Count != 25 || len(p.First) != 10 || p.More ||
			p.First[0].Execution != ids[24] || !strings.Contains(p.First[0].Message, "no address") {
			e.Errorf("%+v", reply)
		}
		if e.letters("open") != 25 {
			e.Error("a dry run has resolved dead letters")
		}
		discard := charges(belay.BulkDiscard)
		discard.Filter.Text = "order 7 "
		if _, p := e.progress(e.begin(discard), belay.Succeeded); p.Succeeded != 1 || e.letters("discarded") != 1 {
			e.Errorf("%+v", p)
		}
		// A retry in bulk reopens the executions with an open dead letter. The execution whose dead letter was
		// discarded counts as a conflict.
		retry, all := charges(belay.BulkRetry), 1.0
		retry.MaxFailures = &all
		if _, p := e.progress(e.begin(retry), belay.Succeeded); p.Failed != 24 || p.Conflicts != 1 ||
			e.letters("retried") != 24 || e.letters("open") != 24 {
			e.Errorf("%+v", p)
		}
	})
}
