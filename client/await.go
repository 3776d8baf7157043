package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

const (
	// maxOpening is how many await requests may be in flight before the server begins to send their answers. While
	// maxOpening requests wait for the beginning of an answer, new callers queue; they then share the next request.
	maxOpening = 2
	// maxEvent is the largest size of one event in the stream of an answer, in bytes.
	maxEvent = 32 << 20
)

// awaiter waits for the ends of executions on behalf of many callers. Each of its requests names
// many executions, so that a thousand callers do not make a thousand requests.
type awaiter struct {
	c *Client

	mu          sync.Mutex
	queue       []*waiter
	opening     int
	unsupported bool // the server does not support the await request
}

// waiter is a caller that waits for the end of one execution.
type waiter struct {
	id    belay.ExecutionID
	reply chan awaited // buffered, so that a goroutine that sends the answer never blocks
	group *group       // nil while the waiter is queued; the awaiter's mu guards it
	gone  bool         // the waiter was answered, or its caller has left; the awaiter's mu guards it
}

// awaited is the answer to a waiter: an execution or an error. An awaited with neither means that
// the request ended before the execution did; the caller then calls do again.
type awaited struct {
	x   *belay.Execution
	err error
}

// group has the waiters of one request.
type group struct {
	waiters map[belay.ExecutionID][]*waiter
	left    int // how many of the waiters still wait; the awaiter's mu guards it
	ctx     context.Context
	end     context.CancelFunc
}

var errCutOff = errors.New("the answer was cut off")

// errUnsupported says that the server cannot wait for several executions in one request.
var errUnsupported = errors.New("the server waits for one execution in each request")

// do waits until the execution has ended, for the time wait at most. It returns nil if the
// execution has not ended by then. It may return nil earlier, when its request has ended; the
// caller then calls do again.
func (a *awaiter) do(ctx context.Context, id belay.ExecutionID, wait time.Duration) (*belay.Execution, error) {
	w := &waiter{id: id, reply: make(chan awaited, 1)}
	if err := a.enqueue(w); err != nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r := <-w.reply:
		return r.x, r.err
	case <-timer.C:
		a.leave(w)
		return nil, nil
	case <-ctx.Done():
		a.leave(w)
		return nil, context.Cause(ctx)
	case <-a.c.open.Done():
		a.leave(w)
		return nil, errClosed
	}
}

func (a *awaiter) enqueue(w *waiter) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unsupported {
		return errUnsupported
	}
	a.queue = append(a.queue, w)
	if a.opening == maxOpening {
		return nil
	}
	done, err := a.c.begin()
	if err != nil {
		return err
	}
	a.opening++
	go func() {
		defer done()
		for g := a.take(); g != nil; g = a.take() {
			a.ask(g)
		}
	}()
	return nil
}

// take makes a group of the queued waiters, for at most wire.MaxAwait executions. If no waiter is
// queued, it returns nil, and decrements opening because the goroutine that called take then ends.
func (a *awaiter) take() *group {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := &group{waiters: make(map[belay.ExecutionID][]*waiter)}
	n := 0
	for _, w := range a.queue {
		if !w.gone {
			if len(g.waiters) == wire.MaxAwait {
				break
			}
			w.group = g
			g.waiters[w.id] = append(g.waiters[w.id], w)
			g.left++
		}
		n++
	}
	if a.queue = a.queue[n:]; len(a.queue) == 0 {
		a.queue = nil
	}
	if g.left == 0 {
		a.opening--
		return nil
	}
	g.ctx, g.end = context.WithCancel(a.c.open)
	return g
}

// leave removes a waiter whose caller does not wait any more. If the waiter's request has no other
// waiters, leave ends the request. If the waiter was answered at the same moment, leave does
// nothing.
func (a *awaiter) leave(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.gone {
		return
	}
	w.gone = true
	if w.group != nil {
		w.group.lessLocked(1)
	}
}

func (g *group) lessLocked(n int) {
	if g.left -= n; g.left == 0 {
		g.end()
	}
}

// ask sends the request of a group and starts a goroutine that reads the answer.
func (a *awaiter) ask(g *group) {
	ids := make([]belay.ExecutionID, 0, len(g.waiters))
	for id := range g.waiters {
		ids = append(ids, id)
	}
	r := request{op: "await", method: http.MethodPost, path: "/v1/await", read: true, wait: wire.MaxWait}
	var err error
	if r.body, err = body(r.op, wire.Await{Executions: ids, WaitMS: wire.Millis(r.wait)}); err != nil {
		a.finish(g, awaited{err: err})
		return
	}
	done, err := a.c.begin()
	if err != nil {
		a.finish(g, awaited{err: err})
		return
	}
	answer, err := a.c.stream(g.ctx, a.c.small.connection(), &r)
	if err != nil {
		defer done()
		if r.status == http.StatusNotFound || r.status == http.StatusMethodNotAllowed || errors.Is(err, errSlow) {
			// The server is too old for this request, or a proxy buffers the answer instead of passing
			// it on.
			a.mu.Lock()
			a.unsupported = true
			a.mu.Unlock()
			err = errUnsupported
		}
		a.finish(g, awaited{err: err})
		return
	}
	go func() {
		defer done()
		defer answer.close()
		a.finish(g, awaited{err: a.read(g, &r, answer)})
	}()
}

// read delivers the events of an answer to the waiters. If it returns nil, the callers of the
// remaining waiters send a new request.
func (a *awaiter) read(g *group, r *request, answer *answer) error {
	lines := bufio.NewScanner(answer.body)
	lines.Buffer(make([]byte, 0, 16<<10), maxEvent)
	name := ""
	for lines.Scan() {
		field, data, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(field) {
		case "event":
			name = string(data)
		case "data":
			over, err := a.event(g, name, data)
			if over || err != nil {
				return err
			}
		}
	}
	return noAnswer(r, cmp.Or(context.Cause(answer.ctx), lines.Err(), errCutOff))
}

// event handles one event of an answer. It reports whether the answer is complete.
func (a *awaiter) event(g *group, name string, data []byte) (over bool, err error) {
	switch name {
	case wire.EventOver:
		return true, nil
	case wire.EventEnded:
		x := new(belay.Execution)
		if err := json.Unmarshal(data, x); err != nil {
			return false, unreadableEvent(err)
		}
		a.deliver(g, x.ID, awaited{x: x})
	case wire.EventRefused:
		var no wire.Refused
		if err := json.Unmarshal(data, &no); err != nil || no.Error == nil {
			return false, unreadableEvent(err)
		}
		a.deliver(g, no.Execution, awaited{err: problem(no.Error)})
	}
	return false, nil
}

func unreadableEvent(err error) error {
	return &belay.Error{Code: belay.CodeInternal, Op: "await", Message: "the server's answer cannot be read", Err: err}
}

// deliver sends a result to the waiters for one execution. Each waiter gets a copy of the
// execution.
func (a *awaiter) deliver(g *group, id belay.ExecutionID, r awaited) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := g.waiters[id]
	delete(g.waiters, id)
	delivered := 0
	for _, w := range all {
		if w.gone {
			continue
		}
		one := r
		if r.x != nil {
			x := *r.x
			one.x = &x
		}
		w.gone = true
		w.reply <- one
		delivered++
	}
	if delivered > 0 {
		g.lessLocked(delivered)
	}
}

// finish sends a result to all remaining waiters of a group.
func (a *awaiter) finish(g *group, r awaited) {
	for id := range g.waiters {
		a.deliver(g, id, r)
	}
	g.end()
}
