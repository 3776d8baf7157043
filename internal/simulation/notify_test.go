package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/workflow"
)

// notifications returns the notifications of a submission; most submissions have none.
func (c *client) notifications() []belay.Notification {
	r := c.notify
	if !c.w.plan.notify || c.w.plan.workers == 0 || r.IntN(4) > 0 {
		return nil
	}
	all := make([]belay.Notification, 1+r.IntN(2))
	for i := range all {
		all[i].URL = fmt.Sprintf("https://h%d.example/hook", r.IntN(3))
		for s := belay.Succeeded; s <= belay.Cancelled; s++ {
			if r.IntN(2) == 0 {
				all[i].On = append(all[i].On, s)
			}
		}
	}
	return all
}

// deliver stands for the workflow of HTTP requests. Some receivers refuse a request for good.
func (p player) deliver(ctx context.Context, input json.RawMessage) (any, error) {
	if err := workflow.Sleep(ctx, "answer", p.w.unlike(workflow.IdempotencyKey(ctx), 1)); err != nil {
		return nil, err
	}
	if digest(string(input))%4 == 0 {
		return nil, belay.Permanent(errors.New("HTTP 410"))
	}
	return "delivered", nil
}

func withNotify(p *plan) { p.notify, p.workers = true, max(1, p.workers) }

// notifyMutants are the planted bugs of notifications.
var notifyMutants = []*mutant{
	{name: "delivery not written", meant: "G19", says: "has no delivery", plan: withNotify,
		after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			gone := belay.IsNotificationID
			c.Executions = slices.DeleteFunc(c.Executions, func(e *machine.Execution) bool {
				return e.New && gone(e.ID)
			})
			c.Specs = slices.DeleteFunc(c.Specs, func(s *machine.Spec) bool { return gone(s.Execution) })
			c.Keys = slices.DeleteFunc(c.Keys, func(k machine.KeyRow) bool { return gone(k.Execution) })
			c.Places = slices.DeleteFunc(c.Places, func(p *machine.Place) bool { return gone(p.Execution) })
			return false
		}},
	{name: "delivery written twice", meant: "G19", says: "is not the id of", plan: withNotify,
		after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			for _, s := range slices.Clone(c.Specs) {
				for _, e := range slices.Clone(c.Executions) {
					if e.ID == s.Execution && e.New && belay.IsNotificationID(e.ID) {
						twin, spec := *e, *s
						twin.ID = belay.NotificationID(e.ID, 1, 0)
						twin.Gates, spec.Execution, spec.Key = nil, twin.ID, ""
						c.Executions, c.Specs = append(c.Executions, &twin), append(c.Specs, &spec)
					}
				}
			}
			return false
		}},
	{name: "delivery written without the end", meant: "G19", says: "did not end", plan: withNotify,
		after: func(_ *world, m *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			c.Executions = slices.DeleteFunc(c.Executions, func(e *machine.Execution) bool {
				return !e.New && len(e.Notify) > 0 && e.State.Terminal() && m.rng.IntN(10) == 0
			})
			return false
		}},
	{name: "notifications forgotten by a reopening", meant: "G19", says: "have changed", plan: withNotify,
		after: func(_ *world, _ *mutantState, _ *machine.Rows, c *machine.Changes) bool {
			for _, e := range c.Executions {
				if e.Generation > 1 {
					e.Notify = nil
				}
			}
			return false
		}},
}
