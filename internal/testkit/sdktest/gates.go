package sdktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// changed changes a gate.
func (e *env) changed(id belay.GateID, a belay.GateAction, with ...func(*belay.GateChange)) belay.GateDetail {
	e.Helper()
	c := belay.GateChange{Gate: id, Action: a, Actor: "ann", Reason: "because"}
	for _, f := range with {
		f(&c)
	}
	g, err := e.b.ChangeGate(e.ctx, c)
	if err != nil {
		e.Fatalf("%s %s: %v", a, id, err)
	}
	return g
}

// gated submits an execution of workflow "w" that names gates.
func (e *env) gated(g belay.Gates) belay.ExecutionID {
	e.Helper()
	out, err := e.b.Submit(e.ctx, belay.Submission{Workflow: "w", Gates: g})
	if err != nil || out[0].Err != nil {
		e.Fatal(err, out)
	}
	return out[0].ID
}

func done(context.Context, any) (string, error) { return "done", nil }

var gates = []testCase{
	{"a pause of a queue starts nothing until it is resumed", func(e *env) {
		e.hire(register("w", done))
		g := e.changed("queue:default", belay.GatePause)
		if g.Open || g.Pause == nil || g.Pause.By != "ann" || g.Pause.Reason != "because" || g.Why == "" {
			e.Errorf("%+v", g)
		}
		id := e.start(nil)
		e.sleep(10 * time.Minute)
		e.wantState(id, belay.Pending)
		if why, err := e.b.Explain(e.ctx, id); err != nil || !strings.Contains(fmt.Sprint(why), "because") {
			e.Errorf("explained as %+v, %v", why, err)
		}
		e.changed("queue:default", belay.GateResume)
		want(e, id, "done")
	}},

	{"a pause of a workflow ends at its time", func(e *env) {
		e.hire(register("w", done))
		until := time.Now().Add(10 * time.Minute)
		e.changed("workflow:w", belay.GatePause, func(c *belay.GateChange) { c.Until = until })
		id := e.start(nil)
		want(e, id, "done")
		e.within("end", time.Since(until), 0, 2*time.Second)
	}},

	{"the limit of a workflow lets so many runs be under way", func(e *env) {
		e.changed("workflow:w", belay.GateSetLimit, func(c *belay.GateChange) { c.Max = 2 })
		e.hire(register("w", func(context.Context, any) (string, error) {
			time.Sleep(time.Minute)
			return "done", nil
		}))
		var ids []belay.ExecutionID
		for range 4 {
			ids = append(ids, e.start(nil))
		}
		e.sleep(30 * time.Second)
		g, err := e.b.Gate(e.ctx, "workflow:w")
		if err != nil || g.Open || g.Held != 2 || len(g.Holders) != 2 || g.Limit == nil || g.Limit.Set != 2 {
			e.Errorf("%+v, %v", g, err)
		}
		for _, id := range ids {
			want(e, id, "done")
		}
		e.within("end", time.Since(e.began), 2*time.Minute, 2*time.Minute+5*time.Second)
		e.changed("workflow:w", belay.GateUnsetLimit)
		if g, err = e.b.Gate(e.ctx, "workflow:w"); err != nil || g.Limit != nil || !g.Open {
			e.Errorf("%+v, %v", g, err)
		}
	}},

	{"gates are listed by kind, in pages, as their operators set them", func(e *env) {
		e.changed("rate:mail/out", belay.GateSetRate, func(c *belay.GateChange) {
			c.Max, c.Per = 10, belay.Duration(time.Second)
		})
		e.changed("target:payments:charge", belay.GateForceOpen)
		for n := range 3 {
			e.changed(belay.Gate(belay.GateQueue, fmt.Sprintf("q %d", n)), belay.GatePause)
		}
		var ids []belay.GateID
		for f := (belay.GateFilter{Kind: belay.GateQueue, Limit: 2}); ; {
			page, err := e.b.Gates(e.ctx, f)
			e.must(err)
			for _, g := range page.Gates {
				ids = append(ids, g.ID)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
		if fmt.Sprint(ids) != "[queue:q 0 queue:q 1 queue:q 2]" {
			e.Errorf("queues %q", ids)
		}
		page, err := e.b.Gates(e.ctx, belay.GateFilter{Kind: belay.GateTarget})
		if err != nil || len(page.Gates) != 1 || page.Gates[0].Breaker == nil ||
			page.Gates[0].Breaker.State != "open" || !page.Gates[0].Breaker.Forced || page.Gates[0].UpdatedBy != "ann" {
			e.Errorf("targets %+v, %v", page, err)
		}
		e.changed("target:payments:charge", belay.GateForceClosed)
		if g := e.changed("target:payments:charge", belay.GateAutomatic); g.Breaker.Forced || !g.Open {
			e.Errorf("%+v", g.Breaker)
		}
		g, err := e.b.Gate(e.ctx, "rate:mail/out")
		if err != nil || g.Rate == nil || g.Rate.Max != 10 || g.Rate.Per.D() != time.Second || !g.Rate.Set {
			e.Errorf("%+v, %v", g, err)
		}
		if g := e.changed("rate:mail/out", belay.GateUnsetRate); g.Rate != nil {
			e.Errorf("%+v", g.Rate)
		}
	}},

	{"a change of a gate is carried out once", func(e *env) {
		op := e.op()
		with := func(c *belay.GateChange) { c.Op = op }
		e.changed("queue:q", belay.GatePause, with)
		e.changed("queue:q", belay.GateResume)
		ctx, replayed := belay.WithReplay(e.ctx)
		again := belay.GateChange{Gate: "queue:q", Action: belay.GatePause, Actor: "ann", Reason: "because", Op: op}
		if g, err := e.b.ChangeGate(ctx, again); err != nil || !replayed() || g.Pause != nil {
			e.Errorf("replayed: %v; %+v, %v", replayed(), g, err)
		}
		again.Action = belay.GateResume
		_, err := e.b.ChangeGate(e.ctx, again)
		e.refused("another change", err, belay.CodeIdempotencyMismatch, "")
	}},

	{"a limit that submissions name lets so many be under way, in order", func(e *env) {
		e.hire(register("w", func(context.Context, any) (string, error) {
			time.Sleep(time.Minute)
			return "done", nil
		}))
		var ids []belay.ExecutionID
		for range 4 {
			ids = append(ids, e.gated(belay.Gates{Concurrency: &belay.Concurrency{Name: "x/y", Max: 2}}))
		}
		e.sleep(30 * time.Second)
		g, err := e.b.Gate(e.ctx, "limit:x/y")
		if err != nil || g.Held != 2 || g.Waiting != 2 || len(g.Line) != 2 || g.Line[0] != ids[2] ||
			g.Line[1] != ids[3] {
			e.Errorf("%+v, %v", g, err)
		}
		for _, id := range ids {
			want(e, id, "done")
		}
		e.within("end", time.Since(e.began), 2*time.Minute, 2*time.Minute+5*time.Second)
	}},

	{"a full limit rejects or replaces, as the submission says", func(e *env) {
		limit := func(when belay.WhenFull) belay.Submission {
			return belay.Submission{Workflow: "w", Gates: belay.Gates{
				Concurrency: &belay.Concurrency{Name: "x", Max: 1, WhenFull: when},
			}}
		}
		first := e.gated(limit(belay.WaitWhenFull).Gates)
		out, err := e.b.Submit(e.ctx, limit(belay.RejectWhenFull))
		e.must(err)
		e.refused("a full limit", out[0].Err, belay.CodeConflict, "")
		e.gated(limit(belay.ReplaceWhenFull).Gates)
		e.wantState(first, belay.Cancelled)
	}},

	{"children run under the gates that their parent names", func(e *env) {
		gates := belay.WithGates(belay.Gates{
			Concurrency: &belay.Concurrency{Name: "x", Max: 1}, Target: "t",
			Rate: &belay.Rate{Name: "r", Max: 3, Per: belay.Duration(time.Second)},
		})
		var underWay, most atomic.Int64
		e.hire(family(func(ctx context.Context, n int) (int, error) {
			most.Store(max(most.Load(), underWay.Add(1)))
			defer underWay.Add(-1)
			time.Sleep(time.Minute)
			return n, nil
		}, workflow.With(gates)), func(o *worker.Options) { o.Concurrency = 9 })
		e.changed("target:t", belay.GatePause)
		ids := []belay.ExecutionID{e.start(1), e.start(1), e.start(1)}
		e.sleep(time.Minute)
		if n := underWay.Load(); n != 0 {
			e.Errorf("%d children run for a paused target", n)
		}
		e.changed("target:t", belay.GateResume)
		for _, id := range ids {
			want(e, id, 1)
		}
		if n := most.Load(); n != 1 {
			e.Errorf("%d children were under way at the same time", n)
		}
		e.within("end", time.Since(e.began), 4*time.Minute, 4*time.Minute+10*time.Second)
	}},

	{"a child keeps the gates with which it was started, whatever a later run names", func(e *env) {
		var runs atomic.Int64
		e.hire(func(w *worker.Worker) {
			worker.Register(w, "c", func(ctx context.Context, n int) (int, error) {
				time.Sleep(time.Minute)
				return n, nil
			})
			worker.Register(w, "w", func(ctx context.Context, n int) (int, error) {
				run := runs.Add(1)
				limit := belay.Concurrency{Name: fmt.Sprint("l", run), Max: 1}
				child := workflow.Go(ctx, "child", func(ctx context.Context) (int, error) {
					return workflow.Child[int](ctx, "kid", "c", n,
						workflow.With(belay.WithGates(belay.Gates{Concurrency: &limit})))
				})
				if run == 1 {
					time.Sleep(10 * time.Second) // the child starts during this time
					return 0, errors.New("again")
				}
				return child.Wait(ctx)
			})
		})
		id := e.start(7)
		want(e, id, 7)
		if runs.Load() < 2 {
			e.Errorf("%d runs", runs.Load())
		}
		e.childOf(id)
		page, err := e.b.Gates(e.ctx, belay.GateFilter{Kind: belay.GateLimit})
		if err != nil || len(page.Gates) != 1 || page.Gates[0].ID != "limit:l1" {
			e.Errorf("the limits are %+v, %v", page.Gates, err)
		}
	}},

	{"a child under the limit of its parent is refused", func(e *env) {
		gates := belay.WithGates(belay.Gates{Concurrency: &belay.Concurrency{Name: "x", Max: 9}})
		e.hire(family(func(_ context.Context, n int) (int, error) { return n, nil }, workflow.With(gates)))
		id := e.start(1, gates, belay.WithPolicy(belay.Policy{MaxAttempts: 1}))
		wantEnd(e, id, belay.Failed, "would wait for each other")
	}},

	{"executions for a target wait while its breaker is open, and nothing is charged", func(e *env) {
		e.hire(register("w", done))
		e.changed("target:payments:charge", belay.GateForceOpen)
		id := e.gated(belay.Gates{Target: "payments:charge"})
		e.sleep(10 * time.Minute)
		if x := e.wantState(id, belay.Pending); x.Token != 0 {
			e.Errorf("it ran: %+v", x)
		}
		e.changed("target:payments:charge", belay.GateAutomatic)
		want(e, id, "done")
	}},

	{"a rate that submissions name lets so many runs start", func(e *env) {
		e.hire(register("w", done))
		var ids []belay.ExecutionID
		for range 4 {
			pace := belay.Rate{Name: "r", Max: 1, Per: belay.Duration(time.Minute)}
			ids = append(ids, e.gated(belay.Gates{Rate: &pace}))
		}
		for _, id := range ids {
			want(e, id, "done")
		}
		e.within("end", time.Since(e.began), 2*time.Minute, 4*time.Minute)
	}},

	{"ids that no gate has are refused", func(e *env) {
		for _, id := range []belay.GateID{
			"", "/", ".", "..", "x", "queue:", ":x", "Queue:x", "queue:\a", "queue:\x00", "queue:\xff", "place:x",
			belay.Gate(belay.GateQueue, strings.Repeat("n", belay.MaxName+1)), "../keys", "queue",
		} {
			_, err := e.b.Gate(e.ctx, id)
			e.refused(fmt.Sprintf("read %q", id), err, belay.CodeInvalid, "")
			_, err = e.b.ChangeGate(e.ctx, belay.GateChange{Gate: id, Action: belay.GatePause})
			e.refused(fmt.Sprintf("pause %q", id), err, belay.CodeInvalid, "")
		}
		for _, kind := range []string{"x", "Queue", "queue:", "*"} {
			_, err := e.b.Gates(e.ctx, belay.GateFilter{Kind: kind})
			e.refused(fmt.Sprintf("list %q", kind), err, belay.CodeInvalid, "")
		}
		e.changed("queue:..", belay.GatePause)
		for _, limit := range []int{-1, 0, 5000} {
			page, err := e.b.Gates(e.ctx, belay.GateFilter{Limit: limit})
			if err != nil || len(page.Gates) != 1 || page.Gates[0].ID != "queue:.." {
				e.Errorf("limit %d: %+v, %v", limit, page, err)
			}
		}
	}},

	{"changes that no gate allows are refused", func(e *env) {
		for _, c := range []belay.GateChange{
			{Gate: "target:x", Action: belay.GateSetLimit, Max: 5}, {Gate: "queue:q", Action: belay.GateForceOpen},
			{Gate: "limit:x", Action: belay.GateSetLimit}, {Gate: "limit:x", Action: belay.GateSetLimit, Max: -1},
			{Gate: "limit:x", Action: belay.GateSetLimit, Max: belay.MaxConcurrency + 1},
			{Gate: "rate:x", Action: belay.GateSetRate, Max: 1}, {Gate: "queue:q", Action: "explode"},
			{Gate: "queue:q", Action: belay.GatePause, Until: e.began.Add(-time.Hour)},
			{Gate: "queue:q", Action: belay.GatePause, Reason: "\a"},
			{Gate: belay.Gate(belay.GateQueue, strings.Repeat("€", 67)), Action: belay.GatePause},
		} {
			_, err := e.b.ChangeGate(e.ctx, c)
			e.refused(fmt.Sprintf("%+v", c), err, belay.CodeInvalid, "")
		}
		page, err := e.b.Gates(e.ctx, belay.GateFilter{})
		if err != nil || len(page.Gates) > 0 {
			e.Errorf("a refused change left %+v, %v", page, err)
		}
	}},

	{"steps spare a dead target, and go on when it is back", func(e *env) {
		const down = 65 * time.Second
		var calls, late atomic.Int64
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			if err := workflow.Do(ctx, "before", func(context.Context) error { return nil }); err != nil {
				return "", err
			}
			return workflow.Step(ctx, "charge", func(context.Context) (string, error) {
				if time.Since(e.began) < down {
					calls.Add(1)
					return "", errors.New("the target is down")
				}
				late.Add(1)
				return "done", nil
			}, workflow.Target("payments:charge"), workflow.Retry(3, time.Second))
		}), func(o *worker.Options) { o.Concurrency = 5 })
		var ids []belay.ExecutionID
		for range 50 {
			ids = append(ids, e.start(nil, belay.WithPolicy(belay.Policy{MaxAttempts: 1})))
		}
		e.sleep(20 * time.Second)
		g, err := e.b.Gate(e.ctx, "target:payments:charge")
		if err != nil || g.Open || g.Waiting != 50 || g.Breaker == nil || g.Breaker.State != "open" {
			e.Errorf("%+v, %v", g, err)
		}
		if why, err := e.b.Explain(e.ctx, ids[49]); err != nil || !strings.Contains(why.Summary, "payments:charge") {
			e.Errorf("explained as %+v, %v", why, err)
		}
		for _, id := range ids {
			want(e, id, "done")
			if x := e.wantState(id, belay.Succeeded); x.Attempt != 1 {
				e.Errorf("%s was charged %d attempts", id, x.Attempt-1)
			}
		}
		if n := calls.Load(); n < 5 || n > 10 {
			e.Errorf("%d calls reached the target while it was down", n)
		}
		if n := late.Load(); n != 50 {
			e.Errorf("%d calls for 50 executions after it was back", n)
		}
		e.within("end", time.Since(e.began), down, down+40*time.Second)
	}},

	{"a worker claims nothing more for a target before its failure is counted", func(e *env) {
		const down = 65 * time.Second
		calls := 0 // counted without a lock, because the worker has only one slot
		e.hire(register("w", func(context.Context, any) (string, error) {
			if time.Since(e.began) < down {
				calls++
				return "", errors.New("the target is down")
			}
			return "done", nil
		}), func(o *worker.Options) { o.Concurrency = 1 })
		var ids []belay.ExecutionID
		for range 20 {
			ids = append(ids, e.gated(belay.Gates{Target: "payments:charge"}))
		}
		e.sleep(20 * time.Second)
		if g, err := e.b.Gate(e.ctx, "target:payments:charge"); err != nil || g.Open || g.Waiting != 20 || calls != 5 {
			e.Errorf("after %d calls: %+v, %v", calls, g, err)
		}
		charged := 0
		for _, id := range ids {
			want(e, id, "done")
			charged += e.wantState(id, belay.Succeeded).Attempt - 1
		}
		if calls != 5+1 || charged != calls { // five failures open the breaker, and one probe fails after 30 s
			e.Errorf("%d calls reached the target while it was down, and %d attempts were charged", calls, charged)
		}
	}},

	{"five slots make at most ten calls of a target that is down for 65 s", func(e *env) {
		const down = 65 * time.Second
		var calls atomic.Int64
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			n := calls.Add(1)
			// Each call takes longer than the call before it, so that the calls fail one after the other.
			if err := busy(ctx, time.Duration(n)*200*time.Millisecond); err != nil {
				return "", err
			}
			if time.Since(e.began) < down {
				return "", errors.New("the target is down")
			}
			calls.Add(-1)
			return "done", nil
		}), func(o *worker.Options) { o.Concurrency = 5 })
		var ids []belay.ExecutionID
		for range 50 {
			ids = append(ids, e.gated(belay.Gates{Target: "payments:charge"}))
		}
		for _, id := range ids {
			want(e, id, "done")
		}
		if n := calls.Load(); n < 6 || n > 10 {
			e.Errorf("%d calls reached the target while it was down", n)
		}
	}},

	{"a target whose calls take longer than its breaker is open is called again", func(e *env) {
		const slow = 90 * time.Second
		var down atomic.Bool
		down.Store(true)
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			if down.Load() {
				return "", errors.New("the target is down")
			}
			return "done", busy(ctx, slow)
		}), func(o *worker.Options) { o.Concurrency = 5 })
		var ids []belay.ExecutionID
		for range 10 {
			ids = append(ids, e.gated(belay.Gates{Target: "models:answer"}))
		}
		e.sleep(20 * time.Second)
		g, err := e.b.Gate(e.ctx, "target:models:answer")
		if err != nil || g.Breaker == nil || g.Breaker.State != "open" {
			e.Errorf("%+v, %v", g, err)
		}
		down.Store(false)
		for _, id := range ids {
			want(e, id, "done")
		}
		if g, err := e.b.Gate(e.ctx, "target:models:answer"); err != nil || !g.Open || g.Breaker.State != "closed" {
			e.Errorf("%+v, %v", g, err)
		}
	}},

	{"errors that are not the target's do not open its breaker", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			return workflow.Step(ctx, "charge", func(context.Context) (string, error) {
				return "", belay.Permanent(errors.New("the card is refused"))
			}, workflow.Target("payments:charge"))
		}))
		for range 8 {
			wantEnd(e, e.start(nil), belay.Failed, "the card is refused")
		}
		if g, err := e.b.Gate(e.ctx, "target:payments:charge"); err != nil || !g.Open {
			e.Errorf("%+v, %v", g, err)
		}
		e.changed("target:payments:charge", belay.GatePause)
		id := e.start(nil)
		e.sleep(time.Minute)
		if x := e.wantState(id, belay.Pending); x.Attempt != 1 {
			e.Errorf("a paused target was called: %+v", x)
		}
		e.changed("target:payments:charge", belay.GateResume)
		wantEnd(e, id, belay.Failed, "the card is refused")
	}},

	{"the other steps of a run finish before it gives way to an open breaker", func(e *env) {
		var slow, calls atomic.Int64
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			a := workflow.Go(ctx, "slow", func(ctx context.Context) (string, error) {
				return workflow.Step(ctx, "slow", func(context.Context) (string, error) {
					slow.Add(1)
					time.Sleep(10 * time.Second)
					return "slow", nil
				})
			})
			b := workflow.Go(ctx, "call", func(ctx context.Context) (string, error) {
				time.Sleep(time.Second) // the other step begins during this time
				return workflow.Step(ctx, "call", func(context.Context) (string, error) {
					calls.Add(1)
					return "call", nil
				}, workflow.Target("t"))
			})
			x, err := a.Wait(ctx)
			if err != nil {
				return "", err
			}
			y, err := b.Wait(ctx)
			return x + y, err
		}))
		e.changed("target:t", belay.GateForceOpen)
		id := e.start(nil)
		e.sleep(time.Minute)
		if slow.Load() != 1 || calls.Load() != 0 {
			e.Errorf("%d slow steps, %d calls", slow.Load(), calls.Load())
		}
		e.changed("target:t", belay.GateAutomatic)
		want(e, id, "slowcall")
		if slow.Load() != 1 || calls.Load() != 1 {
			e.Errorf("%d slow steps, %d calls", slow.Load(), calls.Load())
		}
	}},
}
