package promise

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// G13 checks that the modes of a resource exclude each other in the store: two runs that use a resource
// at the same time use it in the same mode, and while an execution changes the mode, no run uses the
// resource and no other execution changes its mode. A run uses the resource from its start to its
// end; an execution that changes the mode does so from its submission to its end.
func G13(f *Finding) {
	all := make(map[string][]modeUse) // by resource
	for _, s := range f.History.Stories {
		if in := SwapOf(s); in != nil {
			all[in.Resource] = append(all[in.Resource], s.asSwap(in))
			continue
		}
		if s.Gates == nil || s.Gates.Requires == nil {
			continue
		}
		q := s.Gates.Requires
		for _, r := range s.Runs {
			u := modeUse{story: s, mode: q.Mode, from: r.At, to: never}
			if r.End != nil {
				u.to = r.End.At
				if r.End.Kind == belay.OutcomePreempted.String() {
					f.Count("run yielded its resource")
				}
			}
			all[q.Resource] = append(all[q.Resource], u)
		}
	}
	for resource, uses := range all {
		f.exclusive(resource, uses)
	}
}

// never is a time after all events.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// modeUse is a period in which a run used a resource in a mode, or an execution changed its mode.
type modeUse struct {
	story    *Story
	mode     string
	swap     bool
	from, to time.Time
}

// SwapOf returns the input of an execution that changes the mode of a resource, nil for any other
// execution.
func SwapOf(s *Story) *belay.SwapInput {
	if s.Execution.Trigger != belay.TriggerSwap {
		return nil
	}
	in := new(belay.SwapInput)
	if json.Unmarshal(s.Execution.Input, in) != nil {
		return nil
	}
	return in
}

func (s *Story) asSwap(in *belay.SwapInput) modeUse {
	u := modeUse{story: s, mode: in.To, swap: true, from: s.Execution.CreatedAt, to: never}
	if end := s.life().end; end != nil {
		u.to = end.At
	}
	return u
}

// exclusive compares the uses of one resource. A use may begin at the moment at which another one ends.
func (f *Finding) exclusive(resource string, uses []modeUse) {
	slices.SortStableFunc(uses, func(a, b modeUse) int { return a.from.Compare(b.from) })
	var open []modeUse
	for _, u := range uses {
		open = slices.DeleteFunc(open, func(o modeUse) bool { return !o.to.After(u.from) })
		f.OK()
		if u.swap {
			f.Count("swap of a mode")
		} else {
			f.Count("run in a mode")
		}
		i := slices.IndexFunc(open, func(o modeUse) bool { return o.swap || u.swap || o.mode != u.mode })
		if i >= 0 {
			f.Violation(u.story, "at %s it %s, while %s, until %s, %s", u.from.Format(clock), u.does(resource),
				f.name(open[i].story.ID), open[i].to.Format(clock), open[i].does(resource))
		}
		open = append(open, u)
	}
}

// does says in words how the resource is used.
func (u *modeUse) does(resource string) string {
	if u.swap {
		return "changes the mode of " + resource + " to " + u.mode
	}
	return "uses " + resource + " in the mode " + u.mode
}
