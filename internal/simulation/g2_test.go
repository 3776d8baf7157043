package simulation

import (
	"errors"

	"github.com/belaydev/belay"
)

// g2: no stale effect. After an expiry, a newer claim or an end, nothing with an
// older token is applied: whatever an owner wrote was written in its run, while
// its session was alive by the store's clock. A refusal says why and has left
// nothing; a repeated operation gets its first answer again.
func g2(f *finding) {
	for _, s := range f.stories {
		for _, e := range s.events {
			if e.token != 0 && e.c != nil {
				f.ok()
				g2alive(f, s, e)
			}
		}
	}
	g2fenced(f)
	seqs := make(map[belay.OpID]int64)
	for _, c := range f.calls {
		if c.err != nil && belay.CodeOf(c.err) == belay.CodeLeaseLost && c.end == refused {
			g2refused(f, c)
		}
		if l, isRenewal := c.request.(*belay.Lease); isRenewal && c.end == ok {
			g2renewed(f, c, *l)
		}
		r, isSave := c.request.(*belay.Save)
		if !isSave || c.end != ok {
			continue
		}
		s := f.byID[r.Lease.Execution]
		seq := c.reply.(int64)
		if first, again := seqs[r.Op]; again && first != seq {
			f.violation(s, nil, "save %q was answered %d and, repeated, %d", r.Key, first, seq)
		}
		seqs[r.Op] = seq
		for _, k := range s.saved {
			if k.Seq == seq && k.Token != r.Lease.Token {
				f.violation(s, k.c, "save %q with token %d was accepted as one of token %d", r.Key, r.Lease.Token, k.Token)
			}
		}
	}
}

// g2alive holds an effect against the run and the session under which it was
// written.
func g2alive(f *finding, s *story, e event) {
	a := s.byToken[e.token]
	if a == nil || a.StartedSeq >= e.seq || a.EndedSeq != 0 && a.EndedSeq < e.seq {
		f.violation(s, e.c, "%s at seq %d was written outside of the run of its token %d", e.kind, e.seq, e.token)
		return
	}
	x := f.workers[a.Worker]
	if x == nil {
		f.violation(s, e.c, "%s at seq %d was written by a worker without a session", e.kind, e.seq)
		return
	}
	v, there := x.before(e.c)
	if !there {
		return // opened in the same commit
	}
	expires := v.ExpiresAt
	if e.c.changes.Grace != 0 {
		expires = max(expires.Add(e.c.changes.Grace), e.c.at.Add(v.Spec.TTL.D()))
	}
	for _, now := range e.c.changes.Workers {
		if now.ID == v.ID && now.HeartbeatAt == e.c.at {
			expires = e.c.at.Add(v.Spec.TTL.D()) // by a heartbeat before it in the batch, that the server had received in time
		}
	}
	switch {
	case v.State.Ended():
		f.violation(s, e.c, "%s at seq %d was accepted though the session of %s had ended at %d", e.kind, e.seq, v.Spec.Name, v.EndedAt)
	case expires <= e.c.at:
		f.violation(s, e.c, "%s at seq %d was accepted %s after the session of %s was over", e.kind, e.seq, e.c.at.Sub(expires), v.Spec.Name)
	}
}

// g2renewed checks that whoever renewed a run owned it at some time of the call:
// by its secret, and by its token if it named one.
func g2renewed(f *finding, c *call, l belay.Lease) {
	f.ok()
	s := f.byID[l.Execution]
	for i, r := range s.rows {
		until := c.to
		if i+1 < len(s.rows) {
			until = s.rows[i+1].c.real
		}
		owner := r.State == belay.Running && r.Worker == l.Worker && r.Secret == l.Secret && (l.Token == 0 || r.Token == l.Token)
		if owner && r.c.real <= c.to && until >= c.from {
			return
		}
	}
	f.violation(s, nil, "a renewal with token %d of %s was accepted of somebody who did not own it", l.Token, c.actor)
}

// g2refused holds a refusal to its word: it names a cause, and nothing of the
// operation is there.
func g2refused(f *finding, c *call) {
	var err *belay.Error
	if !errors.As(c.err, &err) || err.Cause == "" {
		f.violation(nil, nil, "%s %s: refused without a cause: %v", c.kind, c.about, c.err)
		return
	}
	f.ok()
	switch r := c.request.(type) {
	case *belay.Save:
		f.count("stale write refused")
		s := f.byID[r.Lease.Execution]
		for _, k := range s.saved {
			if k.Op == r.Op && !r.Op.IsZero() {
				f.violation(s, k.c, "save %q was refused (%s) and is there as seq %d", r.Key, err.Cause, k.Seq)
			}
		}
		g2cause(f, s, r.Lease, err.Cause)
	case *belay.Lease:
		f.count("stale renewal refused")
		g2cause(f, f.byID[r.Execution], *r, err.Cause)
	case *belay.Settlement:
		f.count("stale write refused")
		s := f.byID[r.Lease.Execution]
		if a := s.byToken[r.Lease.Token]; a != nil && a.Op == r.Op && !r.Op.IsZero() {
			f.violation(s, a.ended, "settle as %s was refused (%s) and is there as seq %d", r.Outcome, err.Cause, a.EndedSeq)
		}
		g2cause(f, s, r.Lease, err.Cause)
	}
}

// g2cause holds a cause against what became of the execution: it must be true
// at some time.
func g2cause(f *finding, s *story, l belay.Lease, cause belay.Cause) {
	holds := false
	for _, r := range s.rows {
		switch cause {
		case belay.CauseReassigned:
			holds = holds || r.Token > l.Token
		case belay.CauseFinished:
			holds = holds || r.State.Terminal() && r.Token >= l.Token
		case belay.CauseCancelled:
			holds = holds || r.State == belay.Cancelled || r.CancelBy != 0
		default:
			holds = true
		}
	}
	if !holds {
		f.violation(s, nil, "token %d was refused as %s, which it never was", l.Token, cause)
	}
}
