package engine

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

const (
	// followAtATime is how many changes a follower looks at, and reports at most, at a time.
	followAtATime = 256
	// snapshotAtATime is how many executions one read of a snapshot returns, and partBytes the
	// approximate largest size of one part of a snapshot.
	snapshotAtATime = 1000
	partBytes       = 128 << 10
	// snapshotScans limits the reads of one snapshot, each of which examines at most scan executions.
	snapshotScans = 40
	// followSpread is the time for each follower over which the wake-ups of all followers are
	// distributed, at most followSpreadMost: a thousand followers that write at the same moment would
	// slow down the commits. A follower thus reports several changes together.
	followSpread, followSpreadMost = 500 * time.Microsecond, 500 * time.Millisecond
	// restFirst and restMost limit the pause between two snapshots of one follower: it doubles with
	// each snapshot that follows soon after the one before.
	restFirst, restMost = 100 * time.Millisecond, 5 * time.Second
	// seenBytes is the approximate memory for one execution of a snapshot; see follower.seen.
	seenBytes = 64
)

// Follow reports the states of executions.
func (r *Reader) Follow(ctx context.Context, q belay.StatusQuery, f func(belay.StatusNews) error) error {
	at, err := checkFollow(&q)
	if err != nil {
		return err
	}
	w := &follower{Reader: r, q: q, selects: newSelection(&q), report: f, at: at}
	if r.statuses == nil {
		return w.poll(ctx)
	}
	leave, settled, err := r.statuses.join()
	if err != nil {
		return err
	}
	defer leave()
	defer w.forget()
	if q.After == "" && !w.sleep(ctx, time.Until(settled)) {
		return w.over(ctx)
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
	report  func(belay.StatusNews) error
	at      statusPosition
	// seen has the seqs of the executions of the newest snapshot, and is nil later: changes that the
	// window gets until seenUntil may be older than the snapshot, and are then left out.
	seen      map[belay.ExecutionID]int64
	seenUntil time.Time
	held      int64         // what the follower has taken of statuses.memory
	last      time.Time     // when the last snapshot ended
	rest      time.Duration // before the next snapshot
}

// follow reports changes, and snapshots where changes are missing, until ctx ends.
func (w *follower) follow(ctx context.Context) error {
	if w.q.After == "" {
		if err := w.snapshot(ctx, belay.SnapshotBegin); err != nil {
			return err
		}
	}
	idle := w.idle()
	defer idle.Stop()
	for {
		if err := w.interrupted(ctx); err != nil {
			return err
		}
		entries, next, changed, gap := w.statuses.window.after(w.at, followAtATime)
		if gap != "" {
			if err := w.snapshot(ctx, gap); err != nil {
				return err
			}
			continue
		}
		w.at = next
		if changes := w.matching(entries); len(changes) > 0 {
			if err := w.report(belay.StatusNews{Changes: changes, Position: w.position()}); err != nil {
				return err
			}
			idle.Reset(w.idleTime())
		}
		if len(entries) == followAtATime {
			continue
		}
		select {
		case <-changed:
			if !w.sleep(ctx, w.pause()) {
				return w.over(ctx)
			}
		case <-idle.C:
			if err := w.report(belay.StatusNews{Position: w.position()}); err != nil {
				return err
			}
			idle.Reset(w.idleTime())
		case <-ctx.Done():
			return w.over(ctx)
		case <-w.ended:
			return w.over(ctx)
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
	*belay.StatusQuery
	states [belay.Cancelled + 1]bool
	labels []label
}

type label struct{ name, value string }

func newSelection(q *belay.StatusQuery) (s selection) {
	s.StatusQuery = q
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
	return s.Selects(c)
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
		if !w.selects.has(&e.Status) || e.Seq <= w.seen[e.Execution] {
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

// forget gives back the memory of the last snapshot.
func (w *follower) forget() {
	w.seen = nil
	w.give(w.held)
}

// take takes memory for a snapshot. It fails if all snapshots together have too much.
func (w *follower) take(n int64) error {
	if w.statuses == nil {
		return nil
	}
	w.held += n
	if w.statuses.memory.Add(n) <= snapshotMemory {
		return nil
	}
	w.give(n)
	return &belay.Error{
		Code: belay.CodeUnavailable, Op: "follow", RetryAfter: 2 * time.Second,
		Message: "too many followers need a snapshot at the same time; ask again",
	}
}

func (w *follower) give(n int64) {
	if w.statuses != nil && n > 0 {
		w.held -= n
		w.statuses.memory.Add(-n)
	}
}

// snapshot reports a snapshot and moves the follower to a position from before the snapshot: changes
// that the snapshot contains already are left out later; see seen.
func (w *follower) snapshot(ctx context.Context, cause belay.SnapshotCause) error {
	if since := time.Since(w.last); w.last.IsZero() || since > 2*restMost {
		w.rest = 0
	} else {
		w.rest = min(max(restFirst, 2*w.rest), restMost)
		if !w.sleep(ctx, w.rest) {
			return w.over(ctx)
		}
	}
	w.forget()
	w.at = w.statuses.window.end()
	w.seen = make(map[belay.ExecutionID]int64)
	err := w.read(ctx, func(part *belay.StatusSnapshot) error {
		part.Cause = cause
		for i := range part.Executions {
			w.seen[part.Executions[i].Execution] = part.Executions[i].Seq
		}
		if err := w.take(int64(len(part.Executions)) * seenBytes); err != nil {
			return err
		}
		news := belay.StatusNews{Snapshot: part}
		if part.Last {
			news.Position = unsettled
		}
		return w.report(news)
	})
	w.last = time.Now()
	w.seenUntil = w.last.Add(statusLate + time.Second)
	return err
}

// read reads a snapshot and passes on its parts.
func (w *follower) read(ctx context.Context, pass func(*belay.StatusSnapshot) error) error {
	q := store.List{
		States: w.q.States, Workflow: w.q.Workflow, Queue: w.q.Queue, Parent: w.q.Parent, Children: w.q.Children,
		Labels: w.q.Labels, Limit: snapshotAtATime, Scan: scan,
	}
	total := 0
	for reads := 1; ; reads++ {
		if err := w.interrupted(ctx); err != nil {
			return err
		}
		q.Limit = min(snapshotAtATime, belay.MaxSnapshot+1-total)
		all, before, err := w.page(ctx, q)
		if err != nil {
			return err
		}
		q.Before = before
		more := !before.IsZero()
		total += len(all)
		truncated := total > belay.MaxSnapshot || more && reads == snapshotScans
		if total > belay.MaxSnapshot {
			all = all[:len(all)-(total-belay.MaxSnapshot)]
		}
		if err := w.parts(all, reads == 1, !more || truncated, truncated, pass); err != nil || !more || truncated {
			return err
		}
	}
}

// page reads the next executions of a snapshot. before is zero if there are no more.
func (w *follower) page(ctx context.Context, q store.List) (all []belay.Status, before belay.ExecutionID, err error) {
	if w.statuses != nil {
		select {
		case w.statuses.reads <- struct{}{}:
			defer func() { <-w.statuses.reads }()
		case <-ctx.Done():
			return nil, before, w.over(ctx)
		case <-w.ended:
			return nil, before, w.over(ctx)
		}
	}
	list, err := w.store.List(ctx, q)
	if err != nil {
		return nil, before, err
	}
	all = make([]belay.Status, len(list.Records))
	for i, r := range list.Records {
		e := r.Execution
		all[i] = belay.Status{
			Execution: e.ID, Seq: e.Seq, State: e.State, Generation: e.Generation, Workflow: e.Workflow,
			Version: e.Version, Queue: e.Queue, Parent: e.Parent,
		}
		if r.Spec != nil {
			all[i].Labels = r.Spec.Labels
		}
	}
	switch {
	case len(all) == q.Limit:
		before = all[len(all)-1].Execution
	case !list.Last.IsZero():
		before = list.Last
	}
	return all, before, nil
}

// parts divides a page into parts of limited size. While they are reported, the page counts as memory
// of the follower.
func (w *follower) parts(
	all []belay.Status, first, last, truncated bool, pass func(*belay.StatusSnapshot) error,
) error {
	size := int64(0)
	for i := range all {
		size += int64(statusSize(&all[i]))
	}
	if err := w.take(size); err != nil {
		return err
	}
	defer w.give(size)
	for begin := true; begin || len(all) > 0; begin = false {
		n, bytes := 0, 0
		for n < len(all) && (n == 0 || bytes < partBytes) {
			bytes += statusSize(&all[n])
			n++
		}
		part := &belay.StatusSnapshot{
			First: first && begin, Last: last && n == len(all), Executions: all[:n:n],
		}
		part.Truncated = truncated && part.Last
		if all = all[n:]; part.Executions == nil {
			part.Executions = []belay.Status{}
		}
		if err := pass(part); err != nil {
			return err
		}
	}
	return nil
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
