package chaos

import (
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// g6: bounded detection. An owner whose last accepted heartbeat was at h is given
// up in [t+TTL, t+TTL+1s], t being the later of h and the last written recovery
// of the store or of all servers (grace, which stands in its session); never
// earlier, except on a death proven on its own host. Watchers see it within a
// second.
func g6(f *finding) {
	for _, w := range f.sessions {
		g6beats(f, w)
		switch {
		case w.State == belay.WorkerLost && strings.Contains(w.EndReason, "is gone"):
			g6proven(f, w)
		case w.State == belay.WorkerLost:
			g6expired(f, w)
		case !w.State.Ended():
			if by := f.deadline(w.ExpiresAt); f.Read.After(by) {
				f.Violation(nil, "%s was not given up by %s", w.Name, by.Format(clock))
			}
		}
	}
	g6watchers(f)
}

// g6beats checks that a session has as long as its worker was told, and longer
// only after a recovery.
func g6beats(f *finding, w *belay.Worker) {
	if grace := w.ExpiresAt.Sub(w.HeartbeatAt) - w.TTL.D(); grace < 0 {
		f.Violation(nil, "%s has until %s, less than its TTL after its heartbeat at %s", w.Name,
			w.ExpiresAt.Format(clock), w.HeartbeatAt.Format(clock))
	} else if grace > 0 {
		f.Count("grace written")
		g6grace(f, w, grace)
	}
	for _, e := range f.beats[w.ID] {
		if w.HeartbeatAt.Before(e.At) {
			f.Violation(nil, "%s was told that its heartbeat of %s is accepted, and the last in the store is of %s",
				e.Who, e.At.Format(clock), w.HeartbeatAt.Format(clock))
		}
	}
}

// shortGrace may have been written for a stall of which nobody else knows: the
// servers' marks of life are a fraction of a second apart.
const shortGrace = 3 * time.Second

// g6grace checks that what a session was given is what it had lost: its time
// counts again from a recovery.
func g6grace(f *finding, w *belay.Worker, grace time.Duration) {
	from := w.ExpiresAt.Add(-w.TTL.D())
	for _, t := range f.impossible() {
		if !from.Before(t.From) && !from.After(t.To.Add(catchingUp)) {
			return
		}
	}
	if grace > shortGrace {
		f.Violation(nil, "the time of %s counts from %s, %s after its last heartbeat, and nothing had recovered then",
			w.Name, from.Format(clock), grace)
	}
}

func g6proven(f *finding, w *belay.Worker) {
	f.Count("death proven")
	f.OK()
	for _, at := range f.deaths[w.Process.PID] {
		if !at.After(w.EndedAt) {
			if took := w.EndedAt.Sub(at); !f.disturbed(at, w.EndedAt) {
				f.proven = append(f.proven, took)
			}
			return
		}
	}
	f.Violation(nil, "%s was declared dead at %s and lived: %s", w.Name, w.EndedAt.Format(clock), w.EndReason)
}

func g6expired(f *finding, w *belay.Worker) {
	f.Count("session expired")
	f.OK()
	late := w.EndedAt.Sub(w.ExpiresAt)
	if late < 0 {
		f.Violation(nil, "%s was given up %s before its time", w.Name, -late)
	}
	by := f.deadline(w.ExpiresAt)
	if w.EndedAt.After(by) {
		f.Violation(nil, "%s was given up at %s, %s after its time; by %s it should have been", w.Name,
			w.EndedAt.Format(clock), late, by.Format(clock))
	}
	if by.Equal(w.ExpiresAt.Add(promptly)) {
		f.expired = append(f.expired, late)
	} else {
		f.hindered = append(f.hindered, late)
	}
}

// catchingUp is how long after an outage the servers may be busy with what has
// queued up.
const catchingUp = 5 * time.Second

// g6watchers checks that those who watch see a loss within a second, where the
// servers could act, and in the stream that was open when it happened: one that
// breaks off is another matter, see g15.
func g6watchers(f *finding) {
	for i := range f.Seen {
		x := &f.Seen[i]
		if x.Kind != belay.OutcomeLost.String() || f.byID[x.Execution] == nil {
			continue
		}
		ev := f.byID[x.Execution].At(x.Seq)
		if ev == nil || x.Began.After(ev.At) {
			continue
		}
		f.Count("loss seen by a watcher")
		took := x.At.Sub(ev.At)
		if f.disturbed(ev.At.Add(-catchingUp), ev.At.Add(promptly)) {
			continue
		}
		f.noticed = append(f.noticed, took)
		if took > promptly {
			f.Violation(f.byID[x.Execution], "%s saw the loss at %s, which was at %s", x.Watcher, x.At.Format(clock),
				ev.At.Format(clock))
		}
	}
}

// disturbed reports whether the servers could not act at some time between two
// moments.
func (b *book) disturbed(from, to time.Time) bool {
	for _, t := range b.impossible() {
		if t.From.Before(to) && t.To.After(from) {
			return true
		}
	}
	return false
}
