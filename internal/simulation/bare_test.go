package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// bareInput is the input of an execution for a bare worker (a worker without the SDK): the worker
// saves some checkpoints, pauses before each of them, and then ends the run.
type bareInput struct {
	Saves int    `json:"saves"`
	Ms    int    `json:"ms"`
	End   string `json:"end"` // the outcome with which the worker ends the run
	// Tries is the number of attempts that end with the outcome End; the next attempt succeeds.
	Tries int `json:"tries,omitempty"`
	// Waits is how long a suspended execution waits, in ms. With 0, the execution waits for a
	// signal.
	Waits int `json:"waits,omitempty"`
	// Cost is the cost that each checkpoint and the end of each run report.
	Cost belay.Cost `json:"cost,omitempty"`
}

func writeBare(r *rand.Rand) bareInput {
	ends := []string{"succeeded", "succeeded", "failed", "permanent", "suspended", "released", "preempted", "timed_out"}
	in := bareInput{Saves: r.IntN(5), Ms: 1 + r.IntN(400), End: ends[r.IntN(len(ends))], Tries: 1 + r.IntN(4)}
	if r.IntN(2) == 0 {
		in.Waits = 1 + r.IntN(1500)
	}
	return in
}

// bareWorker uses the protocol without the SDK and violates it on purpose: it has no fence,
// continues to write after it has lost its lease, and does not mark a repeated settlement as a
// repetition. The store must refuse its stale writes.
type bareWorker struct {
	p  *process
	id belay.WorkerID

	mu        sync.Mutex
	held      map[belay.RunID]belay.Assignment
	order     []belay.RunID
	claimSeen int64
	lost      bool
	draining  bool
}

// startBare runs a bare worker until its process ends.
func startBare(p *process) {
	for p.ctx.Err() == nil {
		b := &bareWorker{p: p, held: make(map[belay.RunID]belay.Assignment)}
		b.session()
	}
}

func (b *bareWorker) spec() belay.WorkerSpec {
	return belay.WorkerSpec{
		ID: b.id, Name: b.p.name, Workflows: []belay.Registration{{Workflow: "bare"}}, Capacity: 2,
		TTL: belay.Duration(b.p.ttl), Process: belay.Process{Host: "host", PID: b.p.pid},
	}
}

func (b *bareWorker) session() {
	p := b.p
	b.id = belay.WorkerID(p.w.id(p.name, uint64(p.w.gate.now())))
	for {
		s, err := p.link.OpenWorker(p.ctx, b.spec())
		if err == nil {
			b.id = s.ID
			break
		}
		if p.ctx.Err() != nil || belay.CodeOf(err) != belay.CodeUnavailable {
			b.pause(50 * time.Millisecond)
			return
		}
		b.pause(50 * time.Millisecond)
	}
	var wg sync.WaitGroup
	wg.Go(b.beat)
	b.claim(&wg)
	wg.Wait()
	if !p.link.dead.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), p.w.unlike(p.name, time.Second))
		defer cancel()
		_ = p.link.CloseWorker(ctx, b.id)
	}
}

func (b *bareWorker) pause(d time.Duration) {
	timer := time.NewTimer(b.p.w.unlike(b.p.name, d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.p.ctx.Done():
	}
}

func (b *bareWorker) over() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost || b.draining || b.p.ctx.Err() != nil
}

func (b *bareWorker) lose() {
	b.mu.Lock()
	b.lost = true
	b.mu.Unlock()
}

// beat sends heartbeats until the session has ended.
func (b *bareWorker) beat() {
	for !b.over() {
		b.pause(b.p.ttl / 3)
		if b.p.ctx.Err() == nil { // without this check, a process that ends would renew its session
			b.heartbeat()
		}
	}
}

func (b *bareWorker) heartbeat() {
	b.mu.Lock()
	h := belay.Heartbeat{Worker: b.id, ClaimSeen: b.claimSeen}
	for _, id := range b.order {
		h.Holds = append(h.Holds, belay.Held{Execution: id.Execution, Token: id.Token})
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(b.p.ctx, b.p.w.unlike(b.p.name, b.p.ttl/2))
	defer cancel()
	r, err := b.p.link.Heartbeat(ctx, h)
	if belay.CodeOf(err) == belay.CodeLeaseLost && err != nil {
		b.lose()
		return
	}
	b.mu.Lock()
	b.draining = b.draining || r.Drain
	b.mu.Unlock()
}

// claim claims executions until the session has ended.
func (b *bareWorker) claim(wg *sync.WaitGroup) {
	for n, repeat := int64(1), false; !b.over(); {
		slots := 2
		b.mu.Lock()
		slots -= len(b.order)
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(b.p.ctx, b.p.w.unlike(b.p.name, 3*time.Second))
		r, err := b.p.link.Claim(ctx, belay.ClaimRequest{
			Worker: b.id, Number: n, Slots: max(slots, 0), Wait: 700 * time.Millisecond, Repeat: repeat,
		})
		cancel()
		switch {
		case err == nil && len(r.Assignments) > 0:
			b.won(n, r.Assignments, wg)
			n, repeat = n+1, false
		case err == nil:
			repeat = false
			b.pause(20 * time.Millisecond)
		case belay.CodeOf(err) == belay.CodeLeaseLost:
			b.lose()
		// The worker gives up claim n without knowing what it won. Its next heartbeat says so, and does not
		// name the runs that claim n may have won; so the server releases them.
		case belay.CodeOf(err) == belay.CodeConflict || n%3 == 0:
			b.mu.Lock()
			b.claimSeen = n
			b.mu.Unlock()
			n, repeat = n+1, false
		default:
			repeat = true
			b.pause(50 * time.Millisecond)
		}
	}
}

func (b *bareWorker) won(n int64, all []belay.Assignment, wg *sync.WaitGroup) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claimSeen = n
	for _, a := range all {
		id := a.Lease.Run()
		if _, have := b.held[id]; have {
			continue
		}
		b.held[id] = a
		b.order = append(b.order, id)
		wg.Go(func() { b.work(a) })
	}
}

// work saves the checkpoints that the execution does not have yet, and settles the run. It continues
// even after the worker has lost its session: the store must refuse these later writes.
func (b *bareWorker) work(a belay.Assignment) {
	defer b.forget(a.Lease.Run())
	var in bareInput
	if err := json.Unmarshal(a.Input, &in); err != nil {
		return
	}
	done := make(map[string]bool)
	for _, c := range a.Checkpoints {
		done[c.Key] = true
	}
	for i := range in.Saves {
		key := fmt.Sprint("part ", i)
		if done[key] {
			continue
		}
		b.pause(time.Duration(in.Ms) * time.Millisecond)
		c := belay.Chunk{Lease: a.Lease, Name: fmt.Sprintf("log %d", a.Lease.Token), N: int64(i), Data: []byte(key)}
		if !b.untilAnswered(func(ctx context.Context) error { return b.p.link.Append(ctx, c) }) {
			return
		}
		s := belay.Save{
			Lease: a.Lease, Op: b.op(a.Lease, key), Kind: belay.KindStep, Key: key,
			Data: json.RawMessage(fmt.Sprintf("%q", key)), CostTokens: in.Cost,
		}
		if !b.untilAnswered(func(ctx context.Context) error {
			_, err := b.p.link.Save(ctx, s)
			s.Repeat = true
			return err
		}) {
			return
		}
	}
	b.pause(time.Duration(in.Ms) * time.Millisecond)
	s := b.end(a, in)
	b.untilAnswered(func(ctx context.Context) error { return b.p.link.Settle(ctx, s) })
}

func (b *bareWorker) op(l belay.Lease, key string) (id belay.OpID) {
	b.p.w.fill(id[:], fmt.Sprintf("%x %d %s", l.Execution, l.Token, key), 0)
	return id
}

func (b *bareWorker) end(a belay.Assignment, in bareInput) belay.Settlement {
	s := belay.Settlement{
		Lease: a.Lease, Op: b.op(a.Lease, "end"), Outcome: belay.OutcomeSucceeded, Output: json.RawMessage(`"bare"`),
		CostTokens: in.Cost,
	}
	waited := len(a.Signals) > 0 || in.Waits > 0 && len(a.Checkpoints) > 0
	switch {
	case in.End == "suspended" && !waited && a.Attempt == 1:
		s.Outcome, s.Output, s.SignalSeen = belay.OutcomeSuspended, nil, a.SignalSeq
		s.Wait = time.Duration(in.Waits) * time.Millisecond
		s.WaitText = signalName
		if in.Waits > 0 && in.Saves == 0 {
			s.Outcome, s.Wait = belay.OutcomeSucceeded, 0
		}
	case (in.End == "released" || in.End == "preempted") && int64(a.Lease.Token)&0xffffffff <= int64(in.Tries):
		s.Output = nil
		s.Outcome = belay.OutcomeReleased
		if in.End == "preempted" {
			s.Outcome = belay.OutcomePreempted
		}
	case in.End == "permanent":
		s.Outcome, s.Output, s.Failure = belay.OutcomeFailed, nil, &belay.Failure{
			Class: belay.ClassPermanent, Message: "no use",
		}
	case in.End == "failed" && a.Attempt <= in.Tries:
		s.Outcome, s.Output, s.Failure = belay.OutcomeFailed, nil, &belay.Failure{
			Class: belay.ClassTransient, Message: "not yet",
		}
		s.RetryAfter = time.Duration(in.Waits) * time.Millisecond
	case in.End == "timed_out" && a.Attempt <= in.Tries:
		s.Outcome, s.Output = belay.OutcomeTimedOut, nil
	}
	return s
}

// untilAnswered repeats a write until it gets an answer, and reports whether the run may go on.
func (b *bareWorker) untilAnswered(write func(context.Context) error) bool {
	for b.p.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), b.p.w.unlike(b.p.name, 2*time.Second))
		err := write(ctx)
		cancel()
		switch {
		case err == nil:
			return true
		case belay.CodeOf(err) != belay.CodeUnavailable:
			return false
		}
		b.pause(40 * time.Millisecond)
	}
	return false
}

func (b *bareWorker) forget(id belay.RunID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, id)
	for i, x := range b.order {
		if x == id {
			b.order = append(b.order[:i:i], b.order[i+1:]...)
			return
		}
	}
}
