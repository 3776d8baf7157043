package webui

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

const (
	mostQueues   = 50 // queues on the page
	explained    = 10 // queues for whose oldest execution the page has the explanation
	mostQueueing = 3  // reasons in one row
)

// queuePage is the page of queues and gates.
type queuePage struct {
	Queues  []queueRow
	Sum     string
	Partial string // says that the counts are incomplete; empty if they are complete
	More    string
	Gates   gateList
	Reload  reload
}

// queueRow is one queue.
type queueRow struct {
	Name      string
	State     state
	Pending   int
	Workflows names
	Oldest    *moment // when the execution that has waited longest was due
	Why       []span  // why its oldest execution does not run
	First     exLink  // its oldest execution
	Reasons   []string
	Workers   int
}

// queued collects what waits in one queue.
type queued struct {
	name      string
	pending   int
	oldest    *belay.Execution
	reasons   map[string]int
	workflows map[string]bool
	workers   int
	without   map[string]int   // executions that no connected worker takes, by their workflow
	alone     *belay.Execution // the oldest of these; nil if there is none
}

// due is the time since when an execution waits for a worker.
func due(e *belay.Execution) time.Time {
	if e.DueAt.After(e.CreatedAt) {
		return e.DueAt
	}
	return e.CreatedAt
}

// queues groups the executions that wait for a worker, and counts the workers of each queue. The internal
// queues of belay run are one queue.
func queuesFrom(waiting []belay.Execution, workers []belay.Worker) []*queued {
	all := make(map[string]*queued)
	of := func(name string) *queued {
		if strings.HasPrefix(name, "run:") {
			name = "belay run"
		}
		if all[name] == nil {
			all[name] = &queued{name: name, reasons: make(map[string]int), workflows: make(map[string]bool),
				without: make(map[string]int)}
		}
		return all[name]
	}
	taken := takes(workers)
	for i := range waiting {
		e := &waiting[i]
		q := of(e.Queue)
		q.pending++
		q.workflows[nameOf(e)] = true
		q.reasons[reasonOf(e)]++
		// A gate that holds an execution is why it waits; workers such as those for HTTP requests connect when the
		// gate lets executions through.
		if !e.External && e.State == belay.Pending && e.Gate == "" && !taken(e) {
			q.without[nameOf(e)]++
			if q.alone == nil || due(e).Before(due(q.alone)) {
				q.alone = e
			}
		}
		if q.oldest == nil || due(e).Before(due(q.oldest)) {
			q.oldest = e
		}
	}
	for i := range workers {
		w := &workers[i]
		if w.State.Ended() || w.External {
			continue
		}
		for _, name := range allQueues(w) {
			of(name).workers++
		}
	}
	// The queue with the longest wait comes first; queues in which nothing waits follow by name.
	return slices.SortedFunc(maps.Values(all), func(a, b *queued) int {
		switch {
		case a.oldest != nil && b.oldest != nil:
			return cmp.Or(due(a.oldest).Compare(due(b.oldest)), strings.Compare(a.name, b.name))
		case a.oldest != nil:
			return -1
		case b.oldest != nil:
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
}

// takes returns a function that reports whether a connected worker takes executions like e. It knows the
// answer for the next execution with the same queue, workflow, version and labels.
func takes(workers []belay.Worker) func(e *belay.Execution) bool {
	known := make(map[string]bool)
	return func(e *belay.Execution) bool {
		key := fmt.Sprintf("%q %q %q %q", e.Queue, e.Workflow, e.Version, e.WorkerLabels) // in the order of the labels
		answer, ok := known[key]
		if !ok {
			for i := range workers {
				answer = answer || fits(&workers[i], e)
			}
			known[key] = answer
		}
		return answer
	}
}

// fits reports whether a worker is connected and takes executions like e.
func fits(w *belay.Worker, e *belay.Execution) bool {
	if w.State.Ended() || w.External || !slices.Contains(allQueues(w), cmp.Or(e.Queue, defaultQueue)) ||
		!slices.Contains(w.Workflows, belay.Registration{Workflow: e.Workflow, Version: e.Version}) {
		return false
	}
	for k, v := range e.WorkerLabels {
		if has, ok := w.Labels[k]; !ok || has != v {
			return false
		}
	}
	return true
}

// reasonOf says in a few words why an execution is not running.
func reasonOf(e *belay.Execution) string {
	switch {
	case e.Gate != "":
		return "at the gate " + excerpt(string(e.Gate), 60)
	case e.State == belay.Scheduled:
		return "scheduled to a worker"
	case e.Reason == nil || e.Reason.Code == "queued":
		return "queued"
	case e.Reason.Code == "no_worker":
		return "no worker"
	}
	return excerpt(e.Reason.Code, 40)
}

func (p *pages) queues(ctx context.Context, r *http.Request) (view, error) {
	if id := r.URL.Query().Get("gate"); id != "" {
		return p.gate(ctx, belay.GateID(id))
	}
	waiting, workers, err := p.line(ctx)
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	all := queuesFrom(waiting.Executions, workers)
	d := queuePage{Sum: several(len(all), "queue")}
	if waiting.Next != "" {
		d.Partial = fmt.Sprintf("More than %d executions wait; these are the newest of them, so each count and "+
			"wait is at least the one shown.", len(waiting.Executions))
	}
	if n := len(all) - mostQueues; n > 0 {
		d.More = several(n, "further queue") + " with shorter waits " + isOrAre(n) + " not shown."
	}
	for i, q := range all[:min(len(all), mostQueues)] {
		row := queueRowOf(q, now)
		if q.oldest != nil && i < explained {
			why, err := p.backend.Explain(ctx, q.oldest.ID)
			if err != nil && belay.CodeOf(err) != belay.CodeNotFound { // it may have been deleted meanwhile
				return view{}, err
			}
			row.Why = spans(excerpt(why.Summary, 2*maxLine))
		}
		d.Queues = append(d.Queues, row)
	}
	if d.Gates, err = p.gates(ctx, r.URL.Query(), now); err != nil {
		return view{}, err
	}
	d.Reload = reloadOf(r.URL)
	return view{template: "queues", Title: "Queues and gates", Page: d, Refresh: d.Reload.seconds(),
		Live: d.Reload.live(changesPath)}, nil
}

// line reads the executions that wait for a worker, up to a limit, and the workers.
func (p *pages) line(ctx context.Context) (belay.Page, []belay.Worker, error) {
	waiting, err := p.backend.Executions(ctx, belay.Filter{
		States: []belay.State{belay.Pending, belay.Scheduled}, Children: true, Limit: countUpTo,
	})
	if err != nil {
		return waiting, nil, err
	}
	workers, err := p.backend.Workers(ctx)
	return waiting, workers, err
}

func queueRowOf(q *queued, now time.Time) queueRow {
	row := queueRow{
		Name: excerpt(q.name, maxLine), Pending: q.pending, Workers: q.workers,
		Workflows: namesOf(slices.Sorted(maps.Keys(q.workflows))), State: state{"idle", ""},
	}
	switch {
	case q.alone != nil:
		row.State = state{"no worker", "bad"}
	case q.pending > 0:
		row.State = state{"waiting", "hold"}
	}
	if q.oldest != nil {
		row.Oldest, row.First = when(due(q.oldest), now), linkTo(q.oldest.ID, shortID(q.oldest.ID))
	}
	words := slices.SortedFunc(maps.Keys(q.reasons), func(a, b string) int {
		return cmp.Or(q.reasons[b]-q.reasons[a], strings.Compare(a, b))
	})
	for _, w := range words[:min(len(words), mostQueueing)] {
		row.Reasons = append(row.Reasons, fmt.Sprintf("%d %s", q.reasons[w], w))
	}
	if n := len(words) - mostQueueing; n > 0 {
		row.Reasons = append(row.Reasons, several(n, "further reason"))
	}
	if q.alone != nil {
		row.Reasons = append(row.Reasons, "no worker is connected for "+strings.Join(lacking(q), ", "))
	}
	return row
}

// lacking names the workflows whose executions no connected worker takes, with their numbers.
func lacking(q *queued) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(q.without)) {
		if len(all) == mostQueueing {
			return append(all, several(len(q.without)-mostQueueing, "further workflow"))
		}
		all = append(all, fmt.Sprintf("%s (%d)", excerpt(name, 60), q.without[name]))
	}
	return all
}
