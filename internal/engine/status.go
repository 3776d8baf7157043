package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
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
// that arrives even later is a loss, and every follower gets a snapshot.
type statuses struct {
	store  store.Store
	log    *slog.Logger
	hinter store.StateHinter // nil if no other server reports changes
	hold   time.Duration
	window *statusWindow
	most   int // maximum number of followers
	// reads limits the number of reads for snapshots at the same time, and memory counts the bytes
	// of the snapshots of all followers.
	reads  chan struct{}
	memory atomic.Int64

	active atomic.Bool // changes are collected

	mu        sync.Mutex
	followers int
	left      time.Time // when the last follower left
	settled   time.Time // from then on other servers report their changes, if they run
	inbox     []arrival // in the order of arrival; a change that waits longer is at the front
	lost      bool      // changes may be missing
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
	// maxInbox is the largest number of changes that wait for the window.
	maxInbox = 1 << 16
	// lingers is how long changes are collected after the last follower has left, so that it can
	// continue after a broken connection.
	lingers = 30 * time.Second
	// maxFollowers is the largest number of followers of an engine.
	maxFollowers = 5000
	// snapshotReads is how many reads for snapshots may run at the same time.
	snapshotReads = 2
	// snapshotMemory is the largest number of bytes of all snapshots together.
	snapshotMemory = 64 << 20
)

// arrival is a change that is not in the window yet.
type arrival struct {
	belay.Status
	at    time.Time
	facts *statusFacts // known for an execution that this engine has accepted
}

func newStatuses(s store.Store, o *Options) *statuses {
	x := &statuses{
		store: s, log: o.Log, window: newStatusWindow(o.StatusWindow), most: cmp.Or(o.Followers, maxFollowers),
		reads: make(chan struct{}, snapshotReads), wake: make(chan struct{}, 1),
	}
	if h, ok := s.(store.StateHinter); ok {
		x.hinter, x.hold = h, statusHold
	}
	return x
}

// join counts a follower until the function that it returns is called. The follower may read the
// store at the given time.
func (x *statuses) join() (leave func(), settled time.Time, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.followers >= x.most {
		return nil, settled, &belay.Error{
			Code: belay.CodeUnavailable, Op: "follow", RetryAfter: 5 * time.Second,
			Message: "this server has too many followers of states already; ask again, or another server",
		}
	}
	x.followers++
	if !x.active.Load() {
		x.active.Store(true)
		if x.hinter != nil {
			x.hinter.WantStates(true)
			x.settled = time.Now().Add(x.hold)
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
		}}
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
		x.inbox, x.lost = nil, true
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
	x.lost = true
	nudge(x.wake)
}

// run moves changes from the inbox to the window until ctx ends.
func (x *statuses) run(ctx context.Context) {
	timer := time.NewTimer(lingers)
	defer timer.Stop()
	for {
		all, lost, next := x.take()
		if lost {
			x.window.clear()
		}
		early, err := x.publish(ctx, all)
		if err != nil && ctx.Err() == nil {
			x.log.Debug("changes of states cannot be described; followers get a snapshot", "error", err)
			x.window.clear()
		}
		if len(early) > 0 {
			x.mu.Lock()
			x.inbox = append(early, x.inbox...)
			x.mu.Unlock()
			next = statusHold / 4
		}
		if timer.Stop(); next > 0 {
			timer.Reset(next)
		}
		select {
		case <-ctx.Done():
			return
		case <-x.wake:
		case <-timer.C:
		}
	}
}

// take returns the changes that have waited long enough, whether changes are missing, and how long run
// should sleep at most; 0 means until it is woken. It ends the collection when there has been no follower for a while.
func (x *statuses) take() (all []arrival, lost bool, next time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	if x.followers == 0 && x.active.Load() {
		if next = x.left.Add(lingers).Sub(now); next <= 0 {
			x.active.Store(false)
			x.inbox, x.lost, x.facts = nil, false, factsCache{}
			if x.hinter != nil {
				x.hinter.WantStates(false)
			}
			return nil, true, 0
		}
	}
	lost, x.lost = x.lost, false
	if len(x.inbox) > 0 && now.Sub(x.inbox[0].at) >= x.hold {
		all, x.inbox = ripe(x.inbox, now, x.hold)
	}
	if len(x.inbox) > 0 {
		if held := max(x.inbox[0].at.Add(x.hold).Sub(now), time.Millisecond); next == 0 || held < next {
			next = held
		}
	}
	return all, lost, next
}

// ripe returns the changes that have waited for the time hold, together with all changes that were
// committed before one of them, and the other changes.
func ripe(inbox []arrival, now time.Time, hold time.Duration) (all, rest []arrival) {
	var until time.Time
	for i := range inbox {
		if a := &inbox[i]; now.Sub(a.at) >= hold && a.At.After(until) {
			until = a.At
		}
	}
	for i := range inbox {
		if inbox[i].At.After(until) {
			rest = append(rest, inbox[i])
		} else {
			all = append(all, inbox[i])
		}
	}
	return all, rest
}

// publish adds changes to the window. It returns the changes that must wait for a missing change. If a
// change comes too late, the window begins a new epoch.
func (x *statuses) publish(ctx context.Context, all []arrival) (early []arrival, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	facts, err := x.facts.of(ctx, x.store, all)
	if err != nil {
		return nil, err
	}
	if x.hold > 0 {
		slices.SortStableFunc(all, func(a, b arrival) int {
			return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Seq, b.Seq))
		})
	}
	oldest, now := x.store.Now().Time().Add(-statusLate), time.Now()
	out := make([]belay.Status, 0, len(all))
	late := false
	for i := range all {
		s, f := all[i].Status, facts[all[i].Execution]
		switch {
		case f == nil, s.Seq < f.seq, s.At.Before(oldest):
			late = true
			continue
		case s.Seq == f.seq: // reported twice
			continue
		case f.seq != 0 && s.Previous != f.state && x.hold > 0 && now.Sub(all[i].at) < statusMost:
			early = append(early, all[i])
			continue
		case f.seq != 0 && s.Previous != f.state:
			late = true
		}
		f.seq, f.state = s.Seq, s.State
		s.Workflow, s.Version, s.Queue, s.Parent, s.Labels = f.workflow, f.version, f.queue, f.parent, f.labels
		out = append(out, s)
	}
	if late {
		x.window.clear()
	}
	x.window.add(out)
	return early, nil
}
