package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// steward sets, pauses and removes targets of notifications, as an operator does.
type steward struct{ *client }

func newSteward(w *world) *steward {
	c := &client{
		w: w, name: "steward", rng: w.random("steward"), costs: w.random("steward costs"), done: make(chan struct{}),
	}
	c.link = w.newLink(c.name, c.rng.IntN(len(w.nodes)))
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	s := &steward{c}
	go func() {
		defer close(c.done)
		for s.act(ctx); c.pause(ctx, between(c.rng, 100*time.Millisecond, 3*time.Second)); {
			s.act(ctx)
		}
	}()
	return s
}

func (s *steward) act(ctx context.Context) {
	r := s.rng
	name := fmt.Sprint("t", r.IntN(2))
	if r.IntN(2) == 0 {
		put := belay.NotificationTargetPut{Actor: s.name, Op: belay.OpID(s.id())}
		if put.Name = name; name == "t0" {
			put.URL = "https://" + name + ".example/hook"
		} else {
			put.Exchange = "events"
		}
		for e := belay.Succeeded; e <= belay.Cancelled; e++ {
			if r.IntN(2) == 0 {
				put.On = append(put.On, e)
			}
		}
		if r.IntN(2) == 0 {
			put.Alerts = []belay.Alert{belay.Alerts[r.IntN(len(belay.Alerts))]}
		}
		if r.IntN(4) == 0 {
			put.Workflows = []string{"pl*"}
		}
		s.persist(ctx, func(ctx context.Context) error { _, err := s.link.PutNotificationTarget(ctx, put); return err })
		return
	}
	actions := []belay.NotificationTargetAction{
		belay.NotificationTargetPause, belay.NotificationTargetResume, belay.NotificationTargetRemove,
	}
	c := belay.NotificationTargetChange{
		Name: name, Action: actions[r.IntN(len(actions))], Actor: s.name, Op: belay.OpID(s.id()),
	}
	s.persist(ctx, func(ctx context.Context) error { _, err := s.link.ChangeNotificationTarget(ctx, c); return err })
}

func withTargets(p *plan) { p.targets, p.workers = true, max(1, p.workers) }

// withoutTarget removes the deliveries to a target, or to all targets, from changes.
func withoutTarget(c *machine.Changes, name string) {
	var gone []belay.ExecutionID
	c.Specs = slices.DeleteFunc(c.Specs, func(s *machine.Spec) bool {
		to := s.Labels[belay.LabelNotificationTarget]
		out := to != "" && (name == "" || to == name) && s.Labels[belay.LabelNotification] != ""
		if out {
			gone = append(gone, s.Execution)
		}
		return out
	})
	out := func(id belay.ExecutionID) bool { return slices.Contains(gone, id) }
	c.Executions = slices.DeleteFunc(c.Executions, func(e *machine.Execution) bool { return out(e.ID) })
	c.Keys = slices.DeleteFunc(c.Keys, func(k machine.KeyRow) bool { return out(k.Execution) })
	c.Places = slices.DeleteFunc(c.Places, func(p *machine.Place) bool { return out(p.Execution) })
}

// targetMutants are the planted bugs of targets of notifications.
var targetMutants = []*mutant{
	{name: "delivery to a target not written", meant: "G19", says: "no list of targets", plan: withTargets,
		after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			withoutTarget(c, "")
			return false
		}},
	{name: "delivery to one target not written", meant: "G19", says: "no list of targets", plan: withTargets,
		after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			withoutTarget(c, "t1")
			return false
		}},
	{name: "list of targets never read again", meant: "G19", says: "no list of targets", plan: withTargets,
		found: func(m *mutantState, q store.Query, found *store.Found) {
			if q.Kind == machine.TargetsObject {
				if m.targets == nil {
					c := *found
					m.targets = &c
				}
				*found = *m.targets
			}
		}},
	{name: "alert raised again", meant: "G19", says: "alerted again", plan: withTargets,
		before: func(_ *world, _ *mutantState, _ *machine.Need, rows *machine.Rows) {
			for _, o := range rows.Objects {
				if o.Kind == machine.AlertsObject {
					o.Body = []byte(`{"letters_from": 1}`)
				}
			}
		}},
}
