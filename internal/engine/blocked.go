package engine

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

const (
	// blockedPoll is the interval at which the engine checks in the store whether rows are still
	// locked.
	blockedPoll = 50 * time.Millisecond
	// maxBlockedLookup is the maximum number of commands, and of rows, that one check covers.
	maxBlockedLookup = 256
	// patience is how long a command waits for another transaction before it is refused. A sign of
	// life (a heartbeat or a renewal) waits for renewalPatience.
	patience        = time.Second
	renewalPatience = 10 * time.Second
	// remembered is how long the engine watches locked rows for which no command waits any more. A
	// caller whose command was refused usually repeats the command within this time.
	remembered = 5 * time.Second
)

// blocked keeps the commands that wait for rows or tables that another transaction has locked, such
// as an application's transaction that uses an idempotency key. These commands have left their
// batch, so that the other commands of the batch can be committed. They return to the queue when
// the store reports that the rows are free.
type blocked struct {
	c      *committer
	holder store.Holder // nil if the store cannot report locks
	wake   chan struct{}

	mu         sync.Mutex
	calls      []*call
	rows       map[store.Row]time.Time // locked rows, with the last time a command waited for each
	unwritable store.Tables            // tables that cannot be written
	unreadable store.Tables            // tables that cannot even be read with row locks
	stopped    bool
}

func newBlocked(c *committer) *blocked {
	h, _ := c.store.(store.Holder)
	return &blocked{c: c, holder: h, wake: make(chan struct{}, 1), rows: make(map[store.Row]time.Time)}
}

// stop refuses all blocked commands, and those that are added later.
func (a *blocked) stop() {
	a.mu.Lock()
	calls := a.calls
	a.calls, a.stopped = nil, true
	a.mu.Unlock()
	a.refuse(calls)
}

func (a *blocked) refuse(calls []*call) {
	for _, k := range calls {
		a.c.answer(k, &machine.Reply{Err: &belay.Error{
			Code: belay.CodeUnavailable, RetryAfter: patience / 2, Err: store.ErrBusy,
			Message: "another transaction has locked rows that this command needs; nothing was written",
		}})
	}
}

// run checks the blocked commands regularly until ctx ends.
func (a *blocked) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for a.any() {
			if !sleep(ctx, blockedPoll) {
				return
			}
			a.review(ctx)
		}
	}
}

// any reports whether there are blocked commands or locked rows to check.
func (a *blocked) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls) > 0 || a.watchesLocked()
}

func (a *blocked) watchesLocked() bool { return a.unwritable|a.unreadable != 0 || len(a.rows) > 0 }

// review reads from the store which rows are still locked. Commands whose rows are free return to
// the queue; commands that have waited too long are refused.
func (a *blocked) review(ctx context.Context) {
	a.mu.Lock()
	some := a.calls[:min(len(a.calls), maxBlockedLookup)]
	need := needOf(some, a.rows)
	a.mu.Unlock()
	held, known := a.look(ctx, need)
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped || !known && a.holder != nil {
		return
	}
	a.learnLocked(held, now)
	n := min(len(a.calls), len(some)) // calls that are added during the check follow these in the list
	var free, late, waiting []*call
	for _, k := range a.calls[:n] {
		switch {
		case now.Sub(k.blockedSince) > k.patience():
			late = append(late, k)
		case a.waitsLocked(k, now):
			waiting = append(waiting, k)
		default:
			free = append(free, k)
		}
	}
	a.calls = append(a.calls[n:], waiting...)
	a.refuse(late)
	a.c.returnToQueue(free)
}

// needOf returns the need of the calls (the rows that the store must load for them), with the given
// rows added.
func needOf(calls []*call, rows map[store.Row]time.Time) machine.Need {
	var n machine.Need
	for _, k := range calls {
		k.command.Need(&n)
	}
	for r := range rows {
		switch r.Kind {
		case store.RowSession, store.RowRenewal:
			n.Workers = append(n.Workers, r.ID)
		case store.RowExecution:
			n.Executions = append(n.Executions, r.ID)
		case store.RowKey:
			n.Keys = append(n.Keys, r.Key)
		}
	}
	return n
}

// learnLocked records which rows the store has reported as locked; all other rows are free.
func (a *blocked) learnLocked(held store.Held, now time.Time) {
	a.unwritable, a.unreadable = held.Tables, held.Shut
	a.c.health.setLocked(a.unwritable | a.unreadable)
	for r, last := range a.rows {
		if _, still := held.Rows[r]; !still || now.Sub(last) > remembered {
			delete(a.rows, r)
		}
	}
	for r := range held.Rows {
		if _, there := a.rows[r]; !there && len(a.rows) < maxBlockedLookup {
			a.rows[r] = now
		}
	}
}

// waitsLocked reports whether a call needs a row or table that is locked.
func (a *blocked) waitsLocked(k *call, now time.Time) bool {
	if !a.watchesLocked() {
		return false
	}
	var n machine.Need
	k.command.Need(&n)
	if a.unwritable&writes(k.command, &n)|a.unreadable&reads(&n) != 0 {
		return true
	}
	waits := false
	for _, r := range rowsOf(k, &n) {
		if _, held := a.rows[r]; held {
			a.rows[r] = now
			waits = true
		}
	}
	return waits
}

// rowsOf returns the rows that a call may have to wait for.
func rowsOf(k *call, n *machine.Need) []store.Row {
	rows := make([]store.Row, 0, 4)
	for _, id := range n.Workers {
		rows = append(rows, store.Row{Kind: store.RowSession, ID: id})
		if k.class == alive || k.class == claiming {
			rows = append(rows, store.Row{Kind: store.RowRenewal, ID: id})
		}
	}
	for _, id := range n.Executions {
		rows = append(rows, store.Row{Kind: store.RowExecution, ID: id})
	}
	for _, key := range n.Keys {
		rows = append(rows, store.Row{Kind: store.RowKey, Key: key})
	}
	return rows
}

// removeBlocked removes commands from a batch if they need rows that are known to be locked, and
// keeps these commands until the rows are free.
func (a *blocked) removeBlocked(calls []*call) []*call {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.watchesLocked() {
		return calls
	}
	free, _ := a.setAsideLocked(calls)
	return free
}

// setAsideLocked keeps the calls that need locked rows. It returns the other calls, and whether
// there were calls to keep.
func (a *blocked) setAsideLocked(calls []*call) (free []*call, some bool) {
	now := time.Now()
	for _, k := range calls {
		if a.waitsLocked(k, now) {
			a.addLocked(k, now)
			some = true
		} else {
			free = append(free, k)
		}
	}
	return free, some
}

// separate handles the calls of a batch that could not be committed in time. It keeps the calls
// that need locked rows, and returns the other calls, which the committer tries again. If the store
// cannot report which rows are locked, separate divides the calls into parts to try: first by kind
// of command, then in halves.
func (a *blocked) separate(ctx context.Context, calls []*call, need machine.Need, guesses *int) [][]*call {
	held, _ := a.look(ctx, need)
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for r := range held.Rows {
		a.rows[r] = now
	}
	a.unwritable, a.unreadable = a.unwritable|held.Tables, a.unreadable|held.Shut
	a.c.health.setLocked(a.unwritable | a.unreadable)
	free, some := a.setAsideLocked(calls)
	switch {
	case len(free) == 0:
		return nil
	case some:
		return [][]*call{free}
	}
	if *guesses--; len(calls) > 1 && *guesses > 0 {
		return splitByKind(calls)
	}
	for _, k := range calls {
		a.addLocked(k, now)
	}
	return nil
}

const (
	// maxGuesses is the maximum number of times that the committer divides one batch to find its
	// blocked call. guessPatience is how long the commit of each part may wait for locks. It is
	// short because one goroutine of the committer does nothing else while it waits.
	maxGuesses    = 24
	guessPatience = 50 * time.Millisecond
)

// splitByKind divides calls of which one is blocked by locked rows, if the store cannot report
// which call. It makes one part for each kind of command, or two halves if all commands are of one
// kind.
func splitByKind(calls []*call) [][]*call {
	var kinds []reflect.Type
	by := make(map[reflect.Type][]*call)
	for _, k := range calls {
		t := reflect.TypeOf(k.command)
		if by[t] == nil {
			kinds = append(kinds, t)
		}
		by[t] = append(by[t], k)
	}
	if len(kinds) == 1 {
		half := len(calls) / 2
		return [][]*call{calls[:half], calls[half:]}
	}
	parts := make([][]*call, len(kinds))
	for i, t := range kinds {
		parts[i] = by[t]
	}
	return parts
}

// look reads from the store which of the needed rows and tables are locked.
func (a *blocked) look(ctx context.Context, need machine.Need) (store.Held, bool) {
	if a.holder == nil {
		return store.Held{}, false
	}
	held, err := a.holder.Held(store.Urgent(ctx), need)
	return held, err == nil
}

func (a *blocked) addLocked(k *call, now time.Time) {
	if k.blockedSince.IsZero() {
		k.blockedSince = now
	}
	if a.stopped {
		a.refuse([]*call{k})
		return
	}
	a.calls = append(a.calls, k)
	nudge(a.wake)
}

// patience is how long the call may wait for another transaction.
func (k *call) patience() time.Duration {
	if k.class == alive {
		return renewalPatience
	}
	return patience
}
