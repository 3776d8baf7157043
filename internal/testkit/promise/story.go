package promise

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// Tale has the row and the events of one execution, as the store returns them.
type Tale struct {
	Execution belay.Execution `json:"execution"`
	Events    []belay.Event   `json:"events"`
}

// Story is a Tale (the row and the events of one execution) in the form that the checkers need: with
// the runs and generations in order.
type Story struct {
	*Tale
	ID      belay.ExecutionID
	Runs    []*Run
	Letters []Letter
	Script  []Op // nil if the execution's workflow is not the player of scripts

	// Gates are the gates that the submission named, nil if it named none.
	Gates *belay.Gates
	// Submitted is the input of the submission. It must be set if a requeue has replaced the
	// execution's input after the submission.
	Submitted json.RawMessage
	// Ops lists the seqs written under each operation id. If Ops is nil, the checkers find an
	// operation by its content.
	Ops map[belay.OpID][]int64
	// When returns the time of an event by the clock of the callers. If it is nil, the event's own
	// time counts.
	When func(*belay.Event) time.Time
	// Deleted says that the store has deleted the execution because its retention was over.
	Deleted bool

	byToken map[belay.Token]*Run
	lives   []life // the lives of the execution, one for each generation
	// discards are the retries that discarded a part of the work.
	discards []discard
	// Failed is the number of failed runs in this generation.
	Failed int
	lost   Losses
}

// Losses counts lost runs in a row, without a checkpoint or a failed run between them.
type Losses struct {
	All int
	// Sure counts those lost runs that the engine always counts towards the limit of losses: the
	// first two, and each later one whose token is a multiple of four. The engine counts any other
	// lost run only if it assumes that this execution, and no other execution of the same worker,
	// crashed the worker.
	Sure int
}

// Run is one attempt.
type Run struct {
	*belay.Event              // the event with which the run began
	Started      *belay.Event // nil if the run was only scheduled
	End          *belay.Event // nil if the run has not ended
	Generation   int
	// Base is the seq up to which checkpoints belong to an earlier input of the execution. The run
	// does not get these checkpoints.
	Base int64
	// Asked is the delay that the run's owner requested when it settled the run: the next run
	// begins no earlier.
	Asked time.Duration

	// Failed is the number of runs of the same generation that had failed before the run.
	Failed int
	// Losses is the count of lost runs after this run.
	Losses
}

// EndedBy reports whether the run had ended at the time t.
func (r *Run) EndedBy(t time.Time) bool { return r.End != nil && !r.End.At.After(t) }

// life is one generation.
type life struct {
	cancelled *belay.Event // the first cancel, nil if there is none
	end       *belay.Event // nil if the generation has not ended
	state     belay.State  // the state in which the generation ended
	reopened  bool
}

// NewStory makes the story of an execution from its row and its events.
func NewStory(t *Tale) *Story {
	s := &Story{Tale: t, ID: t.Execution.ID, byToken: make(map[belay.Token]*Run), lives: make([]life, 1)}
	if t.Execution.Workflow == player {
		if json.Unmarshal(t.Execution.Input, &s.Script) != nil || s.Script == nil {
			s.Script = []Op{{Do: "unreadable"}}
		}
	}
	for i := range t.Events {
		s.add(&t.Events[i])
	}
	return s
}

// add adds the next event of the execution to the story.
func (s *Story) add(ev *belay.Event) {
	now := &s.lives[len(s.lives)-1]
	switch {
	case begins(ev):
		if r := s.byToken[ev.Token]; r != nil && r.Started == nil && ev.Kind == "started" {
			r.Started = ev
			return
		}
		r := &Run{Event: ev, Generation: len(s.lives), Failed: s.Failed}
		if ev.Kind == "started" {
			r.Started = ev
		}
		s.Runs = append(s.Runs, r)
		s.byToken[ev.Token] = r
	case reopens(ev):
		s.discard(ev)
		now.reopened = true
		s.lives = append(s.lives, life{})
		s.Failed, s.lost = 0, Losses{}
	case IsSave(ev):
		s.lost = Losses{}
	case ev.Token != 0:
		if r := s.byToken[ev.Token]; r != nil && r.End == nil {
			s.ended(r, ev)
		}
	}
	if ev.Kind == string(belay.ActionCancel) && now.cancelled == nil {
		now.cancelled = ev
	}
	if ev.Final && now.end == nil {
		now.end, now.state = ev, belay.Failed
		switch {
		case now.cancelled != nil || ev.Kind == belay.OutcomeCancelled.String():
			now.state = belay.Cancelled
		case ev.Kind == belay.OutcomeSucceeded.String():
			now.state = belay.Succeeded
		}
	}
}

func (s *Story) ended(r *Run, ev *belay.Event) {
	r.End = ev
	switch ev.Kind {
	case belay.OutcomeFailed.String(), belay.OutcomeTimedOut.String():
		s.Failed, s.lost = s.Failed+1, Losses{}
	case "timeout": // the execution's timeout, which counts as a failed run if the run had begun
		if r.Started != nil {
			s.Failed, s.lost = s.Failed+1, Losses{}
		}
	case belay.OutcomeLost.String():
		if s.lost.All++; s.lost.All <= 2 || r.Token%4 == 0 {
			s.lost.Sure++
		}
	}
	r.Losses = s.lost
}

// life returns the present generation.
func (s *Story) life() *life { return &s.lives[len(s.lives)-1] }

// Ended returns the state in which a generation ended, or 0 if it has not ended.
func (s *Story) Ended(generation int) belay.State {
	if generation < 1 || generation > len(s.lives) {
		return 0
	}
	return s.lives[generation-1].state
}

// open returns the run that has not ended, or nil if there is none.
func (s *Story) open() *Run {
	if n := len(s.Runs); n > 0 && s.Runs[n-1].End == nil {
		return s.Runs[n-1]
	}
	return nil
}

// Run returns the run with a token, or nil if there is none.
func (s *Story) Run(token belay.Token) *Run { return s.byToken[token] }

// At returns the event with a seq, or nil if there is none.
func (s *Story) At(seq int64) *belay.Event {
	i, is := slices.BinarySearchFunc(s.Events, seq, func(ev belay.Event, seq int64) int {
		return cmp.Compare(ev.Seq, seq)
	})
	if !is {
		return nil
	}
	return &s.Events[i]
}

// Find returns the first event of a kind that meets a condition.
func (s *Story) Find(kind string, is func(*belay.Event) bool) *belay.Event {
	for i := range s.Events {
		if ev := &s.Events[i]; ev.Kind == kind && is(ev) {
			return ev
		}
	}
	return nil
}

// IsRoot reports whether the execution has no parent.
func (s *Story) IsRoot() bool { return s.Execution.Parent.IsZero() }

// policy returns the execution's policy with defaults filled in.
func (s *Story) policy() belay.Policy {
	var p belay.Policy
	if s.Execution.Policy != nil {
		p = *s.Execution.Policy
	}
	p.MaxAttempts = cmp.Or(p.MaxAttempts, belay.DefaultMaxAttempts)
	p.MaxLosses = cmp.Or(p.MaxLosses, belay.DefaultMaxLosses)
	p.BackoffBase = cmp.Or(p.BackoffBase, belay.DefaultBackoffBase)
	p.BackoffCap = cmp.Or(p.BackoffCap, belay.DefaultBackoffCap)
	return p
}

// wantsLetters reports whether each failure of the execution leaves a dead letter.
func (s *Story) wantsLetters() bool {
	return s.IsRoot() && (s.Execution.Policy == nil || !s.Execution.Policy.NoDeadLetters)
}

// when returns the time of an event by the clock of the callers.
func (s *Story) when(ev *belay.Event) time.Time {
	if s.When != nil {
		return s.When(ev)
	}
	return ev.At
}

// IsSave reports whether the event is a checkpoint. An event of the kind state without a name is none:
// it says that a retry from a step has discarded the state.
func IsSave(ev *belay.Event) bool {
	return ev.Kind == "step" || ev.Kind == "state" && ev.Name != "" || ev.Kind == "wait"
}

func begins(ev *belay.Event) bool { return ev.Kind == "scheduled" || ev.Kind == "started" }

func reopens(ev *belay.Event) bool {
	return ev.Kind == string(belay.ActionRetry) || ev.Kind == string(belay.ActionRequeue)
}

// format formats an event in one line.
func format(ev *belay.Event) string {
	if ev == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s %s at seq %d under token %d with %.60s", ev.Kind, ev.Name, ev.Seq, ev.Token, ev.Data)
}
