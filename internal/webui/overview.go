package webui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

const (
	newest      = 10          // executions on the overview
	newestRead  = 50          // executions among which it looks for those that are no deliveries of notifications
	lately      = time.Hour   // how long the overview names workers that were lost
	overdueFrom = time.Minute // from this wait on an execution that a worker could take is overdue
	mostAlerts  = 1000        // gates, and schedules, that the overview examines

	mostQuestions = 200 // waiting agents, and waiting executions of documents, that the overview examines
)

// overviewPage is the first page: how many executions there are in each state, and the matters to which a
// person should attend.
type overviewPage struct {
	Counts   []count
	More     bool // the counts are lower bounds
	Alerts   []alert
	Examined string // what the page has not examined; empty if it has examined everything
	Rows     []row
	// Deliveries is the number of deliveries of notifications that the rows leave out.
	Deliveries int
	Fleet      string
	Activity   *activity // nil if the server does not count what it does
	Reload     reload
}

// alert is a matter to which a person should attend, with the page that shows it.
type alert struct {
	Level   state
	Text    string
	About   string
	Address string
}

func (p *pages) overview(ctx context.Context, r *http.Request) (view, error) {
	all, err := p.backend.Executions(ctx, belay.Filter{Limit: newestRead, Count: true})
	if err != nil {
		return view{}, err
	}
	waiting, workers, err := p.line(ctx)
	if err != nil {
		return view{}, err
	}
	now := p.options.Now()
	open := slices.DeleteFunc(slices.Clone(workers), func(w belay.Worker) bool { return w.State.Ended() })
	o := overviewPage{Fleet: sumOf(open), Reload: reloadOf(r.URL)}
	o.Counts, o.More = countStates(&filter{State: "none"}, &all)
	o.newest(all.Executions, now)
	if p.options.Activity != nil {
		o.Activity = activityOf(p.options.Activity())
	}
	if err := p.deadAlert(ctx, &o, now); err != nil {
		return view{}, err
	}
	o.queueAlerts(&waiting, workers, now)
	o.workerAlerts(workers, now)
	if err := p.gateAlerts(ctx, &o, now); err != nil {
		return view{}, err
	}
	if err := p.scheduleAlerts(ctx, &o); err != nil {
		return view{}, err
	}
	if err := p.questionAlerts(ctx, &o); err != nil {
		return view{}, err
	}
	slices.SortStableFunc(o.Alerts, func(a, b alert) int { return strings.Compare(a.Level.Class, b.Level.Class) })
	return view{template: "overview", Title: "Overview", Page: o, Refresh: o.Reload.seconds(),
		Live: o.Reload.live(changesPath)}, nil
}

// newest lists the newest executions without the deliveries of notifications, which would hide those that they report.
func (o *overviewPage) newest(all []belay.Execution, now time.Time) {
	for i := range all[:min(len(all), newestRead)] {
		switch {
		case len(o.Rows) == newest:
			return
		case all[i].Trigger == belay.TriggerNotification:
			o.Deliveries++
		default:
			o.Rows = append(o.Rows, rowOf(&all[i], now))
		}
	}
}

func (o *overviewPage) add(level, text, about, address string) {
	word := map[string]string{"bad": "act", "hold": "look"}[level]
	o.Alerts = append(o.Alerts, alert{state{word, level}, text, line(about), address})
}

func (p *pages) deadAlert(ctx context.Context, o *overviewPage, now time.Time) error {
	dead, err := p.backend.DeadLetters(ctx, belay.DeadLetterFilter{Limit: countUpTo})
	if err != nil || len(dead.DeadLetters) == 0 {
		return err
	}
	text, last := several(len(dead.DeadLetters), "open dead letter"), &dead.DeadLetters[0]
	if dead.Next != "" {
		text = "more than " + text
	}
	o.add("bad", text, fmt.Sprintf("the newest %s, of %s: %s", when(last.At, now).ago(), excerpt(last.Workflow, 60),
		last.Message), "/dead")
	return nil
}

// queueAlerts names queues in which executions wait for a worker that is not connected, and queues in which
// executions wait too long.
func (o *overviewPage) queueAlerts(waiting *belay.Page, workers []belay.Worker, now time.Time) {
	var without, slow []string
	late, taken := 0, takes(workers)
	for _, q := range queuesFrom(waiting.Executions, workers) {
		if q.alone != nil && now.Sub(due(q.alone)) >= belay.NoWorkerAlertAfter {
			without = append(without, excerpt(q.name, 60)+": "+strings.Join(lacking(q), ", "))
		}
	}
	for i := range waiting.Executions {
		e := &waiting.Executions[i]
		queued := e.Gate == "" && !e.External && (e.Reason == nil || e.Reason.Code == "queued")
		if queued && now.Sub(due(e)) > overdueFrom && taken(e) {
			late++
			if name := excerpt(e.Queue, 60); !slices.Contains(slow, name) && len(slow) < mostNames {
				slow = append(slow, name)
			}
		}
	}
	if n := len(without); n > 0 {
		o.add("bad", several(n, "queue")+" with executions for which no worker is connected",
			strings.Join(without[:min(n, mostNames)], "; "), "/queues")
	}
	if late > 0 {
		o.add("hold", several(late, "execution")+" due for more than a minute",
			"in "+strings.Join(slow, ", "), "/queues")
	}
}

// workerAlerts names workers that are unhealthy, cordoned or lately lost.
func (o *overviewPage) workerAlerts(workers []belay.Worker, now time.Time) {
	found := make(map[belay.WorkerState][]string)
	for i := range workers {
		w := &workers[i]
		if w.State != belay.WorkerLost || now.Sub(w.EndedAt) < lately {
			found[w.State] = append(found[w.State], excerpt(w.Name, 60))
		}
	}
	for _, kind := range []struct {
		state       belay.WorkerState
		level, what string
	}{
		{belay.WorkerUnhealthy, "bad", "unhealthy"},
		{belay.WorkerLost, "hold", "lost in the last hour"},
		{belay.WorkerCordoned, "hold", "cordoned"},
	} {
		if names := found[kind.state]; len(names) > 0 {
			o.add(kind.level, several(len(names), "worker")+" "+kind.what,
				strings.Join(names[:min(len(names), mostNames)], ", "), "/workers")
		}
	}
}

// addGates names the gates with one problem. A single gate has the link to its own page, where its forms are.
func (o *overviewPage) addGates(level, one, problem string, gates, more []string) {
	if len(gates) == 0 {
		return
	}
	at := "/queues"
	if len(gates) == 1 {
		at = pageOf(ofGate, gates[0])
	}
	var names []string
	for i, g := range gates[:min(len(gates), mostNames)] {
		name := excerpt(g, 60)
		if i < len(more) {
			name += more[i]
		}
		names = append(names, name)
	}
	o.add(level, several(len(gates), one)+problem, strings.Join(names, ", "), at)
}

// gateAlerts names circuit breakers that are not closed, resources that have failed, and pauses.
func (p *pages) gateAlerts(ctx context.Context, o *overviewPage, now time.Time) error {
	found, err := p.backend.Gates(ctx, belay.GateFilter{Limit: mostAlerts})
	if err != nil {
		return err
	}
	var broken, failed, paused []string // the gates
	var since []string
	for i := range found.Gates {
		g := &found.Gates[i]
		switch {
		case g.Pause != nil && !g.Open:
			paused, since = append(paused, string(g.ID)), append(since, " for "+short(now.Sub(g.Pause.Since)))
		case g.Breaker != nil && g.Breaker.State != "closed":
			broken = append(broken, string(g.ID))
		case g.Resource != nil && g.Resource.State == belay.ResourceFailed:
			failed = append(failed, string(g.ID))
		}
	}
	o.addGates("bad", "circuit breaker", " not closed", broken, nil)
	o.addGates("bad", "resource", " whose change of the mode has failed", failed, nil)
	o.addGates("hold", "pause", " of queues, workflows or targets", paused, since)
	if found.Next != "" {
		o.Examined = fmt.Sprintf("Only the first %d gates were examined.", mostAlerts)
	}
	return nil
}

// questionAlerts names the agents that wait for an answer, and the executions of documents that wait for an approval or
// another signal, the oldest first. Executions of other workflows often wait for signals of programs.
func (p *pages) questionAlerts(ctx context.Context, o *overviewPage) error {
	for _, workflow := range []string{agentWorkflow, documentWorkflow} {
		found, err := p.backend.Executions(ctx, belay.Filter{
			States: []belay.State{belay.Waiting}, Workflow: workflow, Children: true, Limit: mostQuestions,
		})
		if err != nil {
			return err
		}
		all := slices.DeleteFunc(found.Executions, func(e belay.Execution) bool {
			return e.Reason == nil || !strings.Contains(e.Reason.Text, `signal "`)
		})
		slices.Reverse(all)
		for i := range all[:min(len(all), mostNames)] {
			e := &all[i]
			if workflow == agentWorkflow {
				o.add("hold", "an agent waits for an answer", e.Labels["prompt"], "/executions/"+e.ID.String()+"/job")
			} else {
				o.add("hold", excerpt(nameOf(e), 60)+" waits for a person or a signal", e.Reason.Text,
					"/executions/"+e.ID.String())
			}
		}
		if n := len(all) - mostNames; n > 0 {
			text := several(n, "further execution") + " waiting for a person or a signal"
			if found.Next != "" {
				text = "at least " + text
			}
			o.add("hold", text, "", "/executions?"+url.Values{"state": {"waiting"}, "workflow": {workflow}}.Encode())
		}
	}
	return nil
}

// scheduleAlerts names schedules whose newest slot failed.
func (p *pages) scheduleAlerts(ctx context.Context, o *overviewPage) error {
	schedules, err := p.backend.Schedules(ctx, belay.ScheduleFilter{Limit: mostAlerts})
	if err != nil {
		return err
	}
	failing := 0
	for i := range schedules.Schedules {
		s := &schedules.Schedules[i]
		if len(s.Recent) == 0 || s.Recent[0].Outcome != belay.SlotFailed || s.Paused != nil {
			continue
		}
		if failing++; failing <= mostNames {
			o.add("bad", "the newest slot of the schedule "+excerpt(s.Name, maxLine)+" has failed", s.Recent[0].Text,
				"/schedules/"+s.Name)
		}
	}
	if n := failing - mostNames; n > 0 {
		o.add("bad", several(n, "further schedule")+" failing", "", "/schedules")
	}
	if schedules.Next != "" {
		o.Examined += fmt.Sprintf(" Only the first %d schedules were examined.", mostAlerts)
	}
	return nil
}
