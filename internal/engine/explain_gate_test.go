package engine_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

var update = flag.Bool("update", false, "write the golden files anew")

// gatedCases are executions that a gate keeps from being claimed: one for each kind of gate and
// each of its parts.
var gatedCases = []struct {
	name string
	gate belay.GateChange
	own  belay.Gates
	// before is the number of executions that are submitted before the explained one. The field
	// fail is how many of these run and fail.
	before, fail int
	// earlier, if set, are the gates of the executions that are submitted before.
	earlier *belay.Gates
	// then happens after the submissions.
	then func(e *engine.Engine)
}{
	{name: "a limit is full", own: belay.Gates{Concurrency: &belay.Concurrency{Name: "crawler", Max: 1}}, before: 3},
	{name: "a rate is used up", before: 2,
		own: belay.Gates{Rate: &belay.Rate{Name: "api", Max: 1, Per: belay.Duration(time.Hour)}}},
	{name: "a target is down", own: belay.Gates{Target: "payments:charge"}, before: 5, fail: 5},
	{name: "a target was opened by an operator", own: belay.Gates{Target: "payments:charge"},
		gate: belay.GateChange{
			Gate: "target:payments:charge", Action: belay.GateForceOpen, Actor: "ann", Reason: "they are down",
		}},
	{name: "a target with the name of another gate was opened", own: belay.Gates{Target: "queue:publish"},
		gate: belay.GateChange{Gate: "target:queue:publish", Action: belay.GateForceOpen}},
	{name: "a limit with a name for no shell is full", before: 1,
		own: belay.Gates{Concurrency: &belay.Concurrency{Name: "-x `it's`", Max: 1}}},
	{name: "a limit of an operator is full", before: 1,
		own:  belay.Gates{Concurrency: &belay.Concurrency{Name: "crawler", Max: 5}},
		gate: belay.GateChange{Gate: "limit:crawler", Action: belay.GateSetLimit, Max: 1}},
	{name: "a target is paused", own: belay.Gates{Target: "payments:charge"},
		gate: belay.GateChange{
			Gate: "target:payments:charge", Action: belay.GatePause, Actor: "ann", Reason: "they migrate",
		}},
	{name: "a limit is paused", own: belay.Gates{Concurrency: &belay.Concurrency{Name: "crawler", Max: 1}},
		gate: belay.GateChange{Gate: "limit:crawler", Action: belay.GatePause}},
	{name: "a queue is paused", gate: belay.GateChange{
		Gate: "queue:default", Action: belay.GatePause, Actor: "ann", Reason: "a deploy",
	}},
	{name: "a workflow is limited", before: 2, gate: belay.GateChange{
		Gate: "workflow:w", Action: belay.GateSetLimit, Max: 1,
	}},
	{name: "a queue has a rate", before: 1, gate: belay.GateChange{
		Gate: "queue:default", Action: belay.GateSetRate, Max: 1, Per: belay.Duration(time.Minute),
	}},
	{name: "a resource is in another mode", before: 2, own: requiring("llama"), earlier: gatesOf(requiring("qwen"))},
	{name: "the mode of a resource is due", before: 1, own: requiring("llama"), earlier: gatesOf(requiring("qwen")),
		gate: resourceTerms(belay.ResourceTerms{MaxWait: belay.Duration(time.Second)})},
	{name: "a resource keeps its mode for a while", before: 1, own: requiring("llama"),
		gate:    resourceTerms(belay.ResourceTerms{MinResidency: belay.Duration(time.Minute)}),
		earlier: gatesOf(requiring("qwen")), then: func(e *engine.Engine) {
			d, _ := e.Gate(context.Background(), "resource:gpu")
			_, _ = e.Control(context.Background(), belay.Control{
				Execution: d.Holders[0], Action: belay.ActionQuarantine, Op: belay.OpID{1},
			})
		}},
	{name: "the mode of a resource changes", own: requiring("llama"),
		gate: resourceTerms(belay.ResourceTerms{Swap: &belay.ResourceSwapper{Workflow: "load"}})},
	{name: "the mode of a resource could not be changed", own: requiring("llama"),
		gate: resourceTerms(belay.ResourceTerms{Swap: &belay.ResourceSwapper{Workflow: "load"}}),
		then: func(e *engine.Engine) {
			d, _ := e.Gate(context.Background(), "resource:gpu")
			_, _ = e.Control(context.Background(), belay.Control{
				Execution: d.Resource.Swapping.Execution, Action: belay.ActionCancel, Op: belay.OpID{1},
			})
		}},
	{name: "a workflow is paused for a time", gate: belay.GateChange{
		Gate: "workflow:w", Action: belay.GatePause, Actor: "ann",
	}},
}

func requiring(mode string) belay.Gates {
	return belay.Gates{Requires: &belay.Requires{Resource: "gpu", Mode: mode}}
}

func gatesOf(g belay.Gates) *belay.Gates { return &g }

func resourceTerms(t belay.ResourceTerms) belay.GateChange {
	return belay.GateChange{
		Gate: "resource:gpu", Action: belay.GateSetResource, Resource: &t, Actor: "ann", Reason: "one GPU",
	}
}

var anID = regexp.MustCompile(`ex_[0-9a-z]{26}`)

// Rule: for an execution that waits at a gate, explain names the gate, the reason for which it is
// shut, since when and by whom, when it will open, the execution's position among those that wait,
// and the command that opens the gate.
func TestGatesAreExplained(t *testing.T) {
	var all strings.Builder
	for _, c := range gatedCases {
		synctest.Test(t, func(t *testing.T) {
			e := engine.New(memory.New(time.Now), engine.Options{})
			defer e.Close()
			ctx, stop := context.WithCancel(t.Context())
			if c.gate.Gate != "" {
				if strings.HasSuffix(c.name, "for a time") {
					c.gate.Until = time.Now().Add(time.Hour)
				}
				must[belay.GateDetail](t)(e.ChangeGate(ctx, c.gate))
			}
			s := must[belay.Session](t)(e.OpenWorker(ctx, belay.WorkerSpec{
				Name: "w", Workflows: noop, Capacity: 9, TTL: belay.MaxTTL,
			}))
			number := int64(0)
			claim := func() belay.ClaimReply {
				number++
				return must[belay.ClaimReply](t)(e.Claim(ctx, belay.ClaimRequest{
					Worker: s.ID, Number: number, Slots: 1, Wait: time.Second,
				}))
			}
			var last belay.ExecutionID
			for i := range c.before + 1 {
				own := c.own
				if c.earlier != nil && i < c.before {
					own = *c.earlier
				}
				out := must[[]belay.Submitted](t)(e.Submit(ctx, belay.Submission{
					Workflow: "w", Gates: own, Policy: belay.Policy{MaxAttempts: 1},
				}))
				last = out[0].ID
				r := claim()
				for range 2 { // a claim may return early without an execution
					if len(r.Assignments) == 0 {
						r = claim()
					}
				}
				if i < c.fail {
					end := belay.Settlement{Lease: r.Assignments[0].Lease, Outcome: belay.OutcomeFailed}
					if err := e.Settle(ctx, end); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
			}
			if c.then != nil {
				synctest.Wait()
				c.then(e)
			}
			time.Sleep(5 * time.Second)
			x := must[belay.Explanation](t)(e.Explain(ctx, last))
			fmt.Fprintf(&all, "%s\n\n    %s\n", c.name, x.Summary)
			for _, f := range x.Facts {
				fmt.Fprintf(&all, "    - %s\n", anID.ReplaceAllString(f, "ex_…"))
			}
			all.WriteString("\n")
			stop()
			synctest.Wait()
		})
	}
	const golden = "testdata/explained-gates.txt"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := all.String(); got != string(want) {
		t.Errorf("explained as\n%s\nwant\n%s", got, want)
	}
}
