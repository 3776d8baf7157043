package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/belaydev/belay"
)

// client submits executions, and sends signals and actions as users do.
type client struct {
	w    *world
	name string
	link *link
	rng  *rand.Rand
	// costs decides on costs, budgets and repairs.
	costs *rand.Rand
	// notify decides on notifications.
	notify *rand.Rand
	ids    uint64
	keys   map[string]belay.Submission // the submission of each idempotency key
	stop   func()
	done   chan struct{}
}

func newClient(w *world, name string) *client {
	c := &client{
		w: w, name: name, rng: w.random(name), costs: w.random(name + " costs"),
		notify: w.random(name + " notify"),
		keys:   make(map[string]belay.Submission), done: make(chan struct{}),
	}
	c.link = w.newLink(name, c.rng.IntN(len(w.nodes)))
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	go func() {
		defer close(c.done)
		for c.pause(ctx, between(c.rng, 10*time.Millisecond, 700*time.Millisecond)) {
			c.act(ctx)
		}
	}()
	return c
}

func (c *client) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(c.w.unlike(c.name, d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *client) id() [16]byte {
	c.ids++
	return c.w.id(c.name, c.ids)
}

// persist makes a call. If the call's outcome is unknown, persist may repeat the call under the
// same operation id.
func (c *client) persist(ctx context.Context, call func(context.Context) error) {
	began := c.w.gate.now()
	for range 1 + c.rng.IntN(4) {
		bounded, cancel := context.WithTimeout(ctx, c.w.unlike(c.name, 2*time.Second))
		err := call(bounded)
		cancel()
		if err == nil || belay.CodeOf(err) != belay.CodeUnavailable || !c.pause(ctx, 60*time.Millisecond) {
			return
		}
		if c.w.plan.retention > 0 && c.w.gate.now()-began > leastRetention/3 {
			return // a submission that arrives after its execution was deleted is a new submission
		}
	}
}

func (c *client) act(ctx context.Context) {
	if c.costs.IntN(10) == 0 {
		c.repair(ctx)
		return
	}
	if c.rng.IntN(100) < 55 {
		c.submit(ctx)
		return
	}
	x, found := c.pick(ctx)
	if !found {
		return
	}
	switch n := c.rng.IntN(100); {
	case n < 30:
		s := belay.SignalRequest{
			Execution: x.ID, Name: signalName, Payload: json.RawMessage(fmt.Sprintf(`"sig %s %d"`, c.name, c.ids)),
			Op: belay.OpID(c.id()),
		}
		if c.ids%2 == 0 {
			s.Actor = c.name
		}
		c.persist(ctx, func(ctx context.Context) error { return c.link.Signal(ctx, s) })
	case n < 93:
		c.control(ctx, x)
	case n < 97:
		_, _ = c.link.Explain(ctx, x.ID)
	default:
		c.drain(ctx)
	}
}

// pick chooses an execution, mostly an execution that has not ended.
func (c *client) pick(ctx context.Context) (belay.Execution, bool) {
	f := belay.Filter{Children: true, Limit: 40}
	if c.rng.IntN(5) > 0 {
		f.States = belay.ActiveStates()
	}
	ctx, cancel := context.WithTimeout(ctx, c.w.unlike(c.name, time.Second))
	defer cancel()
	page, err := c.link.Executions(ctx, f)
	if err != nil || len(page.Executions) == 0 {
		return belay.Execution{}, false
	}
	return page.Executions[c.rng.IntN(len(page.Executions))], true
}

func (c *client) control(ctx context.Context, x belay.Execution) {
	q := belay.Control{Execution: x.ID, Actor: c.name, Op: belay.OpID(c.id())}
	actions := []belay.Action{
		belay.ActionCancel, belay.ActionCancel, belay.ActionPause, belay.ActionPause, belay.ActionResume,
		belay.ActionResume,
		belay.ActionSteal, belay.ActionPreempt, belay.ActionFork,
	}
	if x.State.Terminal() {
		actions = []belay.Action{
			belay.ActionRetry, belay.ActionRetry, belay.ActionRequeue, belay.ActionFork, belay.ActionCancel,
		}
	}
	q.Action = actions[c.rng.IntN(len(actions))]
	if b := c.otherBudget(x); b != nil {
		q.Action, q.Budget = belay.ActionBudget, b
	}
	switch q.Action {
	case belay.ActionCancel:
		q.Grace = belay.Duration(c.rng.IntN(2)) * belay.Duration(between(c.rng, 50*time.Millisecond,
			800*time.Millisecond))
	case belay.ActionRequeue:
		q.Input = c.input(x.Workflow)
	case belay.ActionFork:
		if c.rng.IntN(3) > 0 {
			return // the client has enough executions
		}
		q.Fork, q.UpTo = belay.ExecutionID(c.id()), int64(c.rng.IntN(2))*x.Seq
	}
	c.persist(ctx, func(ctx context.Context) error { _, err := c.link.Control(ctx, q); return err })
}

func (c *client) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.w.unlike(c.name, time.Second))
	defer cancel()
	workers, err := c.link.Workers(ctx)
	if err != nil || len(workers) == 0 || workers[0].State.Ended() {
		return
	}
	c.w.history.fault("worker drained by an operator")
	_ = c.link.Drain(ctx, workers[0].ID)
}

func (c *client) input(workflow string) json.RawMessage {
	in := writeBare(c.rng)
	in.Cost = belay.Cost(c.costs.IntN(2) * c.costs.IntN(mostCost))
	var v any = in
	if workflow == "play" {
		script := writeScript(c.rng, 2)
		price(c.costs, script)
		if c.w.plan.gates && c.rng.IntN(2) == 0 {
			aim(c.rng, script)
		}
		v = script
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

func (c *client) submit(ctx context.Context) {
	s := belay.Submission{
		ID: belay.ExecutionID(c.id()), Workflow: "play", Priority: c.rng.IntN(3) - 1, Policy: writePolicy(c.rng),
	}
	if c.w.plan.bare > 0 && (c.w.plan.workers == 0 || c.rng.IntN(3) == 0) {
		s.Workflow = "bare"
	}
	if c.w.plan.outside > 0 && c.rng.IntN(4) == 0 {
		s.Workflow, s.External = "outside", true
		if c.rng.IntN(2) == 0 {
			s.Policy.OnLost = belay.Requeue
		}
	}
	if c.w.plan.gates {
		s.Gates = writeGates(c.rng)
	}
	s.Input = c.input(s.Workflow)
	if s.Target != "" && s.Workflow == "play" {
		s.Input = c.failing(s.Input)
	}
	s.Budget, s.Notify = c.budget(), c.notifications()
	if c.rng.IntN(10) == 0 {
		s.DueAt = c.w.clock().Add(between(c.rng, 0, 2*time.Second))
	}
	switch keyed := c.rng.IntN(4) == 0; {
	case c.costs.IntN(c.w.plan.contents) == 0:
		s = c.withContent(s)
	case keyed:
		s = c.keyed(s)
	}
	var watched bool
	c.persist(ctx, func(ctx context.Context) error {
		answers, err := c.link.Submit(ctx, s)
		if err == nil {
			err = answers[0].Err
		}
		if err == nil && !watched && c.rng.IntN(3) == 0 {
			watched = true
			c.w.watches.begin(c.name, c.ids, answers[0].ID)
		} else if err == nil && !watched && c.rng.IntN(3) == 0 {
			watched = true
			c.w.watches.await(c.name, c.ids, answers[0].ID)
		}
		return err
	})
}

// keyed gives the submission one of a few idempotency keys, so that some submissions repeat a key,
// with the same body or with a different body.
func (c *client) keyed(s belay.Submission) belay.Submission {
	s.IdempotencyKey = fmt.Sprintf("key %d", c.rng.IntN(4))
	old, used := c.keys[s.Workflow+s.IdempotencyKey]
	switch {
	case !used:
		c.keys[s.Workflow+s.IdempotencyKey] = s
	case c.rng.IntN(3) > 0:
		id := s.ID
		s = old
		s.ID = id
	}
	return s
}

func writePolicy(r *rand.Rand) belay.Policy {
	maybe := func(one int, least, most time.Duration) belay.Duration {
		if r.IntN(one) > 0 {
			return 0
		}
		return belay.Duration(between(r, least, most).Round(time.Microsecond))
	}
	if r.IntN(4) == 0 {
		return belay.Policy{}
	}
	p := belay.Policy{
		MaxAttempts: r.IntN(5), BackoffBase: maybe(1, 20*time.Millisecond, 400*time.Millisecond),
		BackoffCap:   maybe(1, 200*time.Millisecond, time.Second),
		StartTimeout: maybe(15, 500*time.Millisecond, 3*time.Second), RunTimeout: maybe(8, 300*time.Millisecond,
			2*time.Second),
		IdleTimeout: maybe(8, 300*time.Millisecond, 1500*time.Millisecond), Timeout: maybe(8, time.Second,
			6*time.Second),
		CancelGrace: maybe(2, 100*time.Millisecond, 2*time.Second), LockDelay: maybe(8, 100*time.Millisecond,
			800*time.Millisecond),
		NoDeadLetters: r.IntN(8) == 0, Abandon: r.IntN(8) == 0,
	}
	if r.IntN(4) == 0 {
		p.MaxLosses = 1 + r.IntN(3)
	}
	if r.IntN(8) == 0 {
		p.OnLost = belay.Fail
	}
	return p
}
