package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// The bounds of what one view of belay top reads: executions of each state, gates, fingerprints, and running
// executions whose newest step it shows.
const (
	topExecutions = 1000
	topGates      = 1000
	topGroups     = 10
	topSteps      = 20
	topEvents     = 10 // the newest events in which top looks for a step
)

// topView is one view of a server, for people and as JSON.
type topView struct {
	At     time.Time      `json:"at"`
	States []topState     `json:"states"`
	Lanes  []topLane      `json:"lanes"`
	Fleet  []belay.Worker `json:"workers"`
	// Gates are the gates that let no execution through; MoreGates says that not all gates were examined.
	Gates     []belay.GateInfo `json:"gates"`
	MoreGates bool             `json:"more_gates,omitempty"`
	Longest   []topRun         `json:"longest"`
	Dead      topDead          `json:"dead_letters"`
}

// topState is the number of executions in a state; More says that there are more than Count.
type topState struct {
	State belay.State `json:"state"`
	Count int         `json:"count"`
	More  bool        `json:"more,omitempty"`
}

// topLane counts the executions of a queue. Oldest is the due time of the execution that waits longest.
type topLane struct {
	Queue     string    `json:"queue"`
	Pending   int       `json:"pending"`
	Scheduled int       `json:"scheduled"`
	Running   int       `json:"running"`
	Oldest    time.Time `json:"oldest,omitzero"`
}

// topRun is a running execution with its newest step.
type topRun struct {
	Execution belay.ExecutionID  `json:"execution"`
	Workflow  string             `json:"workflow"`
	Queue     string             `json:"queue"`
	State     string             `json:"state"`
	Worker    belay.WorkerID     `json:"worker"`
	Owner     string             `json:"owner,omitempty"`
	Step      string             `json:"step,omitempty"` // the newest saved one, if no current step is known
	Current   []belay.StepRecord `json:"current,omitempty"`
	Started   time.Time          `json:"started_at,omitzero"`
	Progress  time.Time          `json:"progress_at,omitzero"`
	seq       int64
}

// topDead counts the open dead letters; More says that there are more than Count.
type topDead struct {
	Count  int                     `json:"count"`
	More   bool                    `json:"more,omitempty"`
	Groups []belay.DeadLetterGroup `json:"groups"`
}

func (a *app) topCommand() *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use: "top", Short: "Show workers, queues, shut gates and running executions in one view", Args: none,
		Long: "Show the workers, the queues, the gates that let nothing through, the executions that have run longest,\n" +
			"the number of executions in each state, and the open dead letters. On a terminal the view is redrawn\n" +
			"when states change, until you press q or Ctrl-C. With --once, and if standard output is no terminal,\n" +
			"belay prints the view once; -o json prints it as JSON. Belay counts the newest 1000 executions of each\n" +
			"state, without children; a + after a number says that there are more.",
		Example: "  belay top\n  belay top --server http://127.0.0.1:7710 --once\n  belay top -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.following(c.Context(), func(r reader) error {
				out := a.plain().out
				if !once && a.output != "json" && screen.IsTerminal(out) && isTerminalIn(a.in) {
					return a.liveTop(c.Context(), r)
				}
				v, err := readTop(c.Context(), r)
				if err != nil {
					return err
				}
				if a.output == "json" {
					return screen.PrintJSON(a.out, v)
				}
				return a.printTop(v)
			})
		},
	}
	c.Flags().BoolVar(&once, "once", false, "print the view once")
	return a.readFlag(c)
}

// readTop reads one view.
func readTop(ctx context.Context, r reader) (*topView, error) {
	v := &topView{At: time.Now(), Gates: []belay.GateInfo{}, Longest: []topRun{}, Lanes: []topLane{}}
	workers, err := r.Workers(ctx)
	if err != nil {
		return nil, err
	}
	v.Fleet = slices.DeleteFunc(workers, func(w belay.Worker) bool { return w.State.Ended() })
	lanes := make(map[string]*topLane)
	for _, s := range []belay.State{belay.Pending, belay.Scheduled, belay.Running, belay.Waiting, belay.Paused} {
		page, err := r.Executions(ctx, belay.Filter{States: []belay.State{s}, Limit: topExecutions})
		if err != nil {
			return nil, err
		}
		v.States = append(v.States, topState{s, len(page.Executions), page.Next != ""})
		for i := range page.Executions {
			v.add(lanes, &page.Executions[i])
		}
	}
	for _, l := range lanes {
		v.Lanes = append(v.Lanes, *l)
	}
	slices.SortFunc(v.Lanes, func(a, b topLane) int {
		return cmp.Or(cmp.Compare(b.Pending+b.Scheduled, a.Pending+a.Scheduled), cmp.Compare(a.Queue, b.Queue))
	})
	slices.SortFunc(v.Longest, func(a, b topRun) int { return a.Started.Compare(b.Started) })
	v.Longest = v.Longest[:min(len(v.Longest), topSteps)]
	for i := range v.Longest {
		if err := v.Longest[i].step(ctx, r, v.Fleet); err != nil {
			return nil, err
		}
	}
	if err := v.shut(ctx, r); err != nil {
		return nil, err
	}
	dead, err := r.DeadLetterGroups(ctx, belay.DeadLetterFilter{})
	if err != nil {
		return nil, err
	}
	v.Dead = topDead{dead.Examined, dead.More, dead.Groups[:min(len(dead.Groups), topGroups)]}
	v.Dead.Count = 0
	for i := range dead.Groups {
		v.Dead.Count += dead.Groups[i].Count
	}
	return v, nil
}

// add counts an execution in its queue, and lists it if it runs.
func (v *topView) add(lanes map[string]*topLane, e *belay.Execution) {
	if e.State > belay.Running {
		return
	}
	l := lanes[e.Queue]
	if l == nil {
		l = &topLane{Queue: e.Queue}
		lanes[e.Queue] = l
	}
	switch e.State {
	case belay.Pending:
		l.Pending++
		due := e.DueAt
		if due.IsZero() {
			due = e.CreatedAt
		}
		if due.Before(v.At) && (l.Oldest.IsZero() || due.Before(l.Oldest)) {
			l.Oldest = due
		}
	case belay.Scheduled:
		l.Scheduled++
	default:
		l.Running++
		v.Longest = append(v.Longest, topRun{
			Execution: e.ID, Workflow: e.Workflow, Queue: e.Queue, State: stateWord(e), Worker: e.Worker,
			Started: e.StartedAt, Progress: e.ProgressAt, seq: e.Seq,
		})
	}
}

// step sets the owner and the current steps of a running execution, or its newest saved step.
func (x *topRun) step(ctx context.Context, r reader, fleet []belay.Worker) error {
	for i := range fleet {
		if fleet[i].ID == x.Worker {
			x.Owner = fleet[i].Name
		}
	}
	e, err := r.Execution(ctx, x.Execution)
	if x.Current = e.Current; len(x.Current) > 0 {
		return nil
	}
	var events []belay.Event
	if err == nil {
		events, err = r.Events(ctx, belay.EventQuery{
			Execution: x.Execution, After: max(0, x.seq-topEvents), Limit: topEvents,
		})
	}
	for i := range events {
		if events[i].Kind == "step" {
			x.Step = events[i].Name
		}
	}
	if err != nil && belay.CodeOf(err) != belay.CodeNotFound { // an execution may be deleted between the two reads
		return err
	}
	return nil
}

// shut reads the gates that let no execution through.
func (v *topView) shut(ctx context.Context, r reader) error {
	page, err := r.Gates(ctx, belay.GateFilter{Limit: topGates})
	if err != nil {
		return err
	}
	v.MoreGates = page.Next != ""
	for i := range page.Gates {
		if !page.Gates[i].Open {
			v.Gates = append(v.Gates, page.Gates[i])
		}
	}
	return nil
}
