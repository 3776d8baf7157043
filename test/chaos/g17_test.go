package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// mostCost bounds the cost of one try of a step, in ten-thousandths of a token.
const mostCost = 400

// price makes most steps and failures of a script report a cost.
func price(r *rand.Rand, script []op) {
	for i := range script {
		o := &script[i]
		if (o.Do == "step" || o.Do == "fail") && !chance(r, 4) {
			o.Cost = 1 + r.Int64N(mostCost)
		}
		price(r, o.Sub)
		price(r, o.Other)
	}
}

// budgeted submits executions whose budget is spent by their children or themselves, and raises each
// budget later.
func (c *crowd) budgeted(ctx, lives context.Context) {
	r := c.dice()
	for pause(ctx, between(r, 100*time.Millisecond, 400*time.Millisecond)) == nil {
		script := []op{{Do: "step", Ms: 5}, {Do: "child", Sub: []op{
			{Do: "step", Ms: 1 + r.IntN(100)}, {Do: "sleep", Ms: 1 + r.IntN(300)}, {Do: "step", Ms: 1 + r.IntN(100)},
		}}, {Do: "step", Ms: 1 + r.IntN(60)}}
		if chance(r, 2) {
			price(r, script)
		} else {
			price(r, script[1].Sub) // so that the child spends the budget
		}
		s := c.root(script)
		s.Budget = &belay.Budget{Cost: 1 + belay.Cost(r.IntN(mostCost))}
		if c.submitAll(ctx, r, s) != nil {
			return
		}
		early := chance(r, 4)
		c.lives.Go(func() {
			for looks := 0; looks < 60 && !early && !c.spent(lives, s.ID); looks++ {
				if pause(lives, 500*time.Millisecond) != nil {
					return
				}
			}
			c.raise(lives, 0, "accountant", s.ID)
		})
	}
}

// spent reports whether an execution has ended, or is paused because its budget is spent. It records a
// paused execution as the watch over all open executions does, because most spent budgets are raised
// between two looks of that watch.
func (c *crowd) spent(ctx context.Context, id belay.ExecutionID) bool {
	at := time.Now()
	x, err := c.patient(c.dice(), "accountant").Execution(ctx, id)
	if err != nil || x.State != belay.Paused {
		return err == nil && x.State.Terminal()
	}
	x.Input, x.Output, x.Policy = nil, nil, nil
	c.looked(look{At: at, Open: []belay.Execution{x}})
	return true
}

// raise gives an execution a budget that its script cannot spend. It tries one server after the other
// until a server answers.
func (c *crowd) raise(ctx context.Context, after time.Duration, who string, id belay.ExecutionID) {
	r, longer, q := c.dice(), patience(), raised(id, who)
	for pause(ctx, after) == nil {
		_, err := c.patient(r, who).Control(ctx, q)
		if err == nil || !later(err) {
			return
		}
		after = longer()
	}
}

func raised(id belay.ExecutionID, who string) belay.Control {
	op := newOp()
	return belay.Control{
		Execution: id, Action: belay.ActionBudget, Actor: who, Op: op, Reason: fmt.Sprintf("budget by %s: %s", who, op),
		Budget: &belay.Budget{Cost: belay.CostOf(1000)},
	}
}

// intent records a cost before the call that reports it, because the caller may be killed before it can
// record the answer.
func (r *recorder) intent(request any, cost belay.Cost) {
	if cost == 0 {
		return
	}
	began := entry{Kind: "charge", Who: r.who, At: time.Now()}
	for _, e := range promise.Entries(began, request, nil, time.Time{}, nil) {
		e.End = promise.Unknown
		r.book.note(e)
	}
}

// g17 checks G17 in the lists of open executions: a root whose budget was spent was paused or about to be.
func g17(f *finding) {
	for _, l := range f.Looks {
		for i := range l.Open {
			x := &l.Open[i]
			if x.Budget == nil {
				continue
			}
			f.OK()
			if x.CostTokens < x.Budget.Cost {
				continue
			}
			f.Count("budget found spent")
			reopened := x.State == belay.Pending && x.Generation > 1 && x.StartedAt.IsZero()
			if x.State != belay.Paused && !x.PauseRequested && x.CancelBy.IsZero() && !reopened {
				f.Violation(f.byID[x.ID], "at %s the execution was %s, and its cost of %s had reached its budget of %s",
					l.At.Format(clock), x.State, x.CostTokens, x.Budget.Cost)
			}
		}
	}
	for _, s := range f.stories {
		if !s.Execution.State.Terminal() {
			continue
		}
		for i := range s.Events {
			if ev := &s.Events[i]; ev.Kind == string(belay.ActionResume) && ev.Text == "budget" {
				if s.IsRoot() {
					f.Count("root resumed by a raise")
				} else {
					f.Count("child resumed after a raise")
				}
			}
		}
	}
}

// costMutants are the planted bugs of costs and budgets.
var costMutants = []mutant{
	{"cost charged again when its write was repeated", "G17", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "save" && e.End == ok && e.Cost > 0
		}, func(e *entry) { p.byID[e.Execution].Execution.CostTokens += e.Cost })
	}, ""},
	{"cost not charged to the parent", "G17", func(p *planting) bool {
		return p.tale(func(s *story) bool {
			return !s.IsRoot() && s.Execution.CostTokens > 0 && p.byID[s.Execution.Parent] != nil
		}, func(s *story) { p.byID[s.Execution.Parent].Execution.CostTokens -= s.Execution.CostTokens })
	}, ""},
	{"cost of a refused write charged", "G17", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "save" && e.End == refused && e.Cost > 0
		}, func(e *entry) { p.byID[e.Execution].Execution.CostTokens += e.Cost })
	}, ""},
	{"acknowledged cost lost", "G17", func(p *planting) bool {
		return p.entry(func(e *entry) bool {
			return e.Kind == "settle" && e.End == ok && e.Cost > 0
		}, func(e *entry) { p.byID[e.Execution].Execution.CostTokens -= e.Cost })
	}, ""},
	{"spent budget that pauses nothing", "G17", func(p *planting) bool {
		for i := range p.record.Looks {
			for k := range p.record.Looks[i].Open {
				x := &p.record.Looks[i].Open[k]
				if x.State == belay.Paused && x.Budget != nil && x.CostTokens >= x.Budget.Cost {
					x.State = belay.Waiting
					return true
				}
			}
		}
		return false
	}, ""},
}
