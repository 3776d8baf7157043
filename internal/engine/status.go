package engine

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// statuses collects the changes of states for the followers of this engine: those that this engine
// commits, and those that other servers report. Commits only append to a list; the goroutine of run
// adds the list to the window that the followers read. Without followers it does nothing.
//
// Changes of one execution may be committed by several servers, and then arrive in another order. So
// if several servers share the store, a change waits for statusHold, and together with it go all
// changes that were committed before it. A change waits longer, up to statusMost, if it does not begin
// with the state with which the change before it ended: a change between them is missing. A change
// that arrives even later is a loss.
//
// After a loss every follower gets a snapshot. Before that, the changes that are waiting are dropped,
// and those that arrive within statusHold: all of them were committed before the snapshot is read. A
// follower that got one of them after the snapshot could not see that it is older.
type statuses struct {
	store  store.Store
	log    *slog.Logger
	hinter store.StateHinter // nil if no other server reports changes
	hold   time.Duration
	window *statusWindow
	most   int // maximum number of followers
	// reads limits the number of reads for snapshots at the same time. seen and pages limit the
	// memory for all snapshots: for follower.seen, and for executions that are being reported.
	reads, seen, pages *supply

	active atomic.Bool // changes are collected

	mu        sync.Mutex
	followers int
	left      time.Time     // when the last follower left
	settled   chan struct{} // closed when other servers report their changes, if they run; nil if they do
	inbox     []arrival     // in the order of arrival; a change that waits longer is at the front
	losses    statusLosses
	wake      chan struct{}

	facts factsCache // only for the goroutine of run
}

const (
	// statusHold is how long a change waits for earlier changes of other servers, and statusMost how
	// long if one is missing.
	statusHold = 100 * time.Millisecond
	statusMost = 2 * time.Second
	// statusLate is the age above which a change counts as a loss, because followers may have got a
	// snapshot that is newer.
	statusLate = 5 * time.Second
	// statusRest is the pause after changes were added to the window. While there are many commits, the
	// changes of several commits are added together, because each addition wakes other goroutines.
	statusRest = 20 * time.Millisecond
	// maxInbox is the largest number of changes that wait for the window.
	maxInbox = 1 << 16
	// lingers is how long changes are collected after the last follower has left, so that it can
	// continue after a broken connection.
	lingers = 30 * time.Second
	// maxFollowers is the largest number of followers of an engine.
	maxFollowers = 5000
	// snapshotReads is how many reads for snapshots may run at the same time.
	snapshotReads = 2
	// snapshotMemory is about the largest number of bytes of all snapshots together.
	snapshotMemory = 64 << 20
)

func newStatuses(s store.Store, o *Options) *statuses {
	x := &statuses{
		store: s, log: o.Log, window: newStatusWindow(o.StatusWindow), most: cmp.Or(o.Followers, maxFollowers),
		reads: newSupply(snapshotReads), seen: newSupply(snapshotMemory / 2), pages: newSupply(snapshotMemory / 2),
		wake: make(chan struct{}, 1),
	}
	if h, ok := s.(store.StateHinter); ok {
		x.hinter, x.hold = h, statusHold
	}
	return x
}

// join counts a follower until the function that it returns is called. The follower may read the
// store when settled is closed, or at once if it is nil.
func (x *statuses) join() (leave func(), settled <-chan struct{}, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.followers >= x.most {
		return nil, nil, &belay.Error{
			Code: belay.CodeUnavailable, Op: "follow", RetryAfter: 5 * time.Second,
			Message: "this server has too many followers of states already; ask again, or another server",
		}
	}
	x.followers++
	if !x.active.Load() {
		x.active.Store(true)
		if x.hinter != nil {
			x.hinter.WantStates(true)
			// Earlier changes are not reported completely, and must not come after the snapshot.
			x.settled = make(chan struct{})
			x.losses.note(time.Now())
		}
		nudge(x.wake)
	}
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.followers--; x.followers == 0 {
			x.left = time.Now()
			nudge(x.wake)
		}
	}, x.settled, nil
}

// observe collects the changes of a batch.
func (x *statuses) observe(b *batch) {
	if !x.active.Load() || len(b.changes.States) == 0 {
		return
	}
	specs := b.changes.Specs
	all := make([]arrival, 0, len(b.changes.States))
	for _, c := range b.changes.States {
		a := arrival{Status: belay.Status{
			Execution: c.ID, Seq: c.Seq, State: c.State, Previous: c.From, Generation: c.Generation,
			At: b.rows.Now.Time(),
		}, local: true}
		if c.New {
			var s *machine.Spec
			if s, specs = specOf(c.ID, specs); s != nil {
				a.facts = factsOf(c.Execution, s.Labels)
			}
		}
		all = append(all, a)
	}
	x.arrived(all)
}

// onHint collects the changes of another server.
func (x *statuses) onHint(h store.Hint) {
	if !x.active.Load() {
		return
	}
	if h.Lost || h.Down || h.StatesLost {
		x.lose()
	}
	all := make([]arrival, len(h.States))
	for i, s := range h.States {
		all[i] = arrival{Status: belay.Status{
			Execution: s.Execution, Seq: s.Seq, State: s.State, Previous: s.From, Generation: s.Generation,
			At: s.At.Time(),
		}}
	}
	x.arrived(all)
}

func (x *statuses) arrived(all []arrival) {
	if len(all) == 0 {
		return
	}
	now := time.Now()
	for i := range all {
		all[i].at = now
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.inbox)+len(all) > maxInbox {
		x.inbox = nil
		x.losses.note(now)
	} else {
		x.inbox = append(x.inbox, all...)
	}
	nudge(x.wake)
}

// lose notes that changes may be missing, so that every follower gets a snapshot.
func (x *statuses) lose() {
	if !x.active.Load() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.losses.note(time.Now())
	nudge(x.wake)
}

// run moves changes from the inbox to the window until ctx ends.
func (x *statuses) run(ctx context.Context) {
	timer := time.NewTimer(lingers)
	defer timer.Stop()
	for {
		all, next := x.take()
		early, lost, err := x.publish(ctx, all)
		if err != nil && ctx.Err() == nil {
			x.log.Debug("changes of states cannot be described; followers get a snapshot", "error", err)
		}
		if lost || err != nil {
			x.lose() // which drops the early changes too
		} else if len(early) > 0 {
			x.mu.Lock()
			x.inbox = append(early, x.inbox...)
			x.mu.Unlock()
		}
		wake := x.wake
		if len(all) > 0 {
			wake, next = nil, statusRest
		}
		if timer.Stop(); next > 0 {
			timer.Reset(next)
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
	}
}

// take returns the changes that have waited long enough, and how long run should sleep at most; 0 means
// until it is woken. After a loss it begins a new epoch of the window when that is due. It ends the
// collection when there has been no follower for a while.
func (x *statuses) take() (all []arrival, next time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	if x.followers == 0 && x.active.Load() {
		if next = x.left.Add(lingers).Sub(now); next <= 0 {
			x.active.Store(false)
			x.clearLocked()
			x.losses, x.facts = statusLosses{}, factsCache{}
			if x.hinter != nil {
				x.hinter.WantStates(false)
			}
			return nil, 0
		}
	}
	if !x.losses.last.IsZero() {
		if wait := x.losses.due(x.hold).Sub(now); wait > 0 {
			return nil, sooner(next, wait)
		}
		x.clearLocked()
		if x.losses.cleared(now, x.hold); !x.losses.last.IsZero() {
			return nil, sooner(next, x.hold)
		}
	}
	if len(x.inbox) > 0 && now.Sub(x.inbox[0].at) >= x.hold {
		all, x.inbox = ripe(x.inbox, now, x.hold)
	}
	if len(x.inbox) > 0 {
		next = sooner(next, max(x.inbox[0].at.Add(x.hold).Sub(now), time.Millisecond))
	}
	return all, next
}

// sooner is the shorter of two waits, of which the first may be 0 for none.
func sooner(next, wait time.Duration) time.Duration {
	if next == 0 {
		return wait
	}
	return min(next, wait)
}

// clearLocked begins a new epoch: every follower gets a snapshot, which has the effects of all changes
// that have arrived.
func (x *statuses) clearLocked() {
	for i := range x.inbox {
		x.facts.skip(&x.inbox[i])
	}
	x.inbox = nil
	x.facts.doubt++
	x.window.clear()
	if x.settled != nil {
		close(x.settled)
		x.settled = nil
	}
}

// publish adds changes to the window. It returns the changes that must wait for a missing change. If a
// change comes too late, publish adds nothing and reports a loss.
func (x *statuses) publish(ctx context.Context, all []arrival) (early []arrival, lost bool, err error) {
	if len(all) == 0 {
		return nil, false, nil
	}
	if x.hold > 0 {
		sortArrivals(all)
	}
	if err := x.facts.describe(ctx, x.store, all); err != nil {
		return nil, true, err
	}
	now, clock := time.Now(), x.store.Now().Time()
	out := make([]belay.Status, 0, len(all))
	held := make(map[belay.ExecutionID]bool)
	for i := range all {
		a := &all[i]
		f := a.facts
		sure := f.seq != 0 && f.doubt == x.facts.doubt // f.state is the state before the next change
		switch {
		case a.Seq == f.seq && a.At.Equal(f.at): // reported twice
			continue
		case f.gone, a.late(now, clock):
			lost = true
			continue
		case a.Seq <= f.seq && !sure && !a.At.After(f.at): // the last snapshots have its effect
			continue
		case a.Seq <= f.seq:
			lost = true
			x.facts.drop(a.Execution)
			continue
		case held[a.Execution], sure && a.Previous != f.state && x.hold > 0 && now.Sub(a.at) < statusMost:
			held[a.Execution] = true
			early = append(early, *a)
			continue
		case sure && a.Previous != f.state:
			lost = true
		}
		f.seq, f.state, f.at, f.doubt = a.Seq, a.State, a.At, x.facts.doubt
		s := a.Status
		s.Workflow, s.Version, s.Queue, s.Parent, s.Labels = f.workflow, f.version, f.queue, f.parent, f.labels
		out = append(out, s)
	}
	if lost {
		return nil, true, nil
	}
	x.window.add(out)
	return early, false, nil
}
