package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/workflow"
)

// The resource that all servers share, and the workflows that use it and change its mode.
const (
	resourceName = "chaos"
	useWorkflow  = "use"
	swapWorkflow = "swap"
	useLimit     = "chaos uses"
	mostUses     = 2
)

// sharedModes are the modes of the executions that one submission has.
var sharedModes = []string{"A", "A", "A", "B", "B", "C"}

// The terms are so short that the mode changes many times in a run. Half of the uses last longer than the
// maximum wait, so that preemptible ones yield.
var resourceTerms = belay.ResourceTerms{
	MinResidency: belay.Duration(200 * time.Millisecond), MaxWait: belay.Duration(600 * time.Millisecond),
	Swap: &belay.ResourceSwapper{Workflow: swapWorkflow, Timeout: belay.Duration(time.Minute)},
}

// use is the input of an execution that uses the resource: in how many steps, and for how long in each
// of them.
type use struct {
	Mode  string `json:"mode"`
	Steps int    `json:"steps"`
	Ms    int    `json:"ms"`
}

// use uses the resource in the mode of the input.
func (p player) use(ctx context.Context, in use) (string, error) {
	for i := range in.Steps {
		_, err := workflow.Step(ctx, fmt.Sprint(i), func(ctx context.Context) (string, error) {
			defer p.notes(ctx, "use", in.Mode, 0)()
			return "", work(ctx, time.Duration(in.Ms)*time.Millisecond)
		})
		if err != nil {
			return "", err
		}
	}
	return in.Mode, nil
}

// swap changes the mode of the resource in two steps, of which only the second one loads the new mode. A
// part of the first attempts fails at the end.
func (p player) swap(ctx context.Context, in belay.SwapInput) (string, error) {
	for _, step := range []string{"unload", "load"} {
		_, err := workflow.Step(ctx, step, func(ctx context.Context) (string, error) {
			defer p.notes(ctx, step, in.To, in.Number)()
			return "", work(ctx, 60*time.Millisecond)
		})
		if err != nil {
			return "", err
		}
	}
	if workflow.Attempt(ctx) == 1 && workflow.Execution(ctx)[15]%8 == 0 {
		return "", errScripted
	}
	return in.To, nil
}

// notes writes into the ledger that the worker begins to work on the resource. The returned function
// writes that it has ended.
func (p player) notes(ctx context.Context, kind, mode string, number int64) (ended func()) {
	e := entry{
		Kind: kind, Who: p.who, At: time.Now(), Execution: workflow.Execution(ctx), Token: workflow.Token(ctx),
		Name: mode, Key: workflow.IdempotencyKey(ctx), Number: number,
	}
	p.book.note(e)
	return func() {
		e.Kind, e.At = worked, time.Now()
		p.book.note(e)
	}
}

// worked is the kind of the entry that ends a work on the resource.
const worked = "worked"

// modeLook is the state of the resource at one moment.
type modeLook struct {
	At       time.Time           `json:"at"`
	State    belay.ResourceState `json:"state"`
	Mode     string              `json:"mode"`
	Swapping belay.ExecutionID   `json:"swapping,omitzero"` // the execution that changes the mode
	Held     int                 `json:"held"`
	Waiting  int                 `json:"waiting"`
}

func (h *history) lookedAtResource(l modeLook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.modes = append(h.modes, l)
}

// modal sets the terms of the resource, submits executions that use it, and reads it from time to time.
func (c *crowd) modal(ctx context.Context) {
	r := c.dice()
	change := belay.GateChange{
		Gate: belay.Gate(belay.GateResource, resourceName), Action: belay.GateSetResource, Resource: &resourceTerms,
		Actor: "operator", Op: newOp(),
	}
	for longer := patience(); ; {
		if _, err := c.patient(r, "operator").ChangeGate(ctx, change); err == nil {
			break
		}
		if pause(ctx, longer()) != nil {
			return
		}
	}
	for {
		var all []belay.Submission
		for i, mode := range sharedModes {
			all = append(all, useOf(r, mode, i))
		}
		if c.submitAll(ctx, r, all...) != nil {
			return
		}
		for range 4 {
			c.lookAtResource(ctx, c.servers[r.IntN(len(c.servers))])
			if pause(ctx, between(r, 200*time.Millisecond, 800*time.Millisecond)) != nil {
				return
			}
		}
	}
}

// useOf makes a submission of the number i that uses the resource. Every third one is preemptible and
// lasts longer than the maximum wait; every second one is also under a limit.
func useOf(r *rand.Rand, mode string, i int) belay.Submission {
	in := use{Mode: mode, Steps: 1 + r.IntN(2), Ms: 1 + r.IntN(100)}
	q := &belay.Requires{Resource: resourceName, Mode: mode}
	if i%3 == 0 {
		in.Steps, in.Ms, q.Preemptible = 6, 150, true
	}
	input, err := json.Marshal(in)
	if err != nil {
		panic(err) // Marshal of these values cannot fail
	}
	s := belay.Submission{ID: newExecutionID(), Workflow: useWorkflow, Input: input, Policy: terms}
	s.Requires = q
	if i%2 == 1 {
		s.Concurrency = &belay.Concurrency{Name: useLimit, Max: mostUses}
	}
	return s
}

// lookAtResource reads the resource once.
func (w *world) lookAtResource(ctx context.Context, s *server) {
	if l, err := readResource(ctx, s.hasty); err == nil {
		w.lookedAtResource(l)
	}
}

func readResource(ctx context.Context, b belay.Backend) (modeLook, error) {
	l := modeLook{At: time.Now()}
	g, err := b.Gate(ctx, belay.Gate(belay.GateResource, resourceName))
	if err != nil {
		return l, fmt.Errorf("read the resource: %w", err)
	}
	l.State, l.Mode, l.Held, l.Waiting = g.Resource.State, g.Resource.Mode, g.Held, g.Waiting
	if s := g.Resource.Swapping; s != nil {
		l.Swapping = s.Execution
	}
	return l, nil
}

// lookAtResourceInTheEnd reads the resource after all executions have ended, and counts its events in the
// table audit.
func (w *world) lookAtResourceInTheEnd(ctx context.Context, r *record) error {
	l, err := readResource(ctx, w.servers[0].client)
	if err != nil {
		return err
	}
	w.lookedAtResource(l)
	text, err := w.query(fmt.Sprintf("SELECT action, count(*) FROM audit WHERE name = '%s' GROUP BY action",
		belay.Gate(belay.GateResource, resourceName)))
	if err != nil {
		return fmt.Errorf("count the events of the resource: %w", err)
	}
	r.Noted = make(map[string]int)
	for line := range strings.Lines(text) {
		action, n, _ := strings.Cut(strings.TrimSpace(line), "|")
		if r.Noted[action], err = strconv.Atoi(n); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
	}
	return nil
}

// killSwappers kills, and sometimes stops and continues, workers in the middle of a change of the mode, once
// for each change and not too often.
func (w *world) killSwappers(ctx context.Context) {
	r := dice(w.seed, "killer of swappers")
	for n := 0; pause(ctx, 50*time.Millisecond) == nil; {
		b := w.servers[r.IntN(len(w.servers))].hasty
		l, err := readResource(ctx, b)
		if err != nil || l.Swapping.IsZero() {
			continue
		}
		x, err := b.Execution(ctx, l.Swapping)
		if err != nil || x.State != belay.Running {
			continue
		}
		s := w.slotOf(ctx, b, x.Worker)
		if s == nil {
			continue
		}
		_ = pause(ctx, between(r, 0, 80*time.Millisecond))
		f := fault{Kind: "kill", For: 50 * time.Millisecond}
		if s.far && n%2 == 0 {
			f = fault{Kind: "stop", For: farTTL + farTTL/2} // the worker loses its lease, and then continues
		}
		w.fault("worker that changed the mode: " + f.Kind)
		s.causeFault(ctx, f)
		n++
		_ = pause(ctx, between(r, 3*time.Second, 5*time.Second))
	}
}

// slotOf returns the slot of the worker with a session, nil if there is none.
func (w *world) slotOf(ctx context.Context, b belay.Backend, id belay.WorkerID) *slot {
	all, err := b.Workers(ctx)
	if err != nil {
		return nil
	}
	for i := range all {
		name, _, _ := strings.Cut(all[i].Name, ".")
		at := slices.IndexFunc(w.workers, func(s *slot) bool { return all[i].ID == id && s.name == name })
		if at >= 0 {
			return w.workers[at]
		}
	}
	return nil
}
