package simulation

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// promptly is the time within which the store's own work must follow its due time.
const promptly = time.Second

// g5: no limbo. At every moment an execution that has not ended has a live owner, a due time, or
// a reason with a next check; and a check that is due is made in time.
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
	if f.w.plan.calm() {
		g5idle(f)
	}
}

// g5row checks that the row itself has a way to go on.
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

// g5owner checks that the owner is alive, or that the execution is taken back in time.
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

// g5check checks that no check is overdue.
func g5check(f *finding, s *story, r row, until time.Duration) {
	if r.CheckAt == 0 {
		return
	}
	if by := f.deadline(max(f.real(r.CheckAt), r.c.real), r.c); until > by {
		f.violation(s, r.c, "its check was due by %s and was not made until %s", f.real(r.CheckAt), until)
	}
}
