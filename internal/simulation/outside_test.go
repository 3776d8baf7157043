package simulation

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// outsider is an external owner, a program that is not a worker: it locks one execution after
// another, renews the lock while it works on the execution, and settles the run. It violates the
// protocol on purpose: it has no fence, and continues to write after it has lost its lock.
type outsider struct {
	*bareWorker
}

// startOutside runs an outsider until its process ends.
func startOutside(p *process) {
	o := outsider{&bareWorker{p: p}}
	for p.ctx.Err() == nil {
		rest := 400 * time.Millisecond
		if p.w.healing.Load() {
			rest /= 4
		}
		o.pause(between(p.rng, 20*time.Millisecond, rest))
		if x, reopen, found := o.pick(); found {
			o.own(x, reopen)
		}
	}
}

// pick chooses an execution to lock: most likely an external execution without an owner, sometimes
// an execution that has an owner, that has ended, or that is for workers.
func (o *outsider) pick() (id belay.ExecutionID, reopen, found bool) {
	r, healing := o.p.rng, o.p.w.healing.Load()
	f := belay.Filter{
		Workflow: "outside", Limit: 30, States: []belay.State{belay.Pending, belay.Pending, belay.Waiting},
	}
	switch n := r.IntN(16); {
	case healing:
	case n < 3:
		f.States = []belay.State{belay.Running}
	case n < 6:
		f.States, reopen = []belay.State{belay.Failed, belay.Cancelled}, true
	case n < 8:
		f.Workflow = "bare"
	}
	ctx, cancel := context.WithTimeout(o.p.ctx, o.p.w.unlike(o.p.name, time.Second))
	defer cancel()
	page, err := o.p.link.Executions(ctx, f)
	if err != nil || len(page.Executions) == 0 {
		return id, false, false
	}
	return page.Executions[r.IntN(len(page.Executions))].ID, reopen, true
}

// own locks the execution, repeats the lock under the same id while its outcome is unknown, and
// works on the execution.
func (o *outsider) own(id belay.ExecutionID, reopen bool) {
	p := o.p
	r := belay.LockRequest{
		ID: belay.WorkerID(p.w.id(p.name, uint64(p.w.gate.now()))), Execution: id, Owner: p.name,
		TTL: belay.Duration(p.ttl), Reopen: reopen,
	}
	for range 1 + p.rng.IntN(5) {
		ctx, cancel := context.WithTimeout(p.ctx, p.w.unlike(p.name, 2*time.Second))
		l, err := p.link.Lock(ctx, r)
		cancel()
		if err == nil {
			o.locked(l)
			return
		}
		if belay.CodeOf(err) != belay.CodeUnavailable || p.ctx.Err() != nil {
			return
		}
		o.pause(60 * time.Millisecond)
	}
}

// locked works under the lock, and renews the lock while it works.
func (o *outsider) locked(l belay.Lock) {
	p := o.p
	ctx, done := context.WithCancel(p.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { o.renew(ctx, l) })
	o.work(assignmentOf(l))
	done()
	wg.Wait()
	if p.ctx.Err() != nil && !p.link.dead.Load() { // the process was asked to stop, so it releases the execution
		bounded, cancel := context.WithTimeout(context.Background(), p.w.unlike(p.name, time.Second))
		_ = p.link.Settle(bounded, belay.Settlement{
			Lease: l.Lease, Op: o.op(l.Lease, "stop"), Outcome: belay.OutcomeReleased,
		})
		cancel()
		return
	}
	if p.rng.IntN(3) == 0 { // sometimes the outsider renews after the end, which must be refused
		o.pause(p.ttl / 2)
		o.renewOnce(p.ctx, l.Lease)
	}
}

// renew renews the lock until a renewal is refused or the work is done. Some renewals have the
// token and the secret, and some have only the secret.
func (o *outsider) renew(ctx context.Context, l belay.Lock) {
	for n := 0; ctx.Err() == nil; n++ {
		timer := time.NewTimer(o.p.w.unlike(o.p.name, l.Heartbeat))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		lease := l.Lease
		if n%2 == 1 {
			lease.Token = 0
		}
		if o.renewOnce(ctx, lease) {
			return
		}
	}
}

// renewOnce renews the lock once, and reports whether the lock is lost.
func (o *outsider) renewOnce(ctx context.Context, l belay.Lease) bool {
	ctx, cancel := context.WithTimeout(ctx, o.p.w.unlike(o.p.name, o.p.ttl/2))
	defer cancel()
	_, err := o.p.link.Renew(ctx, l)
	return err != nil && belay.CodeOf(err) != belay.CodeUnavailable
}

// assignmentOf returns the assignment that a worker would get for the execution, with two changes:
// the work takes less time, since an outsider owns only one execution at a time, and an execution
// that was suspended often enough succeeds.
func assignmentOf(l belay.Lock) belay.Assignment {
	a := belay.Assignment{
		Lease: l.Lease, Workflow: l.Execution.Workflow, Input: l.Execution.Input, Attempt: l.Execution.Attempt,
		Checkpoints: l.Checkpoints, Signals: l.Signals,
	}
	for _, s := range l.Signals {
		a.SignalSeq = s.Seq
	}
	var in bareInput
	if json.Unmarshal(a.Input, &in) != nil {
		return a
	}
	if in.End == "suspended" && int64(l.Lease.Token)&0xffffffff > int64(in.Tries) {
		in.End = "succeeded"
	}
	in.Ms = 1 + in.Ms/4
	a.Input, _ = json.Marshal(in)
	return a
}
