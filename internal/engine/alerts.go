package engine

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/internal/store"
)

const (
	// alertSoon is how long a look waits after the change that asked for it, so that changes which follow each
	// other are one alert. alertPause is how long after an alert a server looks again because of further changes.
	alertSoon, alertPause = time.Second, 10 * time.Second
	// alertAgain is when a look that failed is repeated.
	alertAgain = 2 * time.Second
	// alertRows is the largest number of dead letters and of lanes that a look reads; alertGates is the largest
	// number of gates in a page, and alertPages the largest number of pages.
	alertRows, alertGates, alertPages = 500, 1000, 20
	// alertBytes is the largest size of the dead letters that a look reads.
	alertBytes = 4 << 20
)

// alerter looks for what operators want to know at once: dead letters, open circuit breakers, lanes without a worker.
// It looks when the object of the alerts is due, which is never while no target wants alerts, and soon after a batch of
// this server has written a dead letter or opened a circuit breaker.
type alerter struct {
	engine *Engine
	wake   chan struct{}
	due    atomic.Bool // the sweeper has found the object of the alerts due
	outage outage
}

func newAlerter(e *Engine) *alerter { return &alerter{engine: e, wake: make(chan struct{}, 1)} }

// offer asks for a look if the object of the alerts is among the due objects.
func (a *alerter) offer(objects []*machine.Object) {
	for _, o := range objects {
		if o.Kind == machine.AlertsObject {
			a.due.Store(true)
			nudge(a.wake)
		}
	}
}

// observe asks for a look soon if a batch has written what may be an alert.
func (a *alerter) observe(b *batch) {
	t := b.rows.Targets
	if t == nil {
		return
	}
	letter := false
	for _, d := range b.changes.DeadLetters {
		letter = letter || d.New
	}
	if letter && t.Wants(belay.AlertDeadLetter) || b.changes.Opened && t.Wants(belay.AlertBreakerOpen) {
		nudge(a.wake)
	}
}

// onHint does nothing: the other server looks itself.
func (a *alerter) onHint(store.Hint) {}

// run looks for alerts until ctx ends.
func (a *alerter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		err := a.settled(ctx)
		if err == nil {
			err = a.look(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			a.due.Store(false) // the sweeper may have found the object due once more during the look
			a.outage.end()
			continue
		case belay.CodeOf(err) != belay.CodeConflict && a.outage.begin():
			a.engine.log.Warn("look for alerts", "error", err)
		}
		retry.Sleep(ctx, alertAgain)
		a.engine.sweeper.nudge() // finds the object due again, if no other server has looked meanwhile
	}
}

// settled waits for further changes before a look that a change has asked for, and longer after an alert.
func (a *alerter) settled(ctx context.Context) error {
	if a.due.Load() || !retry.Sleep(ctx, alertSoon) {
		return nil
	}
	o, err := a.engine.object(ctx, machine.AlertsRef())
	if err != nil || o == nil {
		return err
	}
	state, err := machine.AlertStateOf(o)
	if err == nil && state.RaisedAt != 0 {
		retry.Sleep(ctx, state.RaisedAt.Add(alertPause).Sub(a.engine.store.Now()))
	}
	return err
}

// look reads what there is to know and sends it to the rules.
func (a *alerter) look(ctx context.Context) error {
	r := &a.engine.Reader
	o, err := r.object(ctx, machine.AlertsRef())
	if err != nil || o == nil {
		return err
	}
	state, err := machine.AlertStateOf(o)
	if err != nil {
		return err
	}
	o, err = r.object(ctx, machine.TargetsRef())
	if err != nil {
		return err
	}
	targets, err := machine.TargetsOf(o)
	if err != nil {
		return err
	}
	c := &machine.RaiseAlerts{Version: state.Version}
	if targets.Wants(belay.AlertBreakerOpen) {
		err = a.breakers(ctx, c)
	}
	if err == nil && targets.Wants(belay.AlertNoWorker) {
		err = a.lanes(ctx, c)
	}
	if err == nil && targets.Wants(belay.AlertDeadLetter) { // last, since new ones arrive meanwhile
		err = a.letters(ctx, c, state.LettersFrom, targets)
	}
	if err != nil {
		return err
	}
	reply, err := a.engine.do(ctx, c)
	if reply.Refused > 0 {
		a.engine.log.Error("alerts could not be sent", "refused", reply.Refused)
	}
	return err
}

// letters finds the dead letters since a time that a target may want.
func (a *alerter) letters(
	ctx context.Context, c *machine.RaiseAlerts, from machine.Time, targets *machine.Targets,
) error {
	c.LettersAt = a.engine.store.Now()
	found, err := a.engine.store.Query(ctx, store.Query{
		Of: store.Letters, Limit: alertRows, Bytes: alertBytes,
		Letters: store.LetterQuery{Newest: store.Newest[store.Letter]{
			Since: from, Scan: lettersScanned, Matches: func(l store.Letter) bool {
				return !belay.IsNotificationID(l.Execution) && targets.WantsLetter(l.Workflow)
			},
		}},
	})
	if err != nil {
		return err
	}
	for _, l := range found.Letters {
		v := machine.LetterView(l.DeadLetter, l.Workflow)
		c.Letters = append(c.Letters, belay.AlertLetter{
			Execution: v.Execution, Generation: v.Generation, Workflow: v.Workflow, Reason: v.Reason, Class: v.Class,
			Message: v.Message, At: v.At,
		})
	}
	c.MoreLetters = found.Next != ""
	return nil
}

// breakers finds the circuit breakers that are not closed.
func (a *alerter) breakers(ctx context.Context, c *machine.RaiseAlerts) error {
	f := belay.GateFilter{Kind: belay.GateTarget, Limit: alertGates}
	for range alertPages {
		page, err := a.engine.Gates(ctx, f)
		if err != nil {
			return err
		}
		for i := range page.Gates {
			b := page.Gates[i].Breaker
			if b == nil || b.Forced || b.State == string(machine.BreakerClosed) {
				continue
			}
			c.Breakers = append(c.Breakers, belay.AlertBreaker{
				Target: page.Gates[i].Name, OpenedAt: b.OpenedAt, NextRetryAt: b.NextRetryAt,
			})
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	return nil
}

// lanes finds the lanes that have due executions and no worker. It leaves out lanes whose queue or workflow is
// paused, because an operator who pauses a queue may well stop its workers.
func (a *alerter) lanes(ctx context.Context, c *machine.RaiseAlerts) error {
	found, err := a.engine.store.Query(ctx, store.Query{Of: store.DueLanes, Limit: alertRows})
	if err != nil || len(found.Heads) == 0 {
		return err
	}
	heads := make(map[machine.LaneID]store.LaneHead, len(found.Heads))
	ids := make([]machine.LaneID, len(found.Heads))
	for i, h := range found.Heads {
		ids[i], heads[h.Lane] = h.Lane, h
	}
	lanes, err := a.engine.store.Lanes(ctx, ids)
	if err != nil {
		return err
	}
	if lanes, err = a.engine.sweeper.understaffed.untaken(ctx, lanes); err != nil || len(lanes) == 0 {
		return err
	}
	paused, err := a.paused(ctx)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		shut := paused[belay.Gate(belay.GateQueue, l.Queue)] || paused[belay.Gate(belay.GateWorkflow, l.Workflow)]
		if h := heads[l.ID]; !shut {
			c.Lanes = append(c.Lanes, machine.UnstaffedLane{ID: l.ID, AlertLane: belay.AlertLane{
				Queue: l.Queue, Workflow: l.Workflow, Version: l.Version, Labels: l.Labels, DueSince: h.At.Time(),
				Oldest: h.Execution,
			}})
		}
	}
	return nil
}

// paused reads which queues and workflows are paused.
func (a *alerter) paused(ctx context.Context) (map[belay.GateID]bool, error) {
	out := make(map[belay.GateID]bool)
	for _, kind := range []string{belay.GateQueue, belay.GateWorkflow} {
		f := belay.GateFilter{Kind: kind, Limit: alertGates}
		for range alertPages {
			page, err := a.engine.Gates(ctx, f)
			if err != nil {
				return nil, err
			}
			for i := range page.Gates {
				if g := &page.Gates[i]; g.Pause != nil {
					out[g.ID] = true
				}
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				break
			}
		}
	}
	return out, nil
}
