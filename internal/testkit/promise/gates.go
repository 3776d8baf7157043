package promise

import (
	"cmp"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// G16 checks that gates respect the limits and rates that the executions name. Under a limit, no
// more executions are under way at a time than the limit allows: an execution is under way from the
// first run of its generation to its end. Under a rate, at most max + max·d/per runs start within
// any period of the length d. The check ignores the gates in History.Changed.
func G16(f *Finding) {
	spans, starts := make(map[belay.GateID]*gateUse), make(map[belay.GateID]*gateUse)
	for _, s := range f.History.Stories {
		if s.Gates == nil {
			continue
		}
		if l := s.Gates.Concurrency; l != nil {
			f.use(spans, belay.Gate(belay.GateLimit, l.Name), l.Max, 0).span(s)
		}
		if r := s.Gates.Rate; r != nil {
			f.use(starts, belay.Gate(belay.GateRate, r.Name), r.Max, r.Per.D()).start(s)
		}
	}
	for _, id := range sortedGates(spans) {
		f.limited(id, spans[id])
	}
	for _, id := range sortedGates(starts) {
		f.paced(id, starts[id])
	}
}

// gateUse lists the moments at which executions entered a gate, and, for a limit, left it.
type gateUse struct {
	max     int
	per     time.Duration
	moments []gateMoment
}

type gateMoment struct {
	at     time.Time
	story  *Story
	leaves bool
}

func (f *Finding) use(all map[belay.GateID]*gateUse, id belay.GateID, limit int, per time.Duration) *gateUse {
	if f.History.Changed[id] {
		return &gateUse{}
	}
	if all[id] == nil {
		all[id] = &gateUse{max: limit, per: per}
	}
	return all[id]
}

// span adds, for each generation of an execution, the moment at which its first run began and the
// moment at which it ended.
func (u *gateUse) span(s *Story) {
	for i, l := range s.lives {
		first := slices.IndexFunc(s.Runs, func(r *Run) bool { return r.Generation == i+1 })
		if first < 0 {
			continue
		}
		u.moments = append(u.moments, gateMoment{at: s.Runs[first].At, story: s})
		if l.end != nil {
			u.moments = append(u.moments, gateMoment{at: l.end.At, story: s, leaves: true})
		}
	}
}

// start adds the starts of an execution's runs.
func (u *gateUse) start(s *Story) {
	for _, r := range s.Runs {
		u.moments = append(u.moments, gateMoment{at: r.At, story: s})
	}
}

// sort sorts the moments by time. A place that is given back can be taken at the same moment, so an
// execution leaves before another enters.
func (u *gateUse) sort() {
	slices.SortStableFunc(u.moments, func(a, b gateMoment) int {
		if c := a.at.Compare(b.at); c != 0 || a.leaves == b.leaves {
			return c
		}
		if a.leaves {
			return -1
		}
		return 1
	})
}

func (f *Finding) limited(id belay.GateID, u *gateUse) {
	u.sort()
	n := 0
	for _, m := range u.moments {
		if m.leaves {
			n--
			continue
		}
		f.OK()
		if n++; n > u.max {
			f.Violation(m.story, "at %s it is number %d under way at %s, which allows %d", m.at.Format(clock), n, id,
				u.max)
		}
	}
}

func (f *Finding) paced(id belay.GateID, u *gateUse) {
	u.sort()
	at := make([]time.Time, len(u.moments))
	for i, m := range u.moments {
		at[i] = m.at
		f.OK()
	}
	if i, j, over := OverRate(at, u.max, u.per); over {
		f.Violation(u.moments[j].story, "%d runs started within %s at %s, which allows %d per %s", j-i+1,
			at[j].Sub(at[i]), id, u.max, u.per)
	}
}

// OverRate reports whether there is a period of some length d in which more than limit +
// limit·d/per starts lie, and returns the indexes of the first and the last start of such a period.
// The moments must be sorted.
func OverRate(at []time.Time, limit int, per time.Duration) (from, to int, over bool) {
	for j := range at {
		for i := range j - limit + 1 {
			n := time.Duration(j - i + 1 - limit)
			if n*per > time.Duration(limit)*at[j].Sub(at[i]) {
				return i, j, true
			}
		}
	}
	return 0, 0, false
}

func sortedGates(all map[belay.GateID]*gateUse) []belay.GateID {
	var ids []belay.GateID
	for id := range all {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, cmp.Compare)
	return ids
}
