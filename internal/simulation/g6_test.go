package simulation

import (
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// g6 checks G6, that a loss is detected within a bounded time. Let t be the later of two moments:
// the owner's last accepted heartbeat, and the last recovery of the store or of all servers that a
// commit recorded. A lost session ends between t+TTL and t+TTL+1s, and never earlier, except after
// a death that its own host has proven. After a gap in the marks of life (times that each engine
// writes at short intervals), no session expires before a commit has extended all sessions.
// Watchers receive the event of the loss within a second.
func g6(f *finding) {
	for _, x := range f.shifts {
		for i := 1; i < len(x.versions); i++ {
			v, before := x.versions[i], x.versions[i-1]
			if v.State == belay.WorkerLost && !before.State.Ended() {
				g6end(f, v, before)
			}
			if v.c.changes.Grace != 0 {
				f.Count("grace written")
			}
		}
		g6silent(f, x)
	}
	g6accepted(f)
	if f.w.plan.calm() {
		g6watchers(f)
	}
}

func g6end(f *finding, v, before version) {
	f.OK()
	if strings.Contains(v.Why, "is gone") {
		f.Count("death proven")
		if at, dead := f.crashed[v.Spec.Process.PID]; !dead || at > v.c.real {
			f.violation(nil, v.c, "%s was declared dead and lives", v.Spec.Name)
		}
		return
	}
	f.Count("session expired")
	if gap := f.stale[v.c]; gap > 0 && v.c.changes.Grace == 0 {
		f.violation(nil, v.c, "%s was ended in a batch that found no mark of life for %s and extended no session",
			v.Spec.Name, gap)
	}
	if early := before.ExpiresAt.Sub(v.EndedAt); early > 0 {
		f.violation(nil, v.c, "%s was given up %s before its time", v.Spec.Name, early)
	}
	due := max(f.real(before.ExpiresAt), before.c.real)
	by := f.deadline(due, before.c)
	if v.c.real > by {
		f.violation(nil, v.c, "%s was given up %s after its time, which was %s", v.Spec.Name, v.c.real-due, due)
	}
	if by == due+promptly {
		f.detected = append(f.detected, v.c.real-due)
	}
}

// g6silent finds expired sessions that were not ended.
func g6silent(f *finding, x *shift) {
	for i, v := range x.versions {
		if want := v.HeartbeatAt.Add(v.Spec.TTL.D()); !v.State.Ended() && v.ExpiresAt < want {
			f.violation(nil, v.c, "%s has until %d, less than its TTL after its heartbeat", v.Spec.Name, v.ExpiresAt)
		}
		if i+1 < len(x.versions) || v.State.Ended() {
			continue
		}
		if by := f.deadline(f.real(v.ExpiresAt), v.c); f.ended > by {
			f.violation(nil, v.c, "%s was not given up by %s", v.Spec.Name, by)
		}
	}
}

// g6watchers checks that watchers receive the event of a loss (an execution has lost its owner)
// within a second if no fault delays it. If the message about the event (the hint) is lost, a
// watcher of another node receives the event with that node's next slow poll.
func g6watchers(f *finding) {
	lost := make(map[belay.ExecutionID]map[int64]time.Duration)
	for _, s := range f.stories {
		lost[s.id] = make(map[int64]time.Duration)
		for _, a := range s.runs {
			if a.ended != nil && a.Outcome == belay.OutcomeLost {
				lost[s.id][a.EndedSeq] = a.ended.real
			}
		}
	}
	for _, x := range f.seen {
		at, is := lost[x.Execution][x.Seq]
		if !is || x.Began.Sub(f.w.zero) > at {
			continue
		}
		f.Count("loss seen by a watcher")
		within := promptly
		if len(f.w.nodes) > 1 {
			within += f.w.plan.slowPoll
		}
		if seen := x.At.Sub(f.w.zero); seen > at+within {
			f.violation(f.byID[x.Execution], nil, "%s saw the loss at %s, which was at %s", x.Watcher, seen, at)
		}
	}
}
