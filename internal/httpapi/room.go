package httpapi

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

const (
	// smallBody is the most bytes of a body that needs no room, so that heartbeats, claims and
	// reads always get through. A longer heartbeat goes before the other bodies that wait; see
	// firstOf.
	smallBody = 64 << 10
	// roomWait is how long a large body waits for room.
	roomWait = 2 * time.Second
	// firstOf says which part of the room the bodies that go before others may have together: one
	// part in firstOf. So a client that sends many long heartbeats, or sends them slowly, leaves
	// room for the other bodies.
	firstOf = 8
)

// room bounds how many bytes of large bodies are in memory at the same time, from before a body is
// read until its request is answered, so that clients together never need more memory than the
// server has. Bodies that wait get room in order of arrival.
type room struct {
	mu    sync.Mutex
	free  int64
	ahead int64 // how many more bytes the bodies that go before others may have
	// before has the waiting bodies that go before others, queue the other waiting bodies; both
	// hold *wish.
	before, queue list.List

	users int // how many requests use the room of one caller; guarded by the mu of Reading
}

// wish is a body that waits for room.
type wish struct {
	n       int64
	first   bool
	granted chan struct{}
}

// leaveRoom gives back the room of a request's body, which the request no longer needs although it
// still waits.
func leaveRoom(ctx context.Context) {
	if in, ok := ctx.Value(admittedKey{}).(*admitted); ok {
		in.release()
	}
}

func newRoom(n int64) *room { return &room{free: n, ahead: n / firstOf} }

// take waits for room for n bytes, at most roomWait. The caller must call give when the bytes are
// no longer in memory.
func (r *room) take(ctx context.Context, n int64) (give func(), err error) {
	return r.enter(ctx, n, false)
}

// first is like take, but its body goes before the bodies that wait, as long as all such bodies
// together have no more than their part of the room; see firstOf.
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
	case <-w.granted: // the room was granted when ctx ended
		return func() { r.give(w) }, nil
	default:
	}
	queue.Remove(e)
	r.returnLocked(w)
	r.grantLocked() // bodies behind it may need less room
	return nil, &belay.Error{
		Code:       belay.CodeUnavailable,
		Message:    "the server has too many bytes in memory at the moment; nothing was done, repeat the request",
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

// returnLocked gives the bytes of a body back to the part of the room for bodies that go before
// others, if the body was one of these; see firstOf.
func (r *room) returnLocked(w *wish) {
	if w.first {
		r.ahead += w.n
	}
}

// grantLocked gives free room to the bodies that wait, in order.
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
