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
)

// alerter looks for what operators want to know at once: dead letters, open circuit breakers, lanes without a worker.
// It looks when the object of the alerts is due, which is never while no target wants alerts, and soon after a batch of
// this server has written a dead letter or opened a circuit breaker.
type alerter struct {
	engine *Engine
	wake   chan struct{}
	due    atomic.Bool // the sweeper has found the object of the alerts due
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
	var raised time.Time // when the newest alert was sent
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		if !a.due.Load() && !retry.Sleep(ctx, max(alertSoon, alertPause-time.Since(raised))) {
			return
		}
		a.due.Store(false)
		sent, err := a.look(ctx)
		if sent > 0 {
			raised = time.Now()
		}
		if err != nil {
			if belay.CodeOf(err) != belay.CodeConflict && ctx.Err() == nil && a.engine.outage.begin() {
				a.engine.log.Warn("look for alerts", "error", err)
			}
			retry.Sleep(ctx, alertAgain)
			a.engine.sweeper.nudge() // finds the object due again, if no other server has looked meanwhile
		}
	}
}

// look reads what there is to know and sends it to the rules. It returns the number of alerts.
func (a *alerter) look(ctx context.Context) (int, error) {
	r := &a.engine.Reader
	o, err := r.object(ctx, machine.AlertsRef())
	if err != nil || o == nil {
		return 0, err
	}
	state, err := machine.AlertStateOf(o)
	if err != nil {
		return 0, err
	}
	o, err = r.object(ctx, machine.TargetsRef())
	if err != nil {
		return 0, err
	}
	targets, err := machine.TargetsOf(o)
	if err != nil {
		return 0, err
	}
	c := &machine.RaiseAlerts{Version: state.Version}
	if targets.Wants(belay.AlertDeadLetter) {
		err = a.letters(ctx, c, state.LettersFrom)
	}
	if err == nil && targets.Wants(belay.AlertBreakerOpen) {
		err = a.breakers(ctx, c)
	}
	if err == nil && targets.Wants(belay.AlertNoWorker) {
		err = a.lanes(ctx, c)
	}
	if err != nil {
		return 0, err
	}
	reply, err := a.engine.do(ctx, c)
	return reply.Alerts, err
}

// letters finds the dead letters since a time.
func (a *alerter) letters(ctx context.Context, c *machine.RaiseAlerts, from machine.Time) error {
	found, err := a.engine.store.Query(ctx, store.Query{
		Of: store.Letters, Limit: alertRows,
		Letters: store.LetterQuery{Newest: store.Newest[store.Letter]{Since: from}},
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

// lanes finds the lanes that have due executions and no worker. It leaves out lanes whose queue or workflow has a shut
// gate, because an operator who pauses a queue may well stop its workers.
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
	alone := make([]store.LaneHead, len(lanes))
	for i := range lanes {
		alone[i] = heads[lanes[i].ID]
	}
	gates, err := a.engine.laneGates(ctx, alone)
	if err != nil {
		return err
	}
	for _, l := range lanes {
		shut := false
		for _, g := range gates[l.ID] {
			shut = shut || !g.Open
		}
		if h := heads[l.ID]; !shut {
			c.Lanes = append(c.Lanes, machine.UnstaffedLane{ID: l.ID, AlertLane: belay.AlertLane{
				Queue: l.Queue, Workflow: l.Workflow, Version: l.Version, Labels: l.Labels, DueSince: h.At.Time(),
				Oldest: h.Execution,
			}})
		}
	}
	return nil
}
