package engine

import (
	"cmp"
	"slices"

	"github.com/belaydev/belay/internal/machine"
)

// route is what of a lane a worker names: beside it a lane has a priority, and labels
// that the worker must have.
type route struct{ queue, workflow, version string }

func routeOf(l *machine.Lane) route { return route{l.Queue, l.Workflow, l.Version} }

// crossing is where lanes meet the sessions that may claim from them. A new lane or
// session is shown to those that it meets there, however many others there are.
type crossing struct {
	lanes    map[machine.LaneID]*lane
	sessions map[*session]struct{}
}

func (d *dispatcher) crossingLocked(r route) *crossing {
	x := d.routes[r]
	if x == nil {
		x = &crossing{lanes: make(map[machine.LaneID]*lane), sessions: make(map[*session]struct{})}
		d.routes[r] = x
	}
	return x
}

// leftLocked forgets a crossing that nothing is at any more.
func (d *dispatcher) leftLocked(r route) {
	if x := d.routes[r]; x != nil && len(x.lanes)+len(x.sessions) == 0 {
		delete(d.routes, r)
	}
}

// routes are those that a session is on.
func (s *session) routes() []route {
	all := make([]route, 0, len(s.spec.Queues)*len(s.spec.Workflows))
	for _, q := range s.spec.Queues {
		for _, w := range s.spec.Workflows {
			all = append(all, route{q, w.Workflow, w.Version})
		}
	}
	return all
}

// enterLocked shows a session to the lanes on its routes.
func (d *dispatcher) enterLocked(s *session) {
	for _, r := range s.routes() {
		x := d.crossingLocked(r)
		x.sessions[s] = struct{}{}
		for _, l := range x.lanes {
			if _, known := l.takers[s]; !known && l.Takes(s.spec) {
				l.takers[s] = struct{}{}
				s.lanes = append(s.lanes, l)
			}
		}
	}
	slices.SortFunc(s.lanes, byPriority)
}

// leaveLocked takes a session away from them.
func (d *dispatcher) leaveLocked(s *session) {
	delete(d.sessions, s.spec.ID)
	for _, l := range s.lanes {
		delete(l.takers, s)
	}
	s.lanes = nil
	for _, r := range s.routes() {
		if x := d.routes[r]; x != nil {
			delete(x.sessions, s)
			d.leftLocked(r)
		}
	}
}

// laneLocked is what is known of a lane, which is shown to the sessions on its route
// if it is new.
func (d *dispatcher) laneLocked(l machine.Lane) *lane {
	if have := d.lanes[l.ID]; have != nil {
		return have
	}
	made := &lane{Lane: l, takers: make(map[*session]struct{})}
	d.lanes[l.ID] = made
	x := d.crossingLocked(routeOf(&l))
	x.lanes[l.ID] = made
	for s := range x.sessions {
		if l.Takes(s.spec) {
			made.takers[s] = struct{}{}
			i, _ := slices.BinarySearchFunc(s.lanes, made, byPriority)
			s.lanes = slices.Insert(s.lanes, i, made)
		}
	}
	return made
}

// closeLocked forgets a lane. It is found again when something is ready in it.
func (d *dispatcher) closeLocked(l *lane) {
	delete(d.lanes, l.ID)
	for s := range l.takers {
		if i := slices.Index(s.lanes, l); i >= 0 {
			s.lanes = slices.Delete(s.lanes, i, i+1)
		}
	}
	r := routeOf(&l.Lane)
	delete(d.routes[r].lanes, l.ID)
	d.leftLocked(r)
}

// byPriority is the order in which a claim asks for lanes.
func byPriority(a, b *lane) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
}
