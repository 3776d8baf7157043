package sdktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// lasts is a workflow with one step for each duration: step 0, step 1, …
func lasts(ctx context.Context, ms []int) (string, error) {
	for i, n := range ms {
		err := workflow.Do(ctx, fmt.Sprintf("step %d", i), func(ctx context.Context) error {
			return pauseFor(ctx, time.Duration(n)*time.Millisecond)
		})
		if err != nil {
			return "", err
		}
	}
	return "done", nil
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// event returns the first event of a kind, with its name if a name is given.
func (e *env) event(id belay.ExecutionID, kind, name string) belay.Event {
	e.Helper()
	events, err := e.b.Events(e.ctx, belay.EventQuery{Execution: id})
	e.must(err)
	for _, ev := range events {
		if ev.Kind == kind && (name == "" || ev.Name == name) {
			return ev
		}
	}
	e.Fatalf("no event %s %s\n%s", kind, name, e.history(id))
	return belay.Event{}
}

// steps writes steps as text, with their begins as offsets from the begin of the case, in seconds.
func (e *env) steps(all []belay.StepRecord) string {
	var parts []string
	for _, s := range all {
		text := fmt.Sprintf("%s %s at %.0f", s.Kind, s.Name, s.BeganAt.Sub(e.began).Seconds())
		if s.Attempt > 0 {
			text += fmt.Sprintf(" try %d", s.Attempt)
		}
		if s.Over {
			text += fmt.Sprintf(" took %.0f", float64(s.DurationMS)/1000)
		}
		if s.Error != "" {
			text += " error " + s.Error
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func (e *env) wantSteps(what string, all []belay.StepRecord, want string) {
	e.Helper()
	if got := e.steps(all); got != want {
		e.Errorf("%s: %q, want %q", what, got, want)
	}
}

var timeline = []testCase{
	{"the history has the duration and the try of each step, and its failed tries", func(e *env) {
		n := 0
		e.hire(register("w", func(ctx context.Context, _ any) (int, error) {
			return workflow.Step(ctx, "charge", func(ctx context.Context) (int, error) {
				if n++; n < 3 {
					_ = pauseFor(ctx, 2*time.Second)
					return 0, fmt.Errorf("no %d\x1b[31m\x00", n)
				}
				return n, pauseFor(ctx, 5*time.Second)
			}, workflow.Retry(3, 10*time.Second))
		}))
		id := e.start(nil)
		want(e, id, 3)
		ev := e.event(id, "step", "charge")
		if ev.DurationMS != 5000 || ev.Attempt != 3 || len(ev.Steps) != 2 {
			e.Fatalf("the event has the duration %d, the try %d, the steps %s", ev.DurationMS, ev.Attempt,
				e.steps(ev.Steps))
		}
		for i, s := range ev.Steps {
			if s.Name != "charge" || s.Attempt != i+1 || !s.Over || s.DurationMS != 2000 ||
				s.Error != fmt.Sprintf("no %d[31m", i+1) {
				e.Errorf("try %d is %+v", i+1, s)
			}
		}
		e.within("begin of the first try", ev.Steps[0].BeganAt.Sub(e.began), 0, time.Second)
		e.within("begin of the second try", ev.Steps[1].BeganAt.Sub(ev.Steps[0].BeganAt), 7*time.Second, 12*time.Second)
	}},

	{"the current step is visible within two seconds, with its begin, until it is saved", func(e *env) {
		e.hire(register("w", lasts))
		id := e.start([]int{60_000, 30_000, 100})
		e.sleep(2 * time.Second)
		e.wantSteps("after 2 s", e.get(id).Current, "step step 0 at 0")
		e.sleep(48 * time.Second)
		e.wantSteps("after 50 s", e.get(id).Current, "step step 0 at 0")
		e.says(id, "it has been in step step 0 for 50")
		if d := e.detail(id); len(d.Current) != 1 {
			e.Errorf("the detail has the steps %s", e.steps(d.Current))
		}
		e.sleep(10*time.Second + 200*time.Millisecond)
		e.wantSteps("just after its end", e.get(id).Current, "")
		e.sleep(2 * time.Second)
		e.wantSteps("of the second step", e.get(id).Current, "step step 1 at 60")
		want(e, id, "done")
		e.wantSteps("after the end", e.get(id).Current, "")
	}},

	{"steps of less than half a second cost no heartbeat, and longer ones a few", func(e *env) {
		var beats, named atomic.Int32
		c := e.hire(register("w", lasts))
		c.wire.set(func(_ context.Context, c call) error {
			if h, ok := c.request.(belay.Heartbeat); ok && !c.done {
				beats.Add(1)
				for _, run := range h.Holds {
					named.Add(int32(len(run.Steps)))
				}
			}
			return nil
		})
		short := make([]int, 150)
		for i := range short {
			short[i] = 400
		}
		want(e, e.start(short), "done") // a minute, with a heartbeat every five seconds
		if n := beats.Swap(0); n > 13 || named.Load() != 0 {
			e.Errorf("short steps cost %d heartbeats, which name %d steps", n, named.Load())
		}
		long := make([]int, 40)
		for i := range long {
			long[i] = 1500
		}
		want(e, e.start(long), "done") // a minute
		if n := beats.Load(); n > 61+12 || named.Load() < 35 {
			e.Errorf("steps of 1.5 s cost %d heartbeats, which name %d steps", n, named.Load())
		}
	}},

	{"the current steps of all branches are visible, at most eight", func(e *env) {
		e.hire(register("w", func(ctx context.Context, n int) (int, error) {
			all := make([]*workflow.Future[int], n)
			for i := range all {
				all[i] = workflow.Go(ctx, fmt.Sprint("b", i), func(ctx context.Context) (int, error) {
					return workflow.Step(ctx, "s", func(ctx context.Context) (int, error) {
						return i, pauseFor(ctx, time.Minute)
					})
				})
			}
			for _, f := range all {
				if _, err := f.Wait(ctx); err != nil {
					return 0, err
				}
			}
			return n, nil
		}))
		two, many := e.start(2), e.start(20)
		e.sleep(3 * time.Second)
		got := e.steps(e.get(two).Current)
		if !strings.Contains(got, "b0/s at 0") || !strings.Contains(got, "b1/s at 0") {
			e.Errorf("the current steps of two branches: %s", got)
		}
		if n := len(e.get(many).Current); n != belay.MaxCurrent {
			e.Errorf("%d current steps of 20 branches, want %d", n, belay.MaxCurrent)
		}
		want(e, two, 2)
		want(e, many, 20)
	}},

	{"a run that fails or is lost has the step that it was in", func(e *env) {
		c := e.hire(register("w", func(ctx context.Context, fail bool) (string, error) {
			return workflow.Step(ctx, "charge", func(ctx context.Context) (string, error) {
				if err := pauseFor(ctx, 3*time.Second); err != nil || fail {
					return "", belay.Permanent(errors.New("declined"))
				}
				return "ok", pauseFor(ctx, time.Hour)
			})
		}))
		failed, lost := e.start(true), e.start(false)
		wantEnd(e, failed, belay.Failed, "declined")
		e.wantSteps("failed", e.event(failed, "failed", "").Steps, "step charge at 0 took 3 error declined")
		e.sleep(4 * time.Second)
		c.crash()
		e.sleep(time.Minute)
		e.wantSteps("lost", e.event(lost, "lost", "").Steps, "step charge at 0")
		e.wantSteps("current after the loss", e.get(lost).Current, "")
	}},

	{"waits have their times too: a short one while it lasts, a long one with the suspension", func(e *env) {
		e.hire(register("w", func(ctx context.Context, _ any) (string, error) {
			if err := workflow.Sleep(ctx, "nap", 2*time.Second); err != nil {
				return "", err
			}
			if err := workflow.Do(ctx, "work", func(context.Context) error { return nil }); err != nil {
				return "", err
			}
			return workflow.WaitSignal[string](ctx, "approved")
		}), func(o *worker.Options) { o.Linger = time.Minute })
		id := e.start(nil)
		e.sleep(1800 * time.Millisecond)
		e.wantSteps("a short sleep", e.get(id).Current, "wait nap at 0")
		e.sleep(4 * time.Second)
		e.wantSteps("the sleep, with the next checkpoint", e.event(id, "step", "work").Steps, "wait nap at 0 took 2")
		e.wantSteps("a wait for a signal", e.get(id).Current, "wait approved at 2")
		e.sleep(2 * time.Minute)
		e.wantState(id, belay.Waiting)
		e.wantSteps("the suspension", e.event(id, "suspended", "").Steps, "wait approved at 2")
		e.signal(id, "approved", "ann")
		want(e, id, "ann")
	}},

	{"a report of steps is cut, and never a reason to refuse a heartbeat or a result", func(e *env) {
		id := e.start(nil)
		w := e.runner("hostile", 1)
		all := e.acquire(w, 1, 1)
		l := all[0].Lease
		bad := belay.StepReport{
			Kind: belay.KindStep, Name: "\x1b]0;title\a\u202e" + strings.Repeat("é", 500) + "\n\xff", Attempt: -5,
			Ago: -time.Hour, Over: true, Took: 1 << 62, Error: strings.Repeat("x\x01\n", 1000),
		}
		var many []belay.StepReport
		for i := range 100 {
			bad.Ago = time.Duration(i-50) << 56
			many = append(many, bad)
		}
		_, err := e.b.Heartbeat(e.ctx, belay.Heartbeat{
			Worker: w, ClaimSeen: 1, Holds: []belay.Held{{Execution: id, Token: l.Token, Steps: many}},
		})
		e.must(err)
		got := e.get(id).Current
		if len(got) != belay.MaxCurrent {
			e.Errorf("%d current steps, want %d", len(got), belay.MaxCurrent)
		}
		e.bounded(got, belay.MaxCurrentName)
		_, err = e.b.Save(e.ctx, belay.Save{
			Lease: l, Op: e.op(), Kind: belay.KindStep, Key: "k", Took: -1, Attempt: 1 << 40, Steps: many,
		})
		e.must(err)
		e.must(e.b.Settle(e.ctx, belay.Settlement{Lease: l, Op: e.op(), Outcome: belay.OutcomeSucceeded, Steps: many}))
		for _, kind := range []string{"step", "succeeded"} {
			ev := e.event(id, kind, "")
			if len(ev.Steps) != belay.MaxReports || ev.DurationMS != 0 || ev.Attempt > 1_000_000 {
				e.Errorf("%s: %d steps, duration %d, attempt %d", kind, len(ev.Steps), ev.DurationMS, ev.Attempt)
			}
			e.bounded(ev.Steps, belay.MaxName)
		}
	}},

	{"a worker reports no steps to a server that refuses them, such as one of an older version", func(e *env) {
		var refused atomic.Int32
		c := e.hire(register("w", lasts))
		c.wire.set(func(_ context.Context, c call) error {
			reported := false
			switch q := c.request.(type) {
			case belay.Heartbeat:
				for _, h := range q.Holds {
					reported = reported || h.Steps != nil
				}
			case belay.Save:
				reported = q.Took != 0 || q.Attempt != 0 || q.Steps != nil
			case belay.Settlement:
				reported = q.Steps != nil
			}
			if reported && !c.done {
				refused.Add(1)
				return &belay.Error{Code: belay.CodeInvalid, Message: "there is no such field"}
			}
			return nil
		})
		id := e.start([]int{20_000, 30_000, 100})
		want(e, id, "done")
		if n := refused.Load(); n != 1 {
			e.Errorf("%d requests with steps were refused, want 1: the first", n)
		}
		e.wantKinds(id, "submitted", "started", "step:step 0", "step:step 1", "step:step 2", "succeeded")
		c.wire.set(nil)
		e.sleep(11 * time.Minute)
		id = e.start([]int{2000})
		want(e, id, "done")
		if ev := e.event(id, "step", "step 0"); ev.DurationMS != 2000 {
			e.Errorf("ten minutes later the duration of a step is %d ms, want 2000", ev.DurationMS)
		}
	}},

	{"all current steps of a worker together are bounded", func(e *env) {
		const n = 200
		ids := make([]belay.ExecutionID, n)
		for i := range ids {
			ids[i] = e.start(nil)
		}
		w := e.runner("busy", n)
		h := belay.Heartbeat{Worker: w}
		for number := int64(1); len(h.Holds) < n; number++ {
			for _, a := range e.acquire(w, number, n) {
				h.Holds = append(h.Holds, belay.Held{
					Execution: a.Lease.Execution, Token: a.Lease.Token, Steps: []belay.StepReport{
						{Kind: belay.KindStep, Name: strings.Repeat("n", 200), Ago: time.Second},
					},
				})
			}
			h.ClaimSeen = number
		}
		_, err := e.b.Heartbeat(e.ctx, h)
		e.must(err)
		known := 0
		for _, id := range ids {
			known += len(e.get(id).Current)
		}
		if known < 50 || known == n {
			e.Errorf("%d of %d current steps are known; want as many as fit into %d bytes", known, n,
				belay.MaxCurrentBytes)
		}
		for i := range h.Holds { // a worker that names nothing, such as one of an older version
			h.Holds[i].Steps = nil
		}
		_, err = e.b.Heartbeat(e.ctx, h)
		e.must(err)
		e.wantSteps("after a heartbeat without steps", e.get(ids[0]).Current, "")

		h.Holds[0].Token++ // another run than that of the worker
		h.Holds[0].Steps = []belay.StepReport{{Kind: belay.KindStep, Name: "not mine", Ago: time.Second}}
		reply, err := e.b.Heartbeat(e.ctx, h)
		e.must(err)
		if len(reply.Revoked) != 1 || reply.Revoked[0].Steps != nil {
			e.Errorf("the reply revokes %+v, want the run without its steps", reply.Revoked)
		}
		e.wantSteps("of a run that the worker does not have", e.get(ids[0]).Current, "")
	}},
}

// bounded checks the texts and times of steps.
func (e *env) bounded(all []belay.StepRecord, name int) {
	e.Helper()
	for _, s := range all {
		if len(s.Name) > name || len(s.Error) > belay.MaxReported || s.Attempt < 0 || s.DurationMS < 0 ||
			strings.ContainsFunc(s.Name+s.Error, unicode.IsControl) {
			e.Errorf("the step is not bounded: %d bytes of name, %d of error, %+v", len(s.Name), len(s.Error), s)
		}
		if s.BeganAt.Before(e.began.Add(-time.Minute)) || s.BeganAt.After(time.Now().Add(time.Minute)) {
			e.Errorf("the step began at %s", s.BeganAt)
		}
	}
}
