package simulation

import (
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// sign is a call that opens or renews a worker's session, with the times and the
// result that the worker observed.
type sign struct {
	from, to time.Duration
	end      promise.Ending
	ttl      time.Duration // the TTL that the answer promised; 0 if there was no answer
}

// signs lists the signs of life of each session, in the order of their ends.
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

// g2fenced checks that no worker begins a step after its fence. The fence is the time at which two
// thirds of the TTL have passed since the worker sent the newest answered call that renewed its
// session.
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

// g6accepted compares the end of a lost session with the session's last heartbeats, without reading
// the rows. The session ends no sooner than the TTL after the worker sent the last heartbeat that
// was accepted and answered, or, if the clock was set, no sooner than the worker's fence. If no
// fault explains a delay, the session ends within a second after the TTL of the last heartbeat that
// the store may have accepted.
func g6accepted(f *finding) {
	signs := f.signs()
	for _, x := range f.shifts {
		v := x.last()
		if v.State != belay.WorkerLost || strings.Contains(v.Why, "is gone") || v.Spec.External {
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
			f.violation(nil, v.c, "%s was given up at %s, although its worker was promised the time until %s",
				v.Spec.Name, v.c.real, least)
		}
		if f.w.plan.calm() && !x.graced() && most > 0 && v.c.real > most+promptly {
			f.violation(nil, v.c, "%s was given up at %s, and its last heartbeat was over by %s", v.Spec.Name, v.c.real,
				most)
		}
	}
}

// graced reports whether the session was ever extended.
func (s *shift) graced() bool {
	for _, v := range s.versions {
		if v.grace || v.c.changes.Grace != 0 {
			return true
		}
	}
	return false
}
