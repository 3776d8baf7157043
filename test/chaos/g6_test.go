package chaos

import (
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// g6 checks G6, that a loss is detected within a bounded time. Let h be the time of an owner's last
// accepted heartbeat, and t the later of h and the last recorded recovery of the store or of all
// servers (the grace in the owner's session). The owner is declared lost in [t+TTL, t+TTL+1s], and
// never earlier, unless its own host has proven its death. Watchers receive the event of the
// loss within a second.
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
				f.Violation(nil, "%s was not declared lost by %s", w.Name, by.Format(clock))
			}
		}
	}
	g6watchers(f)
}

// clockLag is the time by which the store's clock may be behind the machine's clock: if a server's
// reading of the database's clock is delayed, the server corrects the error only slowly
// (store.Clock). The loss of an acknowledged heartbeat would cause a greater difference: the
// interval between two heartbeats.
const clockLag = 100 * time.Millisecond

// g6beats checks that a session lasts as long as the server promised its worker, and longer only
// after a recovery.
func g6beats(f *finding, w *belay.Worker) {
	if grace := w.ExpiresAt.Sub(w.HeartbeatAt) - w.TTL.D(); grace < 0 {
		f.Violation(nil, "%s has until %s, less than its TTL after its heartbeat at %s", w.Name,
			w.ExpiresAt.Format(clock), w.HeartbeatAt.Format(clock))
	} else if grace > 0 {
		f.Count("grace written")
		g6grace(f, w, grace)
	}
	for _, e := range f.beats[w.ID] {
		if w.HeartbeatAt.Before(e.At.Add(-clockLag)) {
			f.Violation(nil, "the heartbeat of %s at %s was acknowledged, and the last in the store is of %s",
				e.Who, e.At.Format(clock), w.HeartbeatAt.Format(clock))
		}
	}
}

// shortGrace is the longest extra time (grace) that the servers may give to a session for a stall
// that the test did not record. The servers can notice such a stall, because each server writes the
// time (its mark of life) to the store several times a second.
const shortGrace = 3 * time.Second

// g6grace checks the extra time (grace) that a session got: after a recovery of the servers the
// session's TTL counts from the recovery; at any other time the grace is at most shortGrace.
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
	f.Violation(nil, "%s was declared dead at %s and was alive: %s", w.Name, w.EndedAt.Format(clock), w.EndReason)
}

func g6expired(f *finding, w *belay.Worker) {
	f.Count("session expired")
	f.OK()
	late := w.EndedAt.Sub(w.ExpiresAt)
	if late < 0 {
		f.Violation(nil, "%s was declared lost %s before its deadline", w.Name, -late)
	}
	by := f.deadline(w.ExpiresAt)
	if w.EndedAt.After(by) {
		f.Violation(nil, "%s was declared lost at %s, %s after its deadline, but should have been by %s", w.Name,
			w.EndedAt.Format(clock), late, by.Format(clock))
	}
	if by.Equal(w.ExpiresAt.Add(promptly)) {
		f.expired = append(f.expired, late)
	} else {
		f.hindered = append(f.hindered, late)
	}
}

// catchingUp is how long after an outage the servers may still be busy with the requests that
// queued up during the outage.
const catchingUp = 5 * time.Second

// looking is how long after the end of a server the others may take to notice its last commits, of
// which they got no hints: they look for other servers every two seconds, and once more half a second
// after they have noticed an end.
const looking = 2500 * time.Millisecond

// g6watchers checks that watchers receive the event of a loss (an execution has lost its owner)
// within a second, if the servers could act and if the watcher's stream was open at the loss. If a
// server was killed within that second, the servers have longer (see unhinted). The checker
// g15 checks streams that break off.
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
		within, unhinted := promptly, f.unhinted(ev.At)
		within += unhinted
		if f.disturbed(ev.At.Add(-catchingUp), ev.At.Add(within)) {
			continue
		}
		if unhinted == 0 {
			f.noticed = append(f.noticed, took)
		}
		if took > within {
			f.Violation(f.byID[x.Execution], "%s saw the loss at %s, which was at %s", x.Watcher, x.At.Format(clock),
				ev.At.Format(clock))
		}
	}
}

// unhinted returns how much longer than promptly the servers may take to notice a commit, because the
// server that committed may have been killed before it sent the hint: 0 if none was killed then.
func (b *book) unhinted(commit time.Time) (longer time.Duration) {
	for _, t := range b.Trouble {
		if after := t.From.Sub(commit); strings.HasPrefix(t.What, "server") && after >= 0 && after <= promptly {
			longer = after + looking
		}
	}
	return longer
}

// disturbed reports whether there was any moment between from and to at which the servers could not
// act.
func (b *book) disturbed(from, to time.Time) bool {
	for _, t := range b.impossible() {
		if t.From.Before(to) && t.To.After(from) {
			return true
		}
	}
	return false
}
