package simulation

import (
	"context"
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// repair does what people do with executions that failed or went wrong: it works on dead letters,
// reopens an execution from one of its steps, forks it before one of its steps, gives it up or deletes it.
func (c *client) repair(ctx context.Context) {
	switch n := c.costs.IntN(10); {
	case n < 4 && c.w.plan.retention > 0:
		c.delete(ctx)
	case n < 5:
		c.letter(ctx)
	case n < 9:
		c.again(ctx)
	default:
		c.giveUp(ctx)
	}
}

// list reads a page of executions and picks one of them.
func (c *client) list(ctx context.Context, states ...belay.State) (belay.Execution, bool) {
	ctx, cancel := context.WithTimeout(ctx, c.w.unlike(c.name, 1500*time.Millisecond))
	defer cancel()
	page, err := c.link.Executions(ctx, belay.Filter{Limit: 40, States: states})
	if err != nil || len(page.Executions) == 0 {
		return belay.Execution{}, false
	}
	return page.Executions[c.costs.IntN(len(page.Executions))], true
}

func (c *client) do(ctx context.Context, q belay.Control) {
	q.Actor, q.Op = c.name, belay.OpID(c.id())
	c.persist(ctx, func(ctx context.Context) error { _, err := c.link.Control(ctx, q); return err })
}

// letter resolves a dead letter, in one of the ways in which that is possible, or adds a note to it. Some
// dead letters are resolved a second time, which must be refused.
func (c *client) letter(ctx context.Context) {
	f := belay.DeadLetterFilter{Limit: 30}
	if c.costs.IntN(4) == 0 {
		f.Resolution = "all"
	}
	bounded, cancel := context.WithTimeout(ctx, c.w.unlike(c.name, 1500*time.Millisecond))
	page, err := c.link.DeadLetters(bounded, f)
	cancel()
	if err != nil || len(page.DeadLetters) == 0 {
		return
	}
	d := page.DeadLetters[c.costs.IntN(len(page.DeadLetters))]
	for range 1 + c.costs.IntN(2) {
		switch n := c.costs.IntN(6); n {
		case 0:
			c.do(ctx, belay.Control{Execution: d.Execution, Action: belay.ActionRetry, Generation: d.Generation})
		case 1:
			q := belay.Control{Execution: d.Execution, Action: belay.ActionRequeue, Generation: d.Generation}
			if d.Workflow == "play" {
				q.Input = c.input(d.Workflow)
			} else {
				q.InputPatch = json.RawMessage(`{"end":"succeeded"}`)
			}
			c.do(ctx, q)
		default:
			q := belay.DeadLetterChange{
				Execution: d.Execution, Generation: d.Generation, Actor: c.name, Op: belay.OpID(c.id()), Note: "a note",
				Action: []belay.DeadLetterAction{
					belay.DeadLetterNoted, belay.DeadLetterFix, belay.DeadLetterDiscard, belay.DeadLetterDiscard,
				}[n-2],
			}
			c.persist(ctx, func(ctx context.Context) error { _, err := c.link.ChangeDeadLetter(ctx, q); return err })
		}
	}
}

// again retries an execution from one of its steps or waits on, or forks it before one of them.
func (c *client) again(ctx context.Context) {
	x, found := c.list(ctx, belay.Failed, belay.Cancelled)
	if !found {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, c.w.unlike(c.name, 1500*time.Millisecond))
	events, err := c.link.Events(bounded, belay.EventQuery{Execution: x.ID, Limit: 500})
	cancel()
	var steps []string
	for _, ev := range events {
		if (ev.Kind == "step" || ev.Kind == "wait") && !ev.Pruned {
			steps = append(steps, ev.Name)
		}
	}
	if err != nil || len(steps) == 0 {
		return
	}
	step := steps[c.costs.IntN(len(steps))]
	if c.costs.IntN(4) == 0 {
		c.do(ctx, belay.Control{Execution: x.ID, Action: belay.ActionFork, At: step, Fork: belay.ExecutionID(c.id())})
		return
	}
	c.do(ctx, belay.Control{Execution: x.ID, Action: belay.ActionRetry, From: step})
}

// giveUp makes an execution fail at once.
func (c *client) giveUp(ctx context.Context) {
	if x, found := c.list(ctx, belay.Pending, belay.Running, belay.Waiting); found {
		c.do(ctx, belay.Control{Execution: x.ID, Action: belay.ActionQuarantine})
	}
}

// delete deletes an execution that ended so long ago that no repeated submission of it can arrive any more.
func (c *client) delete(ctx context.Context) {
	x, found := c.list(ctx, belay.Succeeded, belay.Failed, belay.Cancelled)
	if found && c.w.clock().Sub(x.FinishedAt) > leastRetention {
		c.do(ctx, belay.Control{Execution: x.ID, Action: belay.ActionDelete})
	}
}
