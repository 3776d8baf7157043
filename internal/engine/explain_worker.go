package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// queued says why no worker has taken a due execution.
func (x *explainer) queued(e *machine.Execution) {
	x.out.Summary = fmt.Sprintf("It has been due for %s and waits for a worker.", ago(x.now, e.DueAt))
	switch {
	case e.State == belay.Waiting:
		x.fact("its wait is over: %s", e.ReasonText)
	case e.ReasonText != "":
		x.fact("before that: %s", e.ReasonText)
	}
	if e.NeedsWorker() {
		x.fact("it fails with %q as soon as no connected worker can take it, since its policy says on_no_worker: fail",
			machine.NoWorkers)
	}
	c := x.claimers()
	if free := len(c.free); free > 0 {
		x.fact("%d of the %d workers that can run it %s a free slot: it starts within moments", free, c.able(),
			hasHave(free))
		return
	}
	x.out.Summary = strings.TrimSuffix(x.out.Summary, ".") + ": " + c.lack(e) + "."
	x.stuck(e, c)
}

// claimers are the connected workers, grouped by whether and why they do not claim the execution.
type claimers struct {
	unfit []store.WorkerRow // workers that do not take executions like this one
	free  []store.WorkerRow
	busy  []store.WorkerRow // workers without a free slot
	// barred are workers that claim nothing in their state, such as cordoned ones.
	barred []store.WorkerRow
}

// able is the number of workers that take executions like this one.
func (c *claimers) able() int { return len(c.free) + len(c.busy) + len(c.barred) }

// lack says in a few words why no worker claims the execution.
func (c *claimers) lack(e *machine.Execution) string {
	switch {
	case c.able() == 0 && len(c.unfit) == 0:
		return "no worker is connected"
	case c.able() == 0:
		return fmt.Sprintf("no connected worker takes workflow %q from queue %q", e.Workflow, e.Queue)
	case c.able() == 1 && len(c.barred) == 1:
		return fmt.Sprintf("the only worker that can run it, %q, is %s", c.barred[0].Spec.Name, c.barred[0].State)
	case len(c.busy) > 0:
		return "the workers that can run it have no free slot"
	}
	return "the workers that can run it claim nothing now"
}

// claimers groups the connected workers. The owners of locks are not workers.
func (x *explainer) claimers() *claimers {
	c, lane := new(claimers), x.lane()
	for _, w := range x.workers {
		switch {
		case w.State.Ended() || w.ExpiresAt <= x.now || w.Spec.External:
		case !lane.Takes(w.Spec):
			c.unfit = append(c.unfit, w)
		case !w.State.Claims():
			c.barred = append(c.barred, w)
		case w.Running < w.Spec.Capacity:
			c.free = append(c.free, w)
		default:
			c.busy = append(c.busy, w)
		}
	}
	return c
}

func (x *explainer) lane() machine.Lane {
	e := x.rec.Execution
	return machine.NewLane(e.Queue, e.Workflow, e.Version, x.view.Priority, x.view.WorkerLabels)
}

// claimable adds a fact if no worker could claim the execution now: then the execution will wait
// for a worker after its present wait. The fact says why no worker can claim it.
func (x *explainer) claimable(e *machine.Execution) {
	if c := x.claimers(); !e.External && len(c.free)+len(c.busy) == 0 {
		x.fact("when this wait is over, it needs a worker, and it would not find one now:")
		x.stuck(e, c)
	}
}

// stuck says why none of the workers claims the execution, and how to change that.
func (x *explainer) stuck(e *machine.Execution, c *claimers) {
	defer x.remedy(belay.RemedyLook, belay.RemedyWorkers, e.Queue, "Look at the workers",
		"shows what each worker takes and runs")
	if len(x.workers) == maxExplained {
		x.fact("more workers are connected than were searched: only the newest %d were", maxExplained)
	}
	if c.able() == 0 {
		x.unfit(e, c.unfit)
		return
	}
	x.fact("of the workers that can run it, none claims now: %s", c.counts())
	for _, w := range first(c.barred) {
		switch w.State {
		case belay.WorkerCordoned:
			if d := machine.WorkerView(w.Worker).Cordoned; d.Since.IsZero() {
				x.fact("worker %q is cordoned", w.Spec.Name)
			} else {
				x.fact("worker %q: %s", w.Spec.Name, deed(d.By, "cordoned", d.Since, d.Reason, x.now))
			}
			if _, failure := w.Failing(); failure == "" {
				x.fact("`belay workers uncordon %s` lets this worker claim again", w.ID)
				x.remedy(belay.RemedyUncordon, belay.RemedyWorker, w.ID.String(),
					fmt.Sprintf("Uncordon worker %q", w.Spec.Name),
					"lets the worker claim again, this execution and others: repair the reason of the cordon before")
				continue
			}
			x.unhealthy(w)
			x.fact("`belay workers uncordon %s` and a probe that succeeds let this worker claim again", w.ID)
		case belay.WorkerUnhealthy:
			x.unhealthy(w)
			x.fact("this worker claims again after a probe that succeeds: repair what the error says, or start " +
				"another worker")
		case belay.WorkerDraining:
			x.fact("worker %q is draining: it finishes its runs, claims nothing more and ends; start another in its "+
				"place", w.Spec.Name)
		default:
			x.fact("worker %q is %s; `belay workers ls` shows it", w.Spec.Name, w.State)
		}
	}
	for _, w := range first(c.busy) {
		x.fact("worker %q runs %s and has %s", w.Spec.Name, plural(w.Running, "execution"),
			plural(w.Spec.Capacity, "slot"))
	}
	if len(c.busy) > 0 {
		x.fact("it starts when a run on one of these workers ends; executions of a higher priority start before it, " +
			"and so do those of its priority that were due earlier")
		x.fact("to start it sooner, start another worker, or one with more slots (`belay worker --concurrency N`)")
		x.fact("`belay ls --state running` shows the runs")
	}
}

// unhealthy says since when the health probes of the worker fail, and the error of the last probe.
func (x *explainer) unhealthy(w store.WorkerRow) {
	since, failure := w.Failing()
	x.fact("worker %q has been unhealthy for %s: its health probe at %s says: %s", w.Spec.Name, ago(x.now, since),
		w.Spec.Health, failure)
}

// counts says how many workers do not claim, for each reason.
func (c *claimers) counts() string {
	var reasons []string
	if n := len(c.busy); n > 0 {
		reasons = append(reasons, fmt.Sprintf("%d %s no free slot", n, hasHave(n)))
	}
	count := make(map[belay.WorkerState]int)
	var states []belay.WorkerState
	for _, w := range c.barred {
		if count[w.State]++; count[w.State] == 1 {
			states = append(states, w.State)
		}
	}
	slices.Sort(states)
	for _, s := range states {
		reasons = append(reasons, fmt.Sprintf("%d %s %s", count[s], isAre(count[s]), s))
	}
	return strings.Join(reasons, ", ")
}

// unfit says that no connected worker takes executions like this one, and why.
func (x *explainer) unfit(e *machine.Execution, connected []store.WorkerRow) {
	if len(connected) == 0 {
		x.fact("no worker is connected")
	} else {
		x.fact("none of the connected workers takes it: %s", x.mismatches(connected))
	}
	if w := x.former; w != nil {
		x.fact("the last worker that took such executions, %q, ended %s ago: %s", w.Spec.Name, ago(x.now, w.EndedAt),
			w.Why)
	}
	wanted := fmt.Sprintf("workflow %q%s from queue %q%s", e.Workflow, version(e.Version), e.Queue, labels(x.lane()))
	if e.Workflow == belay.PublishWorkflow {
		x.fact("it publishes a message to an exchange of RabbitMQ; start a server that has the address of RabbitMQ " +
			"in its configuration (broker.url)")
		return
	}
	x.fact("it starts as soon as a worker connects that takes %s; start such a worker", wanted)
	if command := workerCommand(e, x.lane().Labels); command != "" {
		x.fact("`%s` starts one", command)
	}
	if len(connected) > 0 {
		x.fact("`belay workers ls -o json` shows what each worker takes; if the submission is wrong, "+
			"`belay cancel %s` and submit it again", e.ID)
	}
}

// workerCommand is the command that starts a worker for an execution of a built-in workflow; "" for another workflow,
// whose worker is a program of its authors.
func workerCommand(e *machine.Execution, labels map[string]string) string {
	command := "belay worker --server URL"
	if strings.HasPrefix(e.Queue, "run:") { // only the command belay run takes executions from such a queue
		return ""
	}
	switch e.Workflow {
	case "command":
	case "http":
		command += " --http-concurrency 20"
	default:
		return ""
	}
	if e.Queue != "default" {
		command += " --queue " + machine.ShellWord(e.Queue)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		command += " --label " + machine.ShellWord(name+"="+labels[name])
	}
	return command
}

// mismatches counts the connected workers by the first reason for which they do not take the
// execution.
func (x *explainer) mismatches(connected []store.WorkerRow) string {
	e := x.rec.Execution
	var workflow, versions, queue, other int
	var found []string
	for _, w := range connected {
		var has []string
		for _, r := range w.Spec.Workflows {
			if r.Workflow == e.Workflow {
				has = append(has, versionText(r.Version))
			}
		}
		switch {
		case len(has) == 0:
			workflow++
		case !slices.Contains(has, versionText(e.Version)):
			versions++
			for _, v := range has {
				if !slices.Contains(found, v) {
					found = append(found, v)
				}
			}
		case !slices.Contains(w.Spec.Queues, e.Queue):
			queue++
		default:
			other++
		}
	}
	var reasons []string
	add := func(n int, one, many, format string, args ...any) {
		verb := many
		if n == 1 {
			verb = one
		}
		if n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s ", n, verb)+fmt.Sprintf(format, args...))
		}
	}
	add(workflow, "does", "do", "not run workflow %q", e.Workflow)
	add(versions, "runs", "run", "workflow %q only in other versions (%s)", e.Workflow,
		strings.Join(first(found), ", "))
	add(queue, "takes", "take", "no executions from queue %q", e.Queue)
	add(other, "lacks", "lack", "a label of %v", x.lane().Labels)
	return strings.Join(reasons, ", ")
}

func versionText(v string) string {
	if v == "" {
		return "without a version"
	}
	return fmt.Sprintf("%q", v)
}

func version(v string) string {
	if v == "" {
		return ""
	}
	return fmt.Sprintf(" version %q", v)
}

func labels(l machine.Lane) string {
	if len(l.Labels) == 0 {
		return ""
	}
	return fmt.Sprintf(" with labels %v", l.Labels)
}

// first returns the first rows of a list, as many as Explain names.
func first[R any](rows []R) []R { return rows[:min(len(rows), maxChildren)] }

func hasHave(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}
