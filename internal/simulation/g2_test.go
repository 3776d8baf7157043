package simulation

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// g2 checks G2, that no stale write has an effect, by the rows of sessions: each write of an owner
// was made while the owner's session was alive by the store's clock.
func g2(f *finding) {
	for _, s := range f.stories {
		for i := range s.Events {
			ev := &s.Events[i]
			if a := s.byToken[ev.Token]; promise.IsSave(ev) && ev.Token != 0 || a != nil && a.EndedSeq == ev.Seq &&
				!a.Op.IsZero() {
				f.OK()
				g2alive(f, s, ev, s.wrote[ev.Seq])
			}
		}
	}
	g2fenced(f)
	for _, c := range f.calls {
		if l, isRenewal := c.request.(*belay.Lease); isRenewal && c.end == promise.OK {
			g2renewed(f, c, *l)
		}
	}
}

// g2alive checks that a write was committed while the session of its owner was alive.
func g2alive(f *finding, s *story, ev *belay.Event, c *commit) {
	a := s.byToken[ev.Token]
	if a == nil {
		return // the checker promise.G2 reports a token without a run
	}
	x := f.workers[a.Worker]
	if x == nil {
		f.violation(s, c, "%s at seq %d was written by a worker without a session", ev.Kind, ev.Seq)
		return
	}
	v, there := x.before(c)
	if !there {
		return // the same commit opened the session
	}
	expires := v.ExpiresAt
	if c.changes.Grace != 0 {
		expires = max(expires.Add(c.changes.Grace), c.at.Add(v.Spec.TTL.D()))
	}
	for _, now := range c.changes.Workers {
		if now.ID == v.ID && now.HeartbeatAt == c.at {
			// an earlier heartbeat of the batch renewed the session, and the server had received it
			// in time
			expires = c.at.Add(v.Spec.TTL.D())
		}
	}
	switch {
	case v.State.Ended():
		f.violation(s, c, "%s at seq %d was accepted though the session of %s had ended at %d", ev.Kind, ev.Seq,
			v.Spec.Name, v.EndedAt)
	case expires <= c.at:
		f.violation(s, c, "%s at seq %d was accepted %s after the session of %s was over", ev.Kind, ev.Seq,
			c.at.Sub(expires), v.Spec.Name)
	}
}

// g2renewed checks that the caller of an accepted renewal owned the run at some moment of the call:
// the call had the right secret and, if it named a token, the right token.
func g2renewed(f *finding, c *call, l belay.Lease) {
	f.OK()
	s := f.byID[l.Execution]
	for i, r := range s.rows {
		until := c.to
		if i+1 < len(s.rows) {
			until = s.rows[i+1].c.real
		}
		owner := r.State == belay.Running && r.Worker == l.Worker && r.Secret == l.Secret &&
			(l.Token == 0 || r.Token == l.Token)
		if owner && r.c.real <= c.to && until >= c.from {
			return
		}
	}
	f.violation(s, nil, "a renewal with token %d of %s was accepted although the caller did not own the run",
		l.Token, c.actor)
}
