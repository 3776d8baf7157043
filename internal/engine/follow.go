package engine

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

const (
	// followAtATime is how many changes a follower looks at, and reports at most, at a time.
	followAtATime = 256
	// followSpread is the time for each follower over which the wake-ups of all followers are
	// distributed, at most followSpreadMost: a thousand followers that write at the same moment would
	// slow down the commits. A follower thus reports several changes together.
	followSpread, followSpreadMost = time.Millisecond, time.Second
)

// Follow reports the states of executions.
func (r *Reader) Follow(ctx context.Context, q belay.StatusQuery, f func(belay.StatusNews) error) error {
	at, err := checkFollow(&q)
	if err != nil {
		return err
	}
	w := &follower{Reader: r, q: q, selects: newSelection(&q), news: f, at: at, began: time.Now()}
	if r.statuses == nil {
		return w.poll(ctx)
	}
	leave, settled, err := r.statuses.join()
	if err != nil {
		return err
	}
	defer leave()
	defer w.forget()
	if settled != nil {
		if _, err := w.await(ctx, settled, nil); err != nil {
			return err
		}
	}
	return w.follow(ctx)
}

// checkFollow checks a query, fills in the states to follow, and returns the position after which to
// begin.
func checkFollow(q *belay.StatusQuery) (at statusPosition, err error) {
	const op = "follow"
	for _, x := range []struct{ what, name string }{{"workflow", q.Workflow}, {"queue", q.Queue}} {
		if err := machine.CheckName(op, x.what, x.name); err != nil {
			return at, err
		}
	}
	if err := machine.CheckLabels(op, q.Labels); err != nil {
		return at, err
	}
	for _, s := range q.States {
		if s < belay.Pending || s > belay.Cancelled {
			return at, &belay.Error{Code: belay.CodeInvalid, Op: op, Message: "a state to follow is none"}
		}
	}
	if len(q.States) == 0 {
		q.States = belay.ActiveStates()
	}
	if q.After == "" {
		return at, nil
	}
	at, ok := parseStatusPosition(q.After)
	if !ok {
		return at, &belay.Error{
			Code: belay.CodeInvalid, Op: op, Message: "the position is none that a stream of states has reported",
		}
	}
	return at, nil
}

// follower is a call of Follow.
type follower struct {
	*Reader
	q       belay.StatusQuery
	selects selection
	news    func(belay.StatusNews) error // use report
	at      statusPosition
	began   time.Time
	told    time.Time // when the last news were reported; zero if there were none
	// seen has the executions of the newest snapshot, and is nil later: changes that the window gets
	// until seenUntil may be older than the snapshot, and are then left out.
	seen      map[belay.ExecutionID]seen
	seenUntil time.Time
	held      int64         // what the follower has taken of statuses.seen
	last      time.Time     // when the last snapshot ended
	rest      time.Duration // before the next snapshot
}

// report passes news on.
func (w *follower) report(n belay.StatusNews) error {
	err := w.news(n)
	w.told = time.Now()
	return err
}

// ready is a channel that is always ready to receive from.
var ready = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// follow reports changes, and snapshots where changes are missing, until ctx ends.
func (w *follower) follow(ctx context.Context) error {
	if w.q.After == "" {
		if err := w.snapshot(ctx, belay.SnapshotBegin); err != nil {
			return err
		}
	}
	// A client that continues must learn at once that the server has taken its position, not only with
	// the next change.
	greet := w.q.After != "" && w.q.Idle > 0
	idle := w.idle()
	defer idle.Stop()
	for {
		if err := w.interrupted(ctx); err != nil {
			return err
		}
		entries, next, changed, gap := w.statuses.window.after(w.at, followAtATime, w.selects.labels...)
		if gap != "" {
			greet = false
			if err := w.snapshot(ctx, gap); err != nil {
				return err
			}
			continue
		}
		moved := next != w.at
		w.at = next
		if changes := w.matching(entries); len(changes) > 0 || greet {
			greet = false
			if err := w.report(belay.StatusNews{Changes: changes, Position: w.position()}); err != nil {
				return err
			}
			idle.Reset(w.idleTime())
		}
		if len(entries) == followAtATime {
			continue
		}
		if moved {
			changed = ready // there may be more already
		}
		select {
		case <-idle.C:
			w.matching(nil) // the position may be settled by now
			if err := w.report(belay.StatusNews{Position: w.position()}); err != nil {
				return err
			}
			idle.Reset(w.idleTime())
		case <-ctx.Done():
			return w.over(ctx)
		case <-w.ended:
			return w.over(ctx)
		case <-changed:
			if !w.sleep(ctx, w.pause()) {
				return w.over(ctx)
			}
		}
	}
}

func (w *follower) idleTime() time.Duration {
	if w.q.Idle <= 0 {
		return time.Hour
	}
	return w.q.Idle
}

func (w *follower) idle() *time.Timer { return time.NewTimer(w.idleTime()) }

// over is the error of a call that ends early.
func (w *follower) over(ctx context.Context) error {
	if err := w.interrupted(ctx); err != nil {
		return err
	}
	return errClosed
}

// sleep waits for d. It reports false if the call must end.
func (w *follower) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-w.ended:
	}
	return false
}

// pause is how long this follower waits after a wake-up, so that not all followers write at the same
// moment.
func (w *follower) pause() time.Duration {
	w.statuses.mu.Lock()
	n := w.statuses.followers
	w.statuses.mu.Unlock()
	if n <= 1 {
		return 0
	}
	half := min(followSpreadMost, time.Duration(n)*followSpread) / 2
	return half + time.Duration(rand.Int64N(int64(half))) //nolint:gosec // no secret
}

// selection is a query in the form in which it is compared with changes.
type selection struct {
	rest   belay.StatusQuery // without labels
	states [belay.Cancelled + 1]bool
	labels []label
}

type label struct{ name, value string }

func newSelection(q *belay.StatusQuery) (s selection) {
	s.rest = *q
	s.rest.Labels = nil
	for _, state := range q.States {
		s.states[state] = true
	}
	for name, value := range q.Labels {
		s.labels = append(s.labels, label{name, value})
	}
	return s
}

// has reports whether the query selects the execution before or after a change.
func (s *selection) has(c *belay.Status) bool {
	if !s.states[c.State] && !s.states[c.Previous] {
		return false
	}
	for _, l := range s.labels {
		if c.Labels[l.name] != l.value {
			return false
		}
	}
	return s.rest.Selects(c)
}

// unsettled is the position of a follower that got a snapshot a moment ago. Only this call of Follow
// knows which changes are older than the snapshot; so a call that continues after unsettled begins
// with another snapshot.
var unsettled = statusPosition{}.String()

// position is the position that the follower reports.
func (w *follower) position() string {
	if w.seen != nil {
		return unsettled
	}
	return w.at.String()
}

// matching returns the changes that the follower reports.
func (w *follower) matching(entries []*statusEntry) (out []belay.StatusChange) {
	if len(entries) == 0 && w.seen != nil && time.Now().After(w.seenUntil) {
		w.forget()
	}
	for _, e := range entries {
		if w.seen != nil && e.added.After(w.seenUntil) {
			w.forget()
		}
		if x, there := w.seen[e.Execution]; there && e.Previous == 0 && e.At.After(x.created) {
			delete(w.seen, e.Execution) // it was deleted after the snapshot, and submitted again
		}
		if !w.selects.has(&e.Status) || e.Seq <= w.seen[e.Execution].seq {
			continue
		}
		c := belay.StatusChange{Status: e.Status, Matches: w.selects.states[e.State], Position: e.position}
		if w.seen != nil {
			c.Position = unsettled
		}
		out = append(out, c)
	}
	return out
}

// poll reports snapshots for a Reader without an engine: it reads the store again and again, and
// reports a snapshot if there is a difference.
func (w *follower) poll(ctx context.Context) error {
	cause, reported := belay.SnapshotBegin, uint64(0)
	seed := maphash.MakeSeed()
	quiet := time.Now()
	for {
		var parts []*belay.StatusSnapshot
		var h maphash.Hash
		h.SetSeed(seed)
		err := w.read(ctx, func(part *belay.StatusSnapshot) error {
			parts = append(parts, part)
			for i := range part.Executions {
				s := &part.Executions[i]
				_, _ = h.Write(s.Execution[:])
				_ = h.WriteByte(byte(s.State))
				maphash.WriteComparable(&h, s.Seq)
			}
			return nil
		})
		switch sum := h.Sum64(); {
		case errors.Is(err, &belay.Error{Code: belay.CodeUnavailable}) && cause == belay.SnapshotPolled:
		case err != nil:
			return err
		case cause == belay.SnapshotBegin || sum != reported:
			for _, part := range parts {
				part.Cause = cause
				if err := w.report(belay.StatusNews{Snapshot: part}); err != nil {
					return err
				}
			}
			cause, reported, quiet = belay.SnapshotPolled, sum, time.Now()
		case time.Since(quiet) >= w.idleTime():
			if err := w.report(belay.StatusNews{}); err != nil {
				return err
			}
			quiet = time.Now()
		}
		if !w.sleep(ctx, w.Reader.poll) {
			return w.over(ctx)
		}
	}
}
