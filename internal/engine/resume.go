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
	// readers is how many of a claim's executions are read at a time.
	readers = 4
	// replyBytes is about how much a claim's reply carries in payloads. What has no room
	// is read by its worker with Resume.
	replyBytes = 8 << 20
	// pageBytes is about how much one read of what an owner goes on from carries, and what
	// each reader of a claim reserves.
	pageBytes = replyBytes / readers
)

// room is what a reply may still carry.
type room struct {
	mu    sync.Mutex
	bytes int
}

// reserve takes room for one read, 0 if there is none.
func (r *room) reserve() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(r.bytes, pageBytes)
	r.bytes -= n
	return n
}

// release gives back what was not used; a read may have used more than was reserved.
func (r *room) release(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes = max(0, r.bytes+n)
}

// assignments adds to what was won all that its new owner goes on from, as far as it has
// room in one reply. Only the owner writes checkpoints, so they may be read after the
// commit.
func (e *Engine) assignments(ctx context.Context, won []machine.Claimed) (belay.ClaimReply, error) {
	reply := belay.ClaimReply{Assignments: make([]belay.Assignment, len(won))}
	now := e.store.Now()
	free := &room{bytes: replyBytes}
	var left []int // that have more to them than was won
	for i := range won {
		x, a := &won[i].Execution, &reply.Assignments[i]
		*a = assignment(&won[i], now)
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
		return belay.ClaimReply{}, *err // the claim is asked again by its number
	}
	return reply, nil
}

// fill reads what an assignment goes on from, and its input if that is not known, if
// there is room for it.
func (e *Engine) fill(ctx context.Context, a *belay.Assignment, known bool, free *room, now machine.Time) error {
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

// size is how many bytes of payloads were read.
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

// Resume reads a part of what the owner of a lease goes on from.
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
	}
	if x.Policy != nil {
		a.Policy = *x.Policy
		if t := a.Policy.Timeout.D(); t > 0 {
			a.Remaining = max(time.Millisecond, x.StartedAt.Add(t).Sub(now))
		}
	}
	return a
}
