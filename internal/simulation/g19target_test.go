package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// targetChecker checks that each end of a root is reported to the targets of operators by a list of the targets that
// was at most a second old when the commit began, and that no dead letter is in two alerts to a target.
type targetChecker struct {
	*finding
	last    map[belay.ExecutionID]row
	lists   []targetsAt
	alerted map[string]bool
}

// targetsAt are the targets since a commit.
type targetsAt struct {
	from time.Duration
	list []belay.NotificationTargetInfo
}

// targetsAge is the largest age of a list when a commit begins.
const targetsAge = time.Second

func (f *targetChecker) commit(c *commit) {
	got := make(map[end][]string) // the targets to which an end is reported
	for _, s := range c.changes.Specs {
		name := s.Labels[belay.LabelNotificationTarget]
		if name == "" || s.Generation != 1 || !belay.IsNotificationID(s.Execution) {
			continue
		}
		if s.Labels[belay.LabelNotification] == "" {
			f.alert(c, s)
			continue
		}
		var p belay.NotificationPayload
		err := json.Unmarshal(s.TriggerPayload, &p)
		if err != nil || p.Name != name || s.Execution != belay.TargetNotificationID(p.Execution, p.Generation, name) {
			f.violation(f.byID[s.Execution], c, "its id is not the id of the end %s: %v", s.TriggerPayload, err)
			continue
		}
		ref := end{p.Execution, p.Generation}
		got[ref] = append(got[ref], fmt.Sprint(name, " ", p.State))
	}
	for _, e := range c.changes.Executions {
		was, old := f.last[e.ID]
		if !e.Parent.IsZero() || belay.IsNotificationID(e.ID) || !e.State.Terminal() ||
			old && was.Generation == e.Generation && was.State.Terminal() {
			continue
		}
		ref := end{e.ID, e.Generation}
		f.ended(c, e, got[ref])
		delete(got, ref)
	}
	for ref, names := range got {
		if e, old := f.last[ref.id]; !old || e.Generation == ref.generation && e.State.Terminal() {
			f.violation(f.byID[ref.id], c, "generation %d did not end in this commit, and is reported to %v",
				ref.generation, names)
		}
	}
	f.learn(c)
}

// learn notes the targets that a commit writes.
func (f *targetChecker) learn(c *commit) {
	for _, o := range c.changes.Objects {
		if o.Kind != machine.TargetsObject {
			continue
		}
		t, err := machine.TargetsOf(o)
		if err != nil {
			f.violation(nil, c, "the targets cannot be read: %v", err)
			return
		}
		f.lists = append(f.lists, targetsAt{c.real, t.View()})
	}
}

// ended checks that the targets of an end follow from a list that is young enough.
func (f *targetChecker) ended(c *commit, e *machine.Execution, got []string) {
	slices.Sort(got)
	var possible [][]string
	for i := len(f.lists) - 1; i >= -1; i-- {
		var want []string
		if i >= 0 {
			for _, t := range f.lists[i].list {
				pattern := len(t.Workflows) == 0 || e.Workflow == "play"
				if t.Paused == nil && t.Reports(e.State) && pattern {
					want = append(want, fmt.Sprint(t.Name, " ", e.State))
				}
			}
		}
		slices.Sort(want)
		if slices.Equal(want, got) {
			if len(got) > 0 {
				f.count("end reported to a target")
			}
			if len(possible) > 0 {
				f.count("end reported by an older list of targets")
			}
			f.OK()
			return
		}
		possible = append(possible, want)
		if i < 0 || f.lists[i].from < c.began-targetsAge {
			break
		}
	}
	f.violation(f.byID[e.ID], c, "generation %d is %s and reported to %v; no list of targets since the second before "+
		"the commit says that, but %v", e.Generation, e.State, got, possible)
}

// alert checks that an alert says nothing that an earlier alert has said to the target.
func (f *targetChecker) alert(c *commit, s *machine.Spec) {
	var in struct{ Body belay.AlertEvent }
	if err := json.Unmarshal(s.Input, &in); err != nil {
		f.violation(f.byID[s.Execution], c, "the alert cannot be read: %v", err)
		return
	}
	for _, l := range in.Body.Data.DeadLetters {
		said := fmt.Sprint(in.Body.Data.Name, l.Execution, l.Generation)
		if f.alerted[said] {
			f.violation(f.byID[l.Execution], c, "its dead letter of generation %d is alerted again", l.Generation)
		}
		f.alerted[said] = true
	}
	f.count("alert raised")
	f.OK()
}
