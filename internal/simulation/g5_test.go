package simulation

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// promptly is the time within which the engine must do work that is due.
const promptly = time.Second

// g5 checks G5, that no execution is stuck. At every moment an execution that has not ended has a
// live owner, a due time, or a reason with the time of its next check, and the engine makes a check
// that is due in time.
func g5(f *finding) {
	for _, s := range f.stories {
		for i, r := range s.rows {
			f.OK()
			until := f.ended
			if i+1 < len(s.rows) {
				until = s.rows[i+1].c.real
			}
			g5row(f, s, r)
			g5owner(f, s, r, until)
			g5check(f, s, r, until)
		}
	}
	g5parked(f)
	if f.w.plan.calm() {
		g5idle(f)
	}
}

// g5row checks that the row contains an owner, a due time, or the time of a next check.
func g5row(f *finding, s *story, r row) {
	if r.State.Terminal() {
		return
	}
	if v := machine.View(&machine.Record{Execution: r.Execution}); r.State != belay.Running &&
		(v.Reason == nil || v.Reason.Code == "") {
		f.violation(s, r.c, "it is %s without a reason", r.State)
	}
	state := r.State
	if state == belay.Paused {
		state = r.PausedFrom
	}
	switch state {
	case belay.Pending:
		if r.DueAt == 0 {
			f.violation(s, r.c, "it is pending and never due")
		}
	case belay.Waiting:
		if r.DueAt == 0 && r.SignalSeq > r.SignalSeen {
			f.violation(s, r.c, "it waits for a signal newer than %d and has %d", r.SignalSeen, r.SignalSeq)
		}
		if r.SignalSeen > r.SignalSeq {
			f.violation(s, r.c, "it has seen signal %d, which does not exist: the newest is %d", r.SignalSeen,
				r.SignalSeq)
		}
	case belay.Running, belay.Scheduled:
		if r.Worker.IsZero() {
			f.violation(s, r.c, "it is %s without an owner", r.State)
		}
	default:
		f.violation(s, r.c, "it is in state %s", state)
	}
	if r.CancelBy != 0 && (r.CheckAt == 0 || r.CheckAt > r.CancelBy) {
		f.violation(s, r.c, "it must end by %d and is checked only at %d", r.CancelBy, r.CheckAt)
	}
}

// g5owner checks that the owner is alive, or that the engine takes the execution back in time.
func g5owner(f *finding, s *story, r row, until time.Duration) {
	if r.State != belay.Running && r.State != belay.Scheduled {
		return
	}
	x := f.workers[r.Worker]
	if x == nil {
		f.violation(s, r.c, "its owner has no session")
		return
	}
	last := x.last()
	if !last.State.Ended() {
		return
	}
	if by := f.deadline(max(last.c.real, r.c.real), last.c); until > by {
		f.violation(s, r.c, "its owner %s is %s since %s and it was not taken back by %s", last.Spec.Name, last.State,
			last.c.real, by)
	}
}

// g5check checks that the engine made the row's next check in time.
func g5check(f *finding, s *story, r row, until time.Duration) {
	if r.CheckAt == 0 {
		return
	}
	if by := f.deadline(max(f.real(r.CheckAt), r.c.real), r.c); until > by {
		f.violation(s, r.c, "its check was due by %s and was not made until %s", f.real(r.CheckAt), until)
	}
}
