package httpapi

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

const (
	// smallBody is up to how many bytes a body waits for no room: heartbeats,
	// claims and all that is asked, which must get through whatever else does.
	// A longer heartbeat goes before the others that wait; see firstOf.
	smallBody = 64 << 10
	// roomWait is how long a large body waits for room.
	roomWait = 2 * time.Second
	// firstOf is which part of the room the bodies may have that go before others: who
	// sends many of them, or sends them slowly, leaves the others their turn.
	firstOf = 8
)

// room bounds how many bytes of large bodies are held at the same time, from
// before they are read until they are answered, so that what clients send
// together is never more than the server has. Those who wait get it in order.
type room struct {
	mu    sync.Mutex
	free  int64
	ahead int64 // what bodies that go before others may still have of it
	// before are those that wait and go before others, queue are the others; both of *wish.
	before, queue list.List

	users int // of a caller's share; under the mu of what shares it
}

// wish is a body that waits for room.
type wish struct {
	n       int64
	first   bool
	granted chan struct{}
}

// leaveRoom gives back the room of a request whose body is done with, and which
// goes on to wait.
func leaveRoom(ctx context.Context) {
	if in, ok := ctx.Value(admittedKey{}).(*admitted); ok {
		in.release()
	}
}

func newRoom(n int64) *room { return &room{free: n, ahead: n / firstOf} }

// take waits for room for n bytes, and refuses when that takes too long. give must
// be called when they are not held any more.
func (r *room) take(ctx context.Context, n int64) (give func(), err error) {
	return r.enter(ctx, n, false)
}

// first is like take, but its body goes ahead of the bodies that wait, as long as all bodies
// admitted by first together have no more than their reserved share of the room.
func (r *room) first(ctx context.Context, n int64) (give func(), err error) {
	return r.enter(ctx, n, true)
}

func (r *room) enter(ctx context.Context, n int64, first bool) (give func(), err error) {
	if n <= smallBody {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	return r.queued(ctx, n, first)
}

// wait waits for room for n bytes until ctx ends.
func (r *room) wait(ctx context.Context, n int64) (give func(), err error) {
	return r.queued(ctx, n, false)
}

func (r *room) queued(ctx context.Context, n int64, first bool) (give func(), err error) {
	r.mu.Lock()
	w := &wish{n: n, granted: make(chan struct{})}
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
	case <-w.granted: // both came at once
		return func() { r.give(w) }, nil
	default:
	}
	queue.Remove(e)
	r.returnLocked(w)
	r.grantLocked() // those behind it may need less
	return nil, &belay.Error{
		Code: belay.CodeUnavailable, Message: "too much is on its way at the same time; nothing was done, ask again",
		RetryAfter: time.Second, Err: errBusy,
	}
}

func (r *room) give(w *wish) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += w.n
	r.returnLocked(w)
	r.grantLocked()
}

// returnLocked gives back what a body has of the part of those that go first.
func (r *room) returnLocked(w *wish) {
	if w.first {
		r.ahead += w.n
	}
}

// grantLocked gives what is free to those that wait, in order.
func (r *room) grantLocked() {
	for _, queue := range []*list.List{&r.before, &r.queue} {
		for e := queue.Front(); e != nil; e = queue.Front() {
			w, ok := e.Value.(*wish)
			if !ok || w.n > r.free {
				return
			}
			r.free -= w.n
			queue.Remove(e)
			close(w.granted)
		}
	}
}
