package engine

import (
	"cmp"
	"slices"

	"github.com/belaydev/belay/internal/machine"
)

// route is the queue, workflow and version of a lane, which a worker names. A lane also has a
// priority, and labels that the worker must have.
type route struct{ queue, workflow, version string }

func routeOf(l *machine.Lane) route { return route{l.Queue, l.Workflow, l.Version} }

// members has the lanes of a route (groups of executions that the same workers may claim) and the
// sessions that may claim from them. A new lane is compared only with the sessions of its route,
// and a new session only with the lanes of its routes.
type members struct {
	lanes    map[machine.LaneID]*lane
	sessions map[*session]struct{}
}

func (d *dispatcher) membersLocked(r route) *members {
	x := d.routes[r]
	if x == nil {
		x = &members{lanes: make(map[machine.LaneID]*lane), sessions: make(map[*session]struct{})}
		d.routes[r] = x
	}
	return x
}

// dropRouteLocked forgets a route that has no lanes and no sessions.
func (d *dispatcher) dropRouteLocked(r route) {
	if x := d.routes[r]; x != nil && len(x.lanes)+len(x.sessions) == 0 {
		delete(d.routes, r)
	}
}

// routes returns the routes of a session.
func (s *session) routes() []route {
	all := make([]route, 0, len(s.spec.Queues)*len(s.spec.Workflows))
	for _, q := range s.spec.Queues {
		for _, w := range s.spec.Workflows {
			all = append(all, route{q, w.Workflow, w.Version})
		}
	}
	return all
}

// enterLocked adds a session to its routes, and to the lanes of these routes from which it can
// claim.
func (d *dispatcher) enterLocked(s *session) {
	for _, r := range s.routes() {
		x := d.membersLocked(r)
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

// leaveLocked removes a session from its routes and lanes.
func (d *dispatcher) leaveLocked(s *session) {
	delete(d.sessions, s.spec.ID)
	for _, l := range s.lanes {
		delete(l.takers, s)
	}
	s.lanes = nil
	for _, r := range s.routes() {
		if x := d.routes[r]; x != nil {
			delete(x.sessions, s)
			d.dropRouteLocked(r)
		}
	}
}

// laneLocked returns the dispatcher's entry for a lane (a group of executions that the same workers
// may claim). A new lane is added to its route and to the sessions that can claim from it.
func (d *dispatcher) laneLocked(l machine.Lane) *lane {
	if have := d.lanes[l.ID]; have != nil {
		return have
	}
	made := &lane{Lane: l, takers: make(map[*session]struct{})}
	d.lanes[l.ID] = made
	x := d.membersLocked(routeOf(&l))
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

// closeLocked forgets a lane. The lane is read again when an execution in it is ready.
func (d *dispatcher) closeLocked(l *lane) {
	delete(d.lanes, l.ID)
	for s := range l.takers {
		if i := slices.Index(s.lanes, l); i >= 0 {
			s.lanes = slices.Delete(s.lanes, i, i+1)
		}
	}
	r := routeOf(&l.Lane)
	delete(d.routes[r].lanes, l.ID)
	d.dropRouteLocked(r)
}

// byPriority is the order in which a claim names lanes.
func byPriority(a, b *lane) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
}
