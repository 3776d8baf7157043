package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

const (
	// readers is the number of a claim's executions that are read at the same time.
	readers = 4
	// replyBytes is the approximate maximum of payload bytes in the reply to a claim. The worker
	// reads the rest with Resume.
	replyBytes = 8 << 20
	// pageBytes is the approximate maximum of payload bytes in one read of checkpoints and signals.
	// Before such a read, pageBytes of the reply's budget are reserved for it.
	pageBytes = replyBytes / readers
)

// budget is the number of bytes that a reply may still take.
type budget struct {
	mu    sync.Mutex
	bytes int
}

// reserve takes the bytes for one read from the budget; it returns 0 if none are left.
func (r *budget) reserve() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(r.bytes, pageBytes)
	r.bytes -= n
	return n
}

// release returns unused bytes to the budget. n is negative if a read used more bytes than it had
// reserved.
func (r *budget) release(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes = max(0, r.bytes+n)
}

// assignments adds the checkpoints, signals and inputs to the won executions, as far as they fit
// into one reply. Only the owner writes checkpoints, so they may be read after the commit.
func (e *Engine) assignments(ctx context.Context, won []machine.Claimed) (belay.ClaimReply, error) {
	reply := belay.ClaimReply{Assignments: make([]belay.Assignment, len(won))}
	now := e.store.Now()
	free := &budget{bytes: replyBytes}
	var left []int // executions whose checkpoints, signals or input must be read
	for i := range won {
		x, a := &won[i].Execution, &reply.Assignments[i]
		*a = assignment(&won[i], now)
		if e.opt.RunTrace != nil {
			a.Trace = e.opt.RunTrace(a.Lease.Execution, a.Lease.Token, a.Trace)
		}
		if free.bytes -= len(a.Input); free.bytes < 0 {
			free.bytes, a.Input, a.More = 0, nil, true
			continue
		}
		if x.Checkpoints > 0 || x.SignalSeq > 0 || !won[i].Known {
			left = append(left, i)
		}
	}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for range min(len(left), readers) {
		all.Go(func() {
			for n := next.Add(1) - 1; int(n) < len(left) && failed.Load() == nil; n = next.Add(1) - 1 {
				i := left[n]
				if err := e.fill(ctx, &reply.Assignments[i], won[i].Known, free, now); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return belay.ClaimReply{}, *err // the worker repeats the claim with its number
	}
	return reply, nil
}

// fill reads the checkpoints and signals of an assignment, and its input unless the input is known,
// if the budget has bytes for them.
func (e *Engine) fill(ctx context.Context, a *belay.Assignment, known bool, free *budget, now machine.Time) error {
	n := free.reserve()
	if n == 0 {
		a.More = true
		return nil
	}
	rec, err := e.store.Read(store.Urgent(ctx), store.Read{
		Execution: a.Lease.Execution, Resume: true, Bytes: n, Spec: !known,
	})
	if err != nil {
		return err
	}
	r := machine.Resume(rec, now)
	free.release(n - size(r))
	if !known {
		a.Input = r.Input
	}
	a.Checkpoints, a.Signals, a.More = r.Checkpoints, r.Signals, r.More
	return nil
}

// size is the number of payload bytes that were read.
func size(r belay.Resumed) int {
	n := len(r.Input)
	for i := range r.Checkpoints {
		n += len(r.Checkpoints[i].Data) + store.RowBytes
	}
	for i := range r.Signals {
		n += len(r.Signals[i].Payload) + store.RowBytes
	}
	return n
}

// Resume reads a part of the checkpoints and signals from which the owner of a lease continues.
func (e *Engine) Resume(ctx context.Context, q belay.ResumeQuery) (belay.Resumed, error) {
	rec, err := e.store.Read(store.Urgent(ctx), store.Read{
		Execution: q.Lease.Execution, Resume: true, ResumeAfter: q.After, Bytes: pageBytes, Spec: q.After == 0,
	})
	if err != nil {
		return belay.Resumed{}, err
	}
	if err := machine.Owns(rec.Execution, q.Lease); err != nil {
		return belay.Resumed{}, err
	}
	return machine.Resume(rec, e.store.Now()), nil
}

// Signals reads the first signals that no checkpoint has consumed.
func (e *Engine) Signals(ctx context.Context, q belay.SignalQuery) ([]belay.Signal, error) {
	rec, err := e.store.Read(store.Urgent(ctx), store.Read{
		Execution: q.Execution, Signals: true, ResumeAfter: q.After, Bytes: pageBytes,
	})
	if err != nil {
		return nil, err
	}
	return machine.Unconsumed(rec, q.After), nil
}

func assignment(c *machine.Claimed, now machine.Time) belay.Assignment {
	x := &c.Execution
	a := belay.Assignment{
		Lease:    belay.Lease{Execution: x.ID, Worker: x.Worker, Token: x.Token, Secret: x.Secret},
		Workflow: x.Workflow, Version: x.Version, Queue: x.Queue, Input: c.Input, Generation: x.Generation,
		Attempt: x.Attempts + 1, Parent: x.Parent, First: c.First, Alone: c.Alone, SignalSeq: x.SignalSeq,
		Trace: x.Trace,
	}
	if x.Policy != nil {
		a.Policy = *x.Policy
		if t := a.Policy.Timeout.D(); t > 0 {
			a.Remaining = max(time.Millisecond, x.StartedAt.Add(t).Sub(now))
		}
	}
	return a
}
