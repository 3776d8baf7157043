package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// operator changes the gates of Belay, as a person does: it pauses and resumes them, sets and
// unsets limits and rates, and forces circuit breakers.
type operator struct{ *client }

func newOperator(w *world) *operator {
	c := &client{w: w, name: "operator", rng: w.random("operator"), done: make(chan struct{})}
	c.link = w.newLink(c.name, c.rng.IntN(len(w.nodes)))
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	o := &operator{c}
	go func() {
		defer close(c.done)
		o.change(ctx, belay.GateChange{
			Gate: gpu, Action: belay.GateSetResource, Actor: o.name, Op: belay.OpID(o.id()), Resource: w.terms(c.rng),
		})
		for c.pause(ctx, between(c.rng, 50*time.Millisecond, time.Second)) {
			o.act(ctx)
		}
	}()
	return o
}

// laneGates and ownGates are the gates that the operator changes. An execution names the gates in
// ownGates; the gates in laneGates concern all executions of a queue or workflow.
var (
	laneGates = []belay.GateID{"queue:default", "workflow:play", "workflow:bare", "workflow:outside"}
	ownGates  = []belay.GateID{"limit:l0", "limit:l1", "rate:r0", "rate:r1", "target:t0", "target:t1", "resource:gpu"}
)

// act makes one change. Pauses of queues and workflows are short, since they concern all
// executions.
func (o *operator) act(ctx context.Context) {
	r := o.rng
	g := belay.GateChange{Actor: o.name, Op: belay.OpID(o.id())}
	longest := 2500 * time.Millisecond
	if g.Gate = ownGates[r.IntN(len(ownGates))]; r.IntN(5) < 2 {
		g.Gate, longest = laneGates[r.IntN(len(laneGates))], time.Second
	}
	actions := map[string][]belay.GateAction{
		belay.GateLimit:    {belay.GateSetLimit, belay.GateSetLimit, belay.GateUnsetLimit},
		belay.GateRate:     {belay.GateSetRate, belay.GateUnsetRate, belay.GateUnsetRate},
		belay.GateTarget:   {belay.GateForceOpen, belay.GateForceClosed, belay.GateAutomatic, belay.GateAutomatic},
		belay.GateResource: {belay.GateSetResource, belay.GateSetResource, belay.GateUnsetResource},
		belay.GateQueue:    {belay.GateSetLimit, belay.GateUnsetLimit, belay.GateSetRate, belay.GateUnsetRate},
		belay.GateWorkflow: {belay.GateSetLimit, belay.GateUnsetLimit, belay.GateSetRate, belay.GateUnsetRate},
	}[g.Gate.Kind()]
	actions = append(actions, belay.GatePause, belay.GateResume)
	switch g.Action = actions[r.IntN(len(actions))]; g.Action {
	case belay.GatePause:
		if r.IntN(4) > 0 {
			g.Until = o.w.store.Now().Add(between(r, 100*time.Millisecond, longest)).Time()
		}
	case belay.GateSetLimit:
		g.Max = 1 + r.IntN(4)
	case belay.GateSetResource:
		g.Resource = o.w.terms(r)
	case belay.GateSetRate:
		g.Max, g.Per = 1+r.IntN(5), belay.Duration(between(r, 100*time.Millisecond, time.Second))
	default:
	}
	o.change(ctx, g)
	undo := map[belay.GateAction]belay.GateAction{
		belay.GatePause: belay.GateResume, belay.GateSetLimit: belay.GateUnsetLimit,
		belay.GateSetRate: belay.GateUnsetRate,
	}[g.Action]
	if undo != "" && g.Until.IsZero() && o.pause(ctx, between(r, time.Millisecond, longest)) {
		g.Action, g.Op, g.Max, g.Per = undo, belay.OpID(o.id()), 0, 0
		o.change(ctx, g)
	}
}

func (o *operator) change(ctx context.Context, g belay.GateChange) {
	o.persist(ctx, func(ctx context.Context) error { _, err := o.link.ChangeGate(ctx, g); return err })
}

// writeGates makes the gates of a submission. Submissions that name the same limit mostly give it
// the same number; submissions that name the same rate always give it the same numbers.
func writeGates(r *rand.Rand) belay.Gates {
	var g belay.Gates
	odd := r.IntN(30) / 29
	if n := r.IntN(4); n < 2 {
		g.Concurrency = &belay.Concurrency{Name: fmt.Sprint("l", n), Max: 1 + 2*n + odd}
		g.Concurrency.WhenFull = []belay.WhenFull{
			"", belay.WaitWhenFull, belay.WaitWhenFull, belay.RejectWhenFull, belay.ReplaceWhenFull,
		}[r.IntN(5)]
	}
	if n := r.IntN(8); n < 2 {
		g.Rate = &belay.Rate{
			Name: fmt.Sprint("r", n), Max: 1 + 2*n,
			Per: belay.Duration(time.Duration(1+n) * 400 * time.Millisecond),
		}
	}
	if n := r.IntN(8); n < 2 {
		g.Target = fmt.Sprint("t", n)
	}
	if n := r.IntN(6); n < 3 {
		g.Requires = &belay.Requires{Resource: gpu.Name(), Mode: string(rune('A' + n)), Preemptible: r.IntN(2) == 0}
	}
	return g
}

// failing puts a failure at the beginning of most scripts, so that runs that call a target fail
// often enough to open its circuit breaker.
func (c *client) failing(script json.RawMessage) json.RawMessage {
	if c.rng.IntN(4) == 0 {
		return script
	}
	var ops []op
	if err := json.Unmarshal(script, &ops); err != nil {
		panic(err)
	}
	out, err := json.Marshal(append([]promise.Op{{Do: "fail", N: 1 + c.rng.IntN(3)}}, ops...))
	if err != nil {
		panic(err)
	}
	return out
}

// breakersCloseAfter is the time after the last fault at which openGates begins to force circuit
// breakers closed. Until then they open and close by themselves.
const breakersCloseAfter = 70 * time.Second

// openGates resumes the gates that were paused without an end, and lets forced circuit breakers
// decide by themselves. Scripts with many failures can open a breaker again and again, so later it
// forces breakers to be closed.
func (w *world) openGates(ctx context.Context, l *link) {
	page, err := l.Gates(ctx, belay.GateFilter{})
	if err != nil {
		return
	}
	for _, g := range page.Gates {
		c := belay.GateChange{Gate: g.ID, Actor: "healer"}
		switch b := g.Breaker; {
		case ctx.Err() != nil:
			return
		case g.Pause != nil && g.Pause.Until.IsZero():
			c.Action = belay.GateResume
		case g.Resource != nil && g.Resource.Set && w.gate.now() > w.healed+breakersCloseAfter:
			c.Action = belay.GateUnsetResource
		case b == nil || b.State == "closed":
			continue
		case w.gate.now() > w.healed+breakersCloseAfter:
			c.Action = belay.GateForceClosed
		case b.Forced:
			c.Action = belay.GateAutomatic
		default:
			continue
		}
		w.fill(c.Op[:], "healer "+string(g.ID), uint64(w.gate.now()))
		_, _ = l.ChangeGate(ctx, c)
	}
}
