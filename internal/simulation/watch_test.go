package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// watches are the watchers; each watcher follows the events of one execution.
type watches struct {
	w      *world
	ctx    context.Context
	cancel func()
	wg     sync.WaitGroup

	mu  sync.Mutex
	all []*watch
}

// watch is one watcher with its position.
type watch struct {
	name      string
	execution belay.ExecutionID
	last      int64
	began     time.Duration
}

func newWatches(w *world) *watches {
	ctx, cancel := context.WithCancel(context.Background())
	return &watches{w: w, ctx: ctx, cancel: cancel}
}

func (x *watches) begin(client string, n uint64, id belay.ExecutionID) {
	v := &watch{name: fmt.Sprintf("%s/watch%d", client, n), execution: id, began: x.w.gate.now()}
	x.mu.Lock()
	x.all = append(x.all, v)
	x.mu.Unlock()
	l := &link{w: x.w, actor: v.name, died: make(chan struct{})}
	x.wg.Go(func() {
		x.follow(v, l)
		l.wg.Wait()
	})
}

// follow reads the events after the watcher's position, call after call, until the watchers are
// stopped.
func (x *watches) follow(v *watch, l *link) {
	for x.ctx.Err() == nil {
		x.mu.Lock()
		q := belay.EventQuery{Execution: v.execution, After: v.last, Wait: x.w.unlike(v.name, 4*time.Second), Limit: 5}
		x.mu.Unlock()
		ctx, cancel := context.WithTimeout(x.ctx, x.w.unlike(v.name, 6*time.Second))
		events, err := l.Events(ctx, q)
		cancel()
		if err != nil {
			timer := time.NewTimer(x.w.unlike(v.name, 100*time.Millisecond))
			select {
			case <-timer.C:
			case <-x.ctx.Done():
			}
			continue
		}
		for _, e := range events {
			x.w.history.saw(promise.Sighting{
				Watcher: v.name, Execution: e.Execution, Seq: e.Seq, Kind: e.Kind, Began: x.w.zero.Add(v.began),
				At: x.w.zero.Add(x.w.gate.now()),
			})
			x.mu.Lock()
			v.last = e.Seq
			x.mu.Unlock()
		}
	}
}

// await calls Await for an execution until a reply shows that the execution has ended.
func (x *watches) await(client string, n uint64, id belay.ExecutionID) {
	l := &link{w: x.w, actor: fmt.Sprintf("%s/await%d", client, n), died: make(chan struct{})}
	x.wg.Go(func() {
		defer l.wg.Wait()
		for x.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(x.ctx, x.w.unlike(l.actor, 6*time.Second))
			e, err := l.Await(ctx, id, 4*time.Second)
			cancel()
			if err == nil && e.State.Terminal() {
				return
			}
			timer := time.NewTimer(x.w.unlike(l.actor, 50*time.Millisecond))
			select {
			case <-timer.C:
			case <-x.ctx.Done():
			}
		}
	})
}

// behind lists the watchers that have not received all events.
func (x *watches) behind(newest func(belay.ExecutionID) int64) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []string
	for _, v := range x.all {
		if n := newest(v.execution); v.last < n {
			out = append(out, fmt.Sprintf("%s is at event %d of %d of %s", v.name, v.last, n, short(v.execution)))
		}
	}
	slices.Sort(out)
	return out
}
