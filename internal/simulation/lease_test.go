package simulation

import (
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/promise"
)

// sign is a call of a worker that says that it lives, as the worker knows of it.
type sign struct {
	from, to time.Duration
	end      promise.Ending
	ttl      time.Duration // that it was promised; 0 if it was told nothing
}

// signs are those of each session, in order of their ends.
func (b *book) signs() map[belay.WorkerID][]sign {
	all := make(map[belay.WorkerID][]sign)
	for _, c := range b.calls {
		x := sign{from: c.from, to: c.to, end: c.end}
		var id belay.WorkerID
		switch r := c.request.(type) {
		case *belay.WorkerSpec:
			id = r.ID
			if s, is := c.reply.(belay.Session); is {
				x.ttl = s.TTL.D()
			}
		case *belay.Heartbeat:
			id = r.Worker
			if s, is := c.reply.(belay.HeartbeatReply); is {
				x.ttl = s.ExpiresIn
			}
		default:
			continue
		}
		all[id] = append(all[id], x)
	}
	return all
}

// g2fenced checks that no worker begins a step behind its fence: later than two thirds of
// the TTL after the sending of the last call that it knows to have kept its session alive.
func g2fenced(f *finding) {
	signs := f.signs()
	for _, x := range f.steps {
		s := f.byID[x.execution]
		if s == nil || s.byToken[x.token] == nil || x.stopped {
			continue
		}
		fence := time.Duration(0)
		for _, y := range signs[s.byToken[x.token].Worker] {
			if y.end == promise.OK && y.to <= x.real {
				fence = max(fence, y.from+y.ttl-y.ttl/3)
			}
		}
		f.OK()
		if x.real > fence {
			f.violation(s, nil, "a step began at %s under token %d, and its worker's fence was at %s", x.real, x.token,
				fence)
		}
	}
}

// g6accepted holds the end of a session against the last heartbeat that its worker knows to
// have been accepted, whatever the rows say: it comes no sooner than the TTL after its
// sending, or where the clock was set, than the worker's fence; and where nothing excuses a
// delay, within a second after the TTL of the last one that may have been accepted.
func g6accepted(f *finding) {
	signs := f.signs()
	for _, x := range f.shifts {
		v := x.last()
		if v.State != belay.WorkerLost || strings.Contains(v.EndReason, "is gone") || v.Spec.External {
			continue
		}
		var least, most time.Duration
		for _, y := range signs[x.id] {
			switch {
			case y.from > v.c.real:
			case y.end == promise.OK && y.to <= v.c.real && len(f.offsets) == 1:
				least = max(least, y.from+y.ttl)
			case y.end == promise.OK && y.to <= v.c.real:
				least = max(least, y.from+y.ttl-y.ttl/3)
			}
			if y.from <= v.c.real && y.end != promise.Refused {
				if to := min(max(y.to, y.from), v.c.real); y.end != promise.OK {
					most = max(most, to+y.ttl, to+v.Spec.TTL.D())
				} else {
					most = max(most, to+y.ttl)
				}
			}
		}
		f.OK()
		if v.c.real < least {
			f.violation(nil, v.c, "%s was given up at %s, and had been told that it has until %s", v.Spec.Name,
				v.c.real, least)
		}
		if f.w.plan.calm() && !x.graced() && most > 0 && v.c.real > most+promptly {
			f.violation(nil, v.c, "%s was given up at %s, and its last heartbeat was over by %s", v.Spec.Name, v.c.real,
				most)
		}
	}
}

// graced reports whether the session was ever given time again.
func (s *shift) graced() bool {
	for _, v := range s.versions {
		if v.grace || v.c.changes.Grace != 0 {
			return true
		}
	}
	return false
}
