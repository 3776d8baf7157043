package httpapi

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

const (
	// smallBody is the maximum size, in bytes, of a body that the API reads without waiting for
	// memory. So short heartbeats, claims and reads never wait for memory. A longer heartbeat
	// waits, but gets memory before the other bodies that wait; see firstOf.
	smallBody = 64 << 10
	// memoryWait is how long a large body waits for memory.
	memoryWait = 2 * time.Second
	// firstOf limits the bodies that get memory before others: together they may have 1/firstOf of
	// the whole budget. So a client that sends many long heartbeats, or sends them slowly, leaves
	// memory for the other bodies.
	firstOf = 8
)

// budget is a memory budget: it limits how many bytes of large request bodies, or of logs that
// clients read, are in memory at the same time, so that clients together never need more memory
// than the server has. A request takes bytes of the budget before it reads a body or a log, and
// gives them back when the body or log is no longer in memory. Requests that wait for memory get it
// in order of arrival.
type budget struct {
	mu    sync.Mutex
	free  int64
	ahead int64 // how many more bytes the bodies that get memory before others may take
	// before lists the waiting bodies that get memory before others, queue the other waiting bodies;
	// the elements of both lists are *waiter.
	before, queue list.List

	users int // how many requests use the budget of one caller; guarded by the mu of Reading
}

// waiter is a body or a part of a log that waits for memory.
type waiter struct {
	n       int64
	first   bool
	granted chan struct{}
}

// releaseBody gives back the memory of a request's body before the request is answered: a request
// that waits, for example for a result, no longer needs its body.
func releaseBody(ctx context.Context) {
	if in, ok := ctx.Value(admittedKey{}).(*admitted); ok {
		in.release()
	}
}

func newBudget(n int64) *budget { return &budget{free: n, ahead: n / firstOf} }

// take waits for n bytes of memory, at most memoryWait. The caller must call give when the bytes
// are no longer in memory.
func (r *budget) take(ctx context.Context, n int64) (give func(), err error) {
	return r.enter(ctx, n, false)
}

// first is like take, but its body gets memory before the bodies of take. The bodies of first
// together get no more than 1/firstOf of the budget; a further body waits like a body of take.
func (r *budget) first(ctx context.Context, n int64) (give func(), err error) {
	return r.enter(ctx, n, true)
}

func (r *budget) enter(ctx context.Context, n int64, first bool) (give func(), err error) {
	if n <= smallBody {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, memoryWait)
	defer cancel()
	return r.queued(ctx, n, first)
}

// wait waits for n bytes of memory until ctx ends.
func (r *budget) wait(ctx context.Context, n int64) (give func(), err error) {
	return r.queued(ctx, n, false)
}

func (r *budget) queued(ctx context.Context, n int64, first bool) (give func(), err error) {
	r.mu.Lock()
	w := &waiter{n: n, granted: make(chan struct{})}
	queue := &r.queue
	if first && n <= r.ahead {
		w.first, queue, r.ahead = true, &r.before, r.ahead-n
	}
	e := queue.PushBack(w)
	r.grantLocked()
	r.mu.Unlock()
	select {
	case <-w.granted:
		return func() { r.give(w) }, nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-w.granted: // the memory was granted when ctx ended
		return func() { r.give(w) }, nil
	default:
	}
	queue.Remove(e)
	r.returnLocked(w)
	r.grantLocked() // later bodies in the queue may need less memory
	return nil, &belay.Error{
		Code:       belay.CodeUnavailable,
		Message:    "the server has too many bytes in memory at the moment; nothing was done, repeat the request",
		RetryAfter: time.Second, Err: errBusy,
	}
}

func (r *budget) give(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += w.n
	r.returnLocked(w)
	r.grantLocked()
}

// If the body of w got its memory through first, returnLocked makes these bytes available to other
// bodies of first again.
func (r *budget) returnLocked(w *waiter) {
	if w.first {
		r.ahead += w.n
	}
}

// grantLocked gives free memory to the bodies that wait: first to those in before, then to those in
// queue.
func (r *budget) grantLocked() {
	for _, queue := range []*list.List{&r.before, &r.queue} {
		for e := queue.Front(); e != nil; e = queue.Front() {
			w, ok := e.Value.(*waiter)
			if !ok || w.n > r.free {
				return
			}
			r.free -= w.n
			queue.Remove(e)
			close(w.granted)
		}
	}
}
