package webui

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

const (
	workersSize = 50 // workers on one page
	mostEnded   = 20 // the newest sessions that have ended
	mostRuns    = 5  // links to the runs of one worker
)

// fleetPage is the page of the workers.
type fleetPage struct {
	Rows   []workerRow
	Ended  []workerRow
	Sum    string // how many workers there are, and how many of their slots are used
	Listed string // which workers the page lists; empty for all
	Pager  pager
	Older  bool // further sessions have ended
	Reload reload
}

// workerRow is one worker.
type workerRow struct {
	Name, ID, Where, Version string
	State                    state
	About                    []string
	Slots                    string
	Queues, Workflows        names
	Labels                   names
	Mailbox                  string
	Heartbeat                *moment
	Expires                  string
	Runs                     []exLink
	MoreRuns                 int
	End                      *moment
	Offers                   []offer
}

func (p *pages) workers(ctx context.Context, r *http.Request) (view, error) {
	all, err := p.backend.Workers(ctx)
	if err != nil {
		return view{}, err
	}
	// A page of executions that goes on elsewhere lacks runs; the rows then say how many.
	running, err := p.backend.Executions(ctx, belay.Filter{
		States: []belay.State{belay.Scheduled, belay.Running}, Children: true, Limit: countUpTo,
	})
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	split := slices.IndexFunc(all, func(w belay.Worker) bool { return w.State.Ended() })
	if split < 0 {
		split = len(all)
	}
	open, ended := all[:split], slices.Clone(all[split:])
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor")) // an odd cursor is that of the first page
	from = max(0, min(from, len(open)))
	part := open[from:min(len(open), from+workersSize)]
	f := fleetPage{Sum: sumOf(open), Reload: reloadOf(r.URL)}
	for i := range part {
		row := workerRowOf(&part[i], running.Executions, now)
		row.Offers = deedsOn(ctx, ofWorker, row.ID, workerDeeds(&part[i])...)
		f.Rows = append(f.Rows, row)
	}
	slices.SortStableFunc(ended, func(a, b belay.Worker) int { return b.EndedAt.Compare(a.EndedAt) })
	f.Ended, f.Older = endedRows(ended, now)
	if len(part) < len(open) {
		f.Listed = fmt.Sprintf("These are the workers %d to %d of %d.", from+1, from+len(part), len(open))
	}
	next, q := "", chosen(r.URL.Query(), "live")
	if from > 0 {
		q.Set("cursor", strconv.Itoa(from))
	}
	if from+len(part) < len(open) {
		next = strconv.Itoa(from + workersSize)
	}
	f.Pager = pagerOf("/workers", q, next)
	return view{template: "workers", Title: "Workers", Page: f, Refresh: f.Reload.seconds(),
		Live: f.Reload.live(changesPath)}, nil
}

// endedRows lists sessions that have ended. Sessions of one process that were drained are one row: the worker for HTTP
// requests of a server connects for each burst of requests, and its sessions would hide lost workers.
func endedRows(ended []belay.Worker, now time.Time) (rows []workerRow, older bool) {
	type process struct {
		name string
		at   belay.Process
	}
	drained := make(map[process]int) // the rows of the processes
	earlier := make(map[int]int)     // the numbers of earlier sessions, by row
	for i := range ended {
		w := &ended[i]
		p := process{w.Name, w.Process}
		row, ok := drained[p]
		switch {
		case ok && w.State == belay.WorkerDrained:
			earlier[row]++
		case len(rows) == mostEnded:
			older = true
		default:
			if w.State == belay.WorkerDrained {
				drained[p] = len(rows)
			}
			rows = append(rows, workerRowOf(w, nil, now))
		}
	}
	for row, n := range earlier {
		rows[row].About = append(rows[row].About, "and "+several(n, "earlier session")+" of the same worker")
	}
	return rows, older
}

// workerDeeds returns the names of the deeds that change something at a worker.
func workerDeeds(w *belay.Worker) []string {
	switch {
	case w.External || w.State == belay.WorkerDraining:
		return nil
	case w.State == belay.WorkerCordoned:
		return []string{"uncordon", "drain"}
	}
	return []string{"cordon", "drain"}
}

// sumOf counts the workers and their slots; owners from outside have none.
func sumOf(open []belay.Worker) string {
	workers, outside, used, slots := 0, 0, 0, 0
	for i := range open {
		if open[i].External {
			outside++
			continue
		}
		workers++
		used += open[i].Running
		slots += open[i].Capacity
	}
	text := fmt.Sprintf("%s, %d of %s in use", several(workers, "worker"), used, several(slots, "slot"))
	if outside > 0 {
		text += ", and " + several(outside, "owner") + " from outside"
	}
	return text
}

// workerClasses are the CSS classes of the states of workers.
var workerClasses = map[belay.WorkerState]string{
	belay.WorkerOpen: "good", belay.WorkerDraining: "hold", belay.WorkerCordoned: "hold", belay.WorkerUnhealthy: "bad",
	belay.WorkerLost: "bad",
}

func workerRowOf(w *belay.Worker, running []belay.Execution, now time.Time) workerRow {
	row := workerRow{
		Name: line(w.Name), ID: w.ID.String(), Where: place(w.Process), Version: excerpt(w.Version, 80),
		State: state{w.State.String(), workerClasses[w.State]}, Labels: pairs(w.Labels), End: when(w.EndedAt, now),
	}
	if w.External {
		row.About = append(row.About, "An owner from outside, which is no worker.")
	} else {
		row.Slots = fmt.Sprintf("%d of %d", w.Running, w.Capacity)
		row.Queues, row.Workflows = namesOf(queuesOf(w)), namesOf(workflowsOf(w))
		row.Mailbox = line(w.Mailbox)
	}
	if c := w.Cordoned; c != nil {
		row.About = append(row.About, byOperator("cordoned for "+short(now.Sub(c.Since)), c.By, c.Reason))
	}
	if w.HealthError != "" {
		row.About = append(row.About, line("its probe has failed for "+short(now.Sub(w.UnhealthySince))+": "+
			w.HealthError))
	}
	if w.State.Ended() {
		if w.EndReason != w.State.String() {
			row.About = append(row.About, line(w.EndReason))
		}
		return row
	}
	row.Heartbeat = when(w.HeartbeatAt, now)
	if row.Expires = "expires in " + short(w.ExpiresAt.Sub(now)); !w.ExpiresAt.After(now) {
		row.Expires = "its session has expired"
	}
	for i := range running {
		if e := &running[i]; e.Worker == w.ID && len(row.Runs) < mostRuns {
			row.Runs = append(row.Runs, linkTo(e.ID, nameOf(e)))
		}
	}
	row.MoreRuns = max(0, w.Running-len(row.Runs))
	return row
}

// nameOf returns the document or the workflow that an execution runs.
func nameOf(e *belay.Execution) string {
	if d := e.Document(); d != "" {
		return d
	}
	return e.Workflow
}

const defaultQueue = "default"

// allQueues returns the queues of a worker.
func allQueues(w *belay.Worker) []string {
	if len(w.Queues) == 0 {
		return []string{defaultQueue}
	}
	return w.Queues
}

// queuesOf returns the queues of a worker, except the internal ones of belay run.
func queuesOf(w *belay.Worker) []string {
	return slices.DeleteFunc(slices.Clone(allQueues(w)), func(q string) bool { return strings.HasPrefix(q, "run:") })
}

// workflowsOf returns the workflows of a worker with their versions.
func workflowsOf(w *belay.Worker) []string {
	var all []string
	for _, r := range w.Workflows {
		name := r.Workflow
		if r.Version != "" {
			name += " " + r.Version
		}
		all = append(all, name)
	}
	return all
}
