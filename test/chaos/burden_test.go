package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// The sizes of large payloads.
const (
	leastLarge = promise.LeastLarge
	mostLarge  = 512 << 10
	largeSig   = 32 << 10
)

// lanes is the number of lanes of a wide submission. A lane is the executions with the same queue,
// workflow, version, labels and priority; here each lane has another priority.
const lanes = 150

// burden submits unusual work: large payloads, submissions over many lanes (groups of executions
// that the same workers may claim), and poison executions, which kill their workers.
func (c *crowd) burden(ctx, lives context.Context) {
	r := c.dice()
	for n := 0; ; n++ {
		switch n % 6 {
		case 0:
			c.poison(lives, r)
		case 2, 5:
			c.wide(ctx, r)
		default:
			c.heavy(ctx, r)
		}
		if pause(ctx, between(r, 3*time.Second, 5*time.Second)) != nil {
			return
		}
	}
}

// heavy submits an execution with a large input, a large checkpoint and a large signal.
func (c *crowd) heavy(ctx context.Context, r *rand.Rand) {
	size := func() int { return leastLarge + r.IntN(mostLarge-leastLarge) }
	s := c.root([]op{{
		Do: "step", Ms: 5, Pad: strings.Repeat("x", size()),
	}, {Do: "large", N: size()}, {Do: "step", Ms: 50}, {Do: "signal"}})
	if c.submitAll(ctx, r, s) != nil {
		return
	}
	payload := fmt.Appendf(nil, `"sig of %s %s"`, s.ID, strings.Repeat("y", largeSig))
	c.lives.Go(func() {
		c.signal(ctx, time.Second, belay.SignalRequest{
			Execution: s.ID, Name: signalName, Payload: payload, Op: newOp(),
		})
	})
}

// wide submits executions of many kinds (in many lanes) at once.
func (c *crowd) wide(ctx context.Context, r *rand.Rand) {
	all := make([]belay.Submission, lanes)
	for i := range all {
		all[i] = c.root([]op{{Do: "step", Ms: 1}})
		all[i].Priority = i - lanes/2
	}
	if c.submitAll(ctx, r, all...) == nil {
		c.happened("submission over more than 100 lanes")
	}
}

// A poison execution fails when it has lost its worker poisonLosses times.
const poisonLosses = 4

// poison submits an execution that kills every worker that runs it. The worker's other executions
// are lost together with the worker.
func (c *crowd) poison(ctx context.Context, r *rand.Rand) {
	s := c.root([]op{{Do: "step", Ms: 5}, {Do: "poison", Ms: 20}})
	s.Policy.MaxLosses = poisonLosses
	_ = c.submitAll(ctx, r, s)
}

func (c *crowd) root(script []op) belay.Submission {
	input, err := json.Marshal(script)
	if err != nil {
		panic(err) // Marshal of these values cannot fail
	}
	return belay.Submission{ID: newExecutionID(), Workflow: "play", Input: input, Policy: terms}
}

// submitAll submits executions until the submission is acknowledged.
func (c *crowd) submitAll(ctx context.Context, r *rand.Rand, all ...belay.Submission) error {
	for longer := patience(); ; {
		got, err := c.patient(r, "submitter of burdens").Submit(ctx, all...)
		if err == nil && !slices.ContainsFunc(got, func(s belay.Submitted) bool { return s.Err != nil }) {
			return nil
		}
		if err := pause(ctx, longer()); err != nil {
			return err
		}
	}
}

// isPoison reports whether the script of an execution kills its worker.
func isPoison(s *story) bool {
	return slices.ContainsFunc(s.Script, func(o op) bool { return o.Do == "poison" })
}

// cancelledBy reports whether the execution was cancelled before an event.
func cancelledBy(s *story, seq int64) bool {
	return s.Find(string(belay.ActionCancel), func(ev *belay.Event) bool { return ev.Seq < seq }) != nil
}

// poison checks that an execution that kills its workers fails, and that no other execution fails
// because its workers were lost too often. The checker ignores executions of ghosts (workers that
// lose their executions on purpose).
func poison(f *finding) {
	for _, s := range f.stories {
		if s.Script == nil {
			continue
		}
		for _, a := range s.Runs {
			if a.End == nil || a.End.Kind != belay.OutcomeLost.String() {
				continue
			}
			f.OK()
			switch {
			case !isPoison(s) && a.End.Final && !cancelledBy(s, a.End.Seq):
				f.Violation(s, "the execution was failed with token %d as if it had killed its workers", a.Token)
			case isPoison(s) && a.End.Final:
				f.Count("poison failed")
			case isPoison(s):
				f.Count("poison run again")
			}
		}
		if isPoison(s) && succeeded(&s.Execution) {
			f.Violation(s, "the execution killed its workers and succeeded")
		}
	}
}
