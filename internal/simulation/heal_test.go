package simulation

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
)

// healBound is the longest time after the last fault for which an execution may stay open. The
// longest script with all its retries takes much less.
const healBound = 3 * time.Minute

// heal ends all faults and restarts all processes. It sends the missing signals to the executions that
// wait for signals, and runs the simulation until every execution has ended.
func (w *world) heal() {
	synctest.Wait()
	w.healed = w.gate.now()
	w.healing.Store(true)
	w.trace.add(w.healed, "fault", "none", "any more")
	w.nemesis = nil
	for _, l := range w.links {
		l.frozen, l.cutThere, l.cutBack = false, false, false
	}
	for _, t := range w.gate.those(func(*ticket) bool { return true }) {
		t.until = 0
	}
	for _, n := range w.nodes {
		if n.life == nil {
			n.start()
		}
	}
	for _, s := range w.workers {
		s.proc.thaw()
	}
	for _, c := range w.clients {
		c.stop()
	}
	if w.operator != nil {
		w.operator.stop()
	}
	if w.planner != nil {
		w.planner.stop()
	}
	if w.steward != nil {
		w.steward.stop()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	healer := w.newLink("healer", 0)
	go func() {
		defer close(done)
		w.helpAll(ctx, healer)
	}()
	deadline := w.gate.now() + healBound
	for w.gate.now() < deadline && !w.settled() {
		w.run(min(deadline, w.gate.now()+400*time.Millisecond))
		w.restaffNow()
	}
	synctest.Wait()
	cancel()
	w.drainGate(done)
}

// longHealed reports whether the last fault ended so long ago that no later event can be caused by a
// fault.
func (w *world) longHealed() bool {
	return w.healing.Load() && w.gate.now() > w.healed+10*time.Second
}

// restaffNow starts a process in each slot whose process has ended.
func (w *world) restaffNow() {
	for _, s := range w.workers {
		if s.proc.over() {
			s.start()
		}
	}
}

// settled reports whether every execution has ended and every watcher has seen all events.
func (w *world) settled() bool {
	w.history.mu.Lock()
	open := len(w.history.open)
	w.history.mu.Unlock()
	return open == 0 && !w.scheduled() && len(w.watches.behind(w.newestSeq)) == 0
}

func (w *world) newestSeq(id belay.ExecutionID) int64 {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	return w.history.newest[id]
}

// helpAll resumes paused executions, raises spent budgets, and sends a signal to each execution that waits for a signal
// that was never sent. An execution whose signal was sent must continue without help.
func (w *world) helpAll(ctx context.Context, l *link) {
	n := uint64(0)
	for ctx.Err() == nil {
		page, err := l.Executions(ctx, belay.Filter{
			Children: true, Limit: 1000,
			States: []belay.State{belay.Pending, belay.Running, belay.Waiting, belay.Paused},
		})
		for i := range page.Executions {
			if x := &page.Executions[i]; err == nil && ctx.Err() == nil {
				n++
				w.help(ctx, l, x, n)
			}
		}
		if w.plan.gates {
			w.openGates(ctx, l)
		}
		w.endSchedules(ctx, l, &n)
		timer := time.NewTimer(w.unlike("healer", 300*time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

func (w *world) help(ctx context.Context, l *link, x *belay.Execution, n uint64) {
	if x.Budget != nil && x.CostTokens >= x.Budget.Cost {
		_, _ = l.Control(ctx, belay.Control{
			Execution: x.ID, Action: belay.ActionBudget, Actor: "healer", Op: belay.OpID(w.id("healer", n)),
			Budget: &belay.Budget{Cost: 10*x.CostTokens + 1},
		})
		return
	}
	if x.State == belay.Paused && x.Reason.Code == "budget" {
		return // the raise of the budget resumes it
	}
	if x.State == belay.Paused {
		_, _ = l.Control(ctx, belay.Control{
			Execution: x.ID, Action: belay.ActionResume, Actor: "healer", Op: belay.OpID(w.id("healer", n)),
		})
		return
	}
	if x.State != belay.Waiting || x.Reason == nil || x.Reason.Code != "signal" {
		return
	}
	waiting, err := l.Signals(ctx, belay.SignalQuery{Execution: x.ID})
	if err != nil || slices.ContainsFunc(waiting, func(s belay.Signal) bool {
		return s.Name == signalName && s.Child.IsZero()
	}) {
		return
	}
	_ = l.Signal(ctx, belay.SignalRequest{
		Execution: x.ID, Name: signalName, Payload: fmt.Appendf(nil, `"sig healer %d"`, n),
		Op: belay.OpID(w.id("healer", n)),
	})
}

// openAtEnd describes the executions that have not ended, with their reasons.
func (w *world) openAtEnd() []string {
	w.history.mu.Lock()
	var ids []belay.ExecutionID
	for id := range w.history.open {
		ids = append(ids, id)
	}
	w.history.mu.Unlock()
	slices.SortFunc(ids, belay.ExecutionID.Compare)
	reader := engine.NewReader(w.store, time.Second)
	var out []string
	for _, id := range ids {
		x, err := reader.Explain(context.Background(), id)
		out = append(out, fmt.Sprintf("%s is open %s after the last fault: %s %q %v", short(id), w.gate.now()-w.healed,
			x.Summary, x.Facts, err))
	}
	return append(out, w.watches.behind(w.newestSeq)...)
}

// stop stops clients, workers and nodes, in this order.
func (w *world) stop() {
	synctest.Wait()
	all := make(chan struct{})
	go func() {
		defer close(all)
		for _, c := range w.clients {
			<-c.done
		}
		if w.operator != nil {
			<-w.operator.done
		}
		if w.planner != nil {
			<-w.planner.done
		}
		if w.steward != nil {
			<-w.steward.done
		}
		w.watches.cancel()
		w.watches.wg.Wait()
		for _, s := range w.workers {
			s.proc.stop()
			<-s.proc.done
		}
		for _, l := range w.links {
			l.wg.Wait()
		}
	}()
	w.drainGate(all)
	w.run(w.gate.now() + maxTTL + 2*promptly) // a session that no process uses must expire too
	w.stoppedAt = w.gate.now()
	nodes := make(chan struct{})
	go func() {
		defer close(nodes)
		for _, n := range w.nodes {
			if n.life != nil {
				n.stop()
			}
		}
		for _, x := range w.lives {
			<-x.closed
		}
	}()
	w.drainGate(nodes)
}
