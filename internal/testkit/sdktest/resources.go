package sdktest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
)

const gpu = belay.GateID("resource:gpu")

func in(mode string) belay.Gates {
	return belay.Gates{Requires: &belay.Requires{Resource: "gpu", Mode: mode}}
}

// loads registers the workflow "w", whose runs take a minute, and the workflow "load", which changes the mode.
func loads(load func(ctx context.Context, s belay.SwapInput) (string, error)) func(*worker.Worker) {
	return func(w *worker.Worker) {
		worker.Register(w, "w", func(context.Context, any) (string, error) {
			time.Sleep(time.Minute)
			return "done", nil
		})
		worker.Register(w, "load", load)
	}
}

// swapped lets the workflow "load" change the mode of the resource.
func (e *env) swapped() {
	e.Helper()
	e.changed(gpu, belay.GateSetResource, func(c *belay.GateChange) {
		c.Resource = &belay.ResourceTerms{
			MinResidency: belay.Duration(10 * time.Second), MaxWait: belay.Duration(3 * time.Minute),
			Swap: &belay.ResourceSwapper{Workflow: "load"},
		}
	})
}

// resources are the cases about resources that executions use in one mode at a time.
var resources = []testCase{
	{"runs of one mode share a resource, and a workflow changes the mode for the others", func(e *env) {
		e.swapped()
		var swaps []belay.SwapInput
		e.hire(loads(func(_ context.Context, s belay.SwapInput) (string, error) {
			time.Sleep(30 * time.Second)
			swaps = append(swaps, s)
			return "", nil
		}))
		a, b, a2 := e.gated(in("A")), e.gated(in("B")), e.gated(in("A"))
		e.sleep(10 * time.Second)
		g, err := e.b.Gate(e.ctx, gpu)
		e.must(err)
		r := g.Resource
		if r == nil || r.State != belay.ResourceSwapping || r.Swapping.To != "A" || len(r.Waiting) != 2 ||
			r.Waiting[0].Mode != "A" || r.Waiting[0].Executions != 2 || g.Waiting != 3 || len(g.Line) != 3 || g.Open ||
			r.By != "ann" || !r.Set {
			e.Errorf("%+v of %+v", g.Resource, g)
		}
		want(e, a, "done")
		want(e, a2, "done")
		e.within("the end of A", time.Since(e.began), 90*time.Second, 93*time.Second)
		want(e, b, "done")
		e.within("the end of B", time.Since(e.began), 3*time.Minute, 3*time.Minute+6*time.Second)
		if len(swaps) != 2 || swaps[0].Number <= 0 || swaps[1].Number <= swaps[0].Number || swaps[1] !=
			(belay.SwapInput{Resource: "gpu", From: "A", To: "B", Number: swaps[1].Number}) {
			e.Errorf("swaps %+v", swaps)
		}
		e.sleep(time.Second)
		g, err = e.b.Gate(e.ctx, gpu)
		e.must(err)
		if r := g.Resource; r.State != belay.ResourceIdle || r.Mode != "B" || len(r.Waiting) != 0 || !g.Open {
			e.Errorf("%+v", r)
		}
		if g = e.changed(gpu, belay.GateUnsetResource); g.Resource.Set || g.Resource.Swap != nil {
			e.Errorf("%+v", g.Resource)
		}
	}},
	{"a preemptible run yields its resource at its next step and continues later", func(e *env) {
		e.changed(gpu, belay.GateSetResource, func(c *belay.GateChange) {
			c.Resource = &belay.ResourceTerms{MaxWait: belay.Duration(90 * time.Second)}
		})
		e.hire(register("w", threeSteps))
		own := in("A")
		own.Requires.Preemptible = true
		long := e.gated(own)
		e.sleep(time.Second)
		short := e.gated(in("B"))
		want(e, short, "done")
		e.within("the end of the other mode", time.Since(e.began), 5*time.Minute, 5*time.Minute+5*time.Second)
		want(e, long, "done")
		if x := e.get(long); x.Attempt != 1 || e.count(long, "preempted") != 1 {
			e.Errorf("attempt %d of %s", x.Attempt, e.history(long))
		}
	}},
	{"a swap that fails is tried again, and its error is shown", func(e *env) {
		e.swapped()
		var tries atomic.Int32
		e.hire(loads(func(context.Context, belay.SwapInput) (string, error) {
			if tries.Add(1) == 1 {
				return "", belay.Permanent(errors.New("no memory"))
			}
			return "", nil
		}))
		id := e.gated(in("A"))
		e.sleep(5 * time.Second)
		g, err := e.b.Gate(e.ctx, gpu)
		e.must(err)
		if r := g.Resource; r.State != belay.ResourceFailed || r.Failures != 1 || r.Error != "no memory" ||
			r.RetryAt.IsZero() || len(r.Waiting) != 1 || r.Waiting[0].Failures != 1 ||
			!r.Waiting[0].RetryAt.Equal(r.RetryAt) {
			e.Errorf("%+v", r)
		}
		want(e, id, "done")
		e.within("end", time.Since(e.began), 70*time.Second, 73*time.Second)
	}},
	{"a lock waits for the mode of its resource", func(e *env) {
		e.swapped()
		e.hire(loads(func(context.Context, belay.SwapInput) (string, error) { return "", nil }))
		out, err := e.b.Submit(e.ctx, belay.Submission{Workflow: "mine", External: true, Gates: in("A")})
		e.must(err)
		try := func() error {
			_, err := e.b.Lock(e.ctx, belay.LockRequest{Execution: out[0].ID, Owner: "me"})
			return err
		}
		err = try()
		var refusal *belay.Error
		if !errors.As(err, &refusal) || refusal.Code != belay.CodeSwapInProgress || refusal.RetryAfter <= 0 {
			e.Fatalf("the lock is answered with %v", err)
		}
		e.sleep(3 * time.Second)
		e.must(try())
	}},
	{"terms and modes are checked", func(e *env) {
		bad := func(err error) {
			e.Helper()
			if belay.CodeOf(err) != belay.CodeInvalid {
				e.Errorf("answered with %v", err)
			}
		}
		_, err := e.b.ChangeGate(e.ctx, belay.GateChange{
			Gate: gpu, Action: belay.GateSetResource, Resource: &belay.ResourceTerms{
				MinResidency: belay.Duration(time.Hour), MaxWait: belay.Duration(time.Minute),
			},
		})
		bad(err)
		_, err = e.b.ChangeGate(e.ctx, belay.GateChange{
			Gate: "queue:q", Action: belay.GateSetResource, Resource: new(belay.ResourceTerms),
		})
		bad(err)
		out, err := e.b.Submit(e.ctx, belay.Submission{Workflow: "w", Gates: in("")})
		if err == nil {
			err = out[0].Err
		}
		bad(err)
		page, err := e.b.Gates(e.ctx, belay.GateFilter{Kind: belay.GateResource})
		if err != nil || len(page.Gates) != 0 {
			e.Errorf("%+v, %v", page, err)
		}
	}},
}
