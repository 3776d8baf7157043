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
	// maxOpening is how many requests for the ends of executions are on their way
	// to a server that has not answered yet. Whoever comes meanwhile goes with the
	// next one.
	maxOpening = 2
	// maxEvent bounds one event of an answer.
	maxEvent = 32 << 20
)

// awaiter waits for the ends of executions, for those of many in one request: a
// thousand callers would be a thousand requests otherwise.
type awaiter struct {
	c *Client

	mu      sync.Mutex
	queue   []*waiter
	opening int
	alone   bool // the server knows no such request
}

// waiter is a caller that waits for the end of one execution.
type waiter struct {
	id    belay.ExecutionID
	reply chan awaited // takes the answer without anybody waiting
	group *group       // nil while it is queued; under the awaiter's mu
	gone  bool         // likewise: it was answered, or nobody waits any more
}

// awaited is what a waiter is told: with neither, ask again.
type awaited struct {
	x   *belay.Execution
	err error
}

// group are the waiters of one request.
type group struct {
	waiters map[belay.ExecutionID][]*waiter
	left    int // that wait; under the awaiter's mu
	ctx     context.Context
	end     context.CancelFunc
}

var errCutOff = errors.New("the answer was cut off")

// errAlone says that the server does not know how to wait for many.
var errAlone = errors.New("the server waits for one execution at a time")

// do waits for the end of an execution, at most for so long. It is nil if it has
// not ended by then, or somebody has to ask again.
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
	if a.alone {
		return errAlone
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

// take makes a group of those that have queued. With none, one opens less.
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

// leave forgets a waiter; a request that nobody waits for any more ends. One that
// was answered at the same moment counts no more already.
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

// ask sends the request of a group and has its answer read.
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
	answer, err := a.c.stream(g.ctx, &r)
	if err != nil {
		defer done()
		if r.status == http.StatusNotFound || r.status == http.StatusMethodNotAllowed || errors.Is(err, errSlow) {
			// An older server, or a proxy that holds back what it should pass on.
			a.mu.Lock()
			a.alone = true
			a.mu.Unlock()
			err = errAlone
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

// read hands on what the server tells. Without an error whoever is left asks again.
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
			over, err := a.heard(g, name, data)
			if over || err != nil {
				return err
			}
		}
	}
	return unreached(r, cmp.Or(context.Cause(answer.ctx), lines.Err(), errCutOff))
}

// heard takes in one event.
func (a *awaiter) heard(g *group, name string, data []byte) (over bool, err error) {
	switch name {
	case wire.EventOver:
		return true, nil
	case wire.EventEnded:
		x := new(belay.Execution)
		if err := json.Unmarshal(data, x); err != nil {
			return false, unreadableEvent(err)
		}
		a.tell(g, x.ID, awaited{x: x})
	case wire.EventRefused:
		var no wire.Refused
		if err := json.Unmarshal(data, &no); err != nil || no.Error == nil {
			return false, unreadableEvent(err)
		}
		a.tell(g, no.Execution, awaited{err: problem(no.Error)})
	}
	return false, nil
}

func unreadableEvent(err error) error {
	return &belay.Error{Code: belay.CodeInternal, Op: "await", Message: "the server's answer cannot be read", Err: err}
}

// tell answers the waiters for one execution, each with its own copy.
func (a *awaiter) tell(g *group, id belay.ExecutionID, r awaited) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := g.waiters[id]
	delete(g.waiters, id)
	told := 0
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
		told++
	}
	if told > 0 {
		g.lessLocked(told)
	}
}

// finish answers all that are left.
func (a *awaiter) finish(g *group, r awaited) {
	for id := range g.waiters {
		a.tell(g, id, r)
	}
	g.end()
}
