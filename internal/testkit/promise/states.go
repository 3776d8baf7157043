package promise

import (
	"fmt"
	"slices"

	"github.com/belaydev/belay"
)

// States checks the news of one follower of states (belay.Client.Follow), and keeps what the follower
// knows after them.
type States struct {
	Query belay.StatusQuery
	// Known has the executions that match the query.
	Known map[belay.ExecutionID]belay.Status
	// Changes has all changes, in their order, and Snapshots the causes of all snapshots.
	Changes   []belay.StatusChange
	Snapshots []belay.SnapshotCause

	newest map[belay.ExecutionID]belay.Status // of all executions reported since the last snapshot
	inside bool                               // the last part of a snapshot has not come
	begun  bool
}

// Follow checks news. Its error says which promise the news break.
func (s *States) Follow(n belay.StatusNews) error {
	switch {
	case n.Snapshot != nil && len(n.Changes) > 0:
		return fmt.Errorf("a snapshot together with %d changes", len(n.Changes))
	case n.Snapshot != nil:
		return s.part(n.Snapshot)
	case s.inside && len(n.Changes) > 0:
		return fmt.Errorf("a change within a snapshot: %+v", n.Changes[0])
	case !s.begun && s.Query.After == "" && (len(n.Changes) > 0 || n.Position != ""):
		return fmt.Errorf("the first news are no snapshot: %+v", n)
	}
	for i := range n.Changes {
		if err := s.change(&n.Changes[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *States) part(p *belay.StatusSnapshot) error {
	if p.First == s.inside {
		return fmt.Errorf("first part: %t, within a snapshot: %t", p.First, s.inside)
	}
	if p.First {
		if begins := p.Cause == belay.SnapshotBegin; begins != (!s.begun && s.Query.After == "") {
			return fmt.Errorf("a snapshot with the cause %s; another snapshot before it: %t", p.Cause, s.begun)
		}
		s.begun = true
		s.Known = make(map[belay.ExecutionID]belay.Status)
		s.newest = make(map[belay.ExecutionID]belay.Status)
		s.Snapshots = append(s.Snapshots, p.Cause)
	}
	s.inside = !p.Last
	for _, x := range p.Executions {
		if _, twice := s.Known[x.Execution]; twice || !s.matches(&x) {
			return fmt.Errorf("in a snapshot twice (%t), or does not match: %+v", twice, x)
		}
		s.Known[x.Execution], s.newest[x.Execution] = x, x
	}
	return nil
}

func (s *States) change(c *belay.StatusChange) error {
	before, there := s.newest[c.Execution]
	if there && c.Previous == 0 && c.At.After(before.At) && before.State >= belay.Succeeded {
		delete(s.newest, c.Execution) // it was deleted, and submitted again under the same id
		delete(s.Known, c.Execution)
		there = false
	}
	known, matched := s.Known[c.Execution]
	switch {
	case there && c.Seq <= before.Seq:
		return fmt.Errorf("seq %d after seq %d: %+v", c.Seq, before.Seq, c)
	case matched && c.Previous != known.State:
		return fmt.Errorf("a change is missing between %+v and %+v", known, c)
	case there && c.Previous == 0:
		return fmt.Errorf("a new execution that was known: %+v", c)
	case c.State == c.Previous, c.At.IsZero(), c.Generation < 1:
		return fmt.Errorf("no change: %+v", c)
	case c.Matches != s.matches(&c.Status):
		return fmt.Errorf("the change says that the execution matches (%t), but that is wrong: %+v", c.Matches, c)
	case !c.Matches && !slices.Contains(s.states(), c.Previous):
		return fmt.Errorf("the execution matches neither before nor after the change: %+v", c)
	}
	if s.newest == nil {
		s.newest, s.Known = make(map[belay.ExecutionID]belay.Status), make(map[belay.ExecutionID]belay.Status)
	}
	s.Changes = append(s.Changes, *c)
	s.newest[c.Execution] = c.Status
	if c.Matches {
		s.Known[c.Execution] = c.Status
	} else {
		delete(s.Known, c.Execution)
	}
	return nil
}

func (s *States) states() []belay.State {
	if len(s.Query.States) == 0 {
		return belay.ActiveStates()
	}
	return s.Query.States
}

func (s *States) matches(x *belay.Status) bool {
	return s.Query.Selects(x) && slices.Contains(s.states(), x.State)
}

// Of lists the states that the changes of an execution have reported, in their order.
func (s *States) Of(id belay.ExecutionID) (all []belay.State) {
	for i := range s.Changes {
		if s.Changes[i].Execution == id {
			all = append(all, s.Changes[i].State)
		}
	}
	return all
}
