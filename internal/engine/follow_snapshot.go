package engine

import (
	"context"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
)

const (
	// snapshotAtATime is how many executions one read of a snapshot returns, and partBytes the
	// approximate largest size of one part of a snapshot.
	snapshotAtATime = 1000
	partBytes       = 128 << 10
	// readBytes is the memory that a follower takes before a read, since it does not know the size yet.
	readBytes = snapshotAtATime * 400
	// snapshotScans limits the reads of one snapshot, each of which examines at most scan executions.
	snapshotScans = 40
	// snapshotPatience is how long a follower waits for memory that other followers have taken.
	snapshotPatience = 30 * time.Second
	// restFirst and restMost limit the pause between two snapshots of one follower: it doubles with
	// each snapshot that follows soon after the one before.
	restFirst, restMost = 100 * time.Millisecond, 5 * time.Second
	// seenBytes is the approximate memory for one execution of a snapshot; see follower.seen.
	seenBytes = 64
	// signOfLife is how long a follower without any news may wait before it reports empty news: clients
	// give up a server that sends no header of its answer for 10 s.
	signOfLife = 5 * time.Second
)

// seen is an execution in a snapshot.
type seen struct {
	seq     int64
	created time.Time // another time than that of a later execution with the same id
}

// forget gives back the memory of the last snapshot.
func (w *follower) forget() {
	if w.seen = nil; w.held > 0 {
		w.statuses.seen.give(w.held)
		w.held = 0
	}
}

// snapshot reports a snapshot and moves the follower to a position from before the snapshot: changes
// that the snapshot contains already are left out later; see seen.
func (w *follower) snapshot(ctx context.Context, cause belay.SnapshotCause) error {
	if since := time.Since(w.last); w.last.IsZero() || since > 2*restMost {
		w.rest = 0
	} else {
		w.rest = min(max(restFirst, 2*w.rest), restMost)
		rest := time.NewTimer(w.rest)
		defer rest.Stop()
		if _, err := w.await(ctx, nil, rest.C); err != nil {
			return err
		}
	}
	w.forget()
	const most = (belay.MaxSnapshot + 1) * seenBytes
	if err := w.obtain(ctx, w.statuses.seen, most, snapshotPatience); err != nil {
		return err
	}
	w.held = most
	w.at = w.statuses.window.end()
	w.seen = make(map[belay.ExecutionID]seen)
	err := w.read(ctx, func(part *belay.StatusSnapshot) error {
		part.Cause = cause
		news := belay.StatusNews{Snapshot: part}
		if part.Last {
			news.Position = unsettled
		}
		return w.report(news)
	})
	used := int64(len(w.seen)) * seenBytes
	w.statuses.seen.give(w.held - used)
	w.held = used
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
		if err := w.room(ctx, readBytes); err != nil {
			return err
		}
		all, before, err := w.page(ctx, q)
		if err != nil {
			w.giveRoom(readBytes)
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
		if err := w.obtain(ctx, w.statuses.reads, 1, 0); err != nil {
			return nil, before, err
		}
		defer w.statuses.reads.give(1)
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
		if w.seen != nil {
			w.seen[e.ID] = seen{e.Seq, e.CreatedAt.Time()}
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
// of the follower, in place of readBytes.
func (w *follower) parts(
	all []belay.Status, first, last, truncated bool, pass func(*belay.StatusSnapshot) error,
) error {
	left := int64(0)
	for i := range all {
		left += int64(statusSize(&all[i]))
	}
	w.giveRoom(readBytes - left)
	defer func() { w.giveRoom(left) }()
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
		w.giveRoom(int64(bytes))
		left -= int64(bytes)
	}
	return nil
}

// room takes memory for a page. giveRoom gives it back.
func (w *follower) room(ctx context.Context, n int64) error {
	if w.statuses == nil {
		return nil
	}
	return w.obtain(ctx, w.statuses.pages, n, snapshotPatience)
}

func (w *follower) giveRoom(n int64) {
	if w.statuses != nil {
		w.statuses.pages.give(n)
	}
}

// obtain takes n of a supply. If nothing is left, it waits, for the time patience at most; 0 means
// without limit.
func (w *follower) obtain(ctx context.Context, b *supply, n int64, patience time.Duration) error {
	if b.take(n) {
		return nil
	}
	var over <-chan time.Time
	if patience > 0 {
		t := time.NewTimer(patience)
		defer t.Stop()
		over = t.C
	}
	for {
		switch freed, err := w.await(ctx, b.freed, over); {
		case err != nil:
			return err
		case !freed:
			return &belay.Error{
				Code: belay.CodeUnavailable, Op: "follow", RetryAfter: 2 * time.Second,
				Message: "too many followers need a snapshot at the same time; ask again",
			}
		case b.take(n):
			return nil
		}
	}
}

// await waits until ready or over. Meanwhile it reports empty news whenever the follower has reported
// nothing for the time Idle.
func (w *follower) await(ctx context.Context, ready <-chan struct{}, over <-chan time.Time) (bool, error) {
	alive := time.NewTimer(w.silence())
	defer alive.Stop()
	for {
		select {
		case <-ready:
			return true, nil
		case <-over:
			return false, nil
		case <-alive.C:
			if err := w.report(belay.StatusNews{}); err != nil {
				return false, err
			}
			alive.Reset(w.silence())
		case <-ctx.Done():
			return false, w.over(ctx)
		case <-w.ended:
			return false, w.over(ctx)
		}
	}
}

// silence is how long the follower may report nothing from now on.
func (w *follower) silence() time.Duration {
	switch {
	case w.q.Idle <= 0:
		return time.Hour
	case w.told.IsZero():
		return max(time.Until(w.began.Add(min(w.q.Idle, signOfLife))), time.Millisecond)
	}
	return max(time.Until(w.told.Add(w.q.Idle)), time.Millisecond)
}
