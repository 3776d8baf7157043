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
	// lookAside is how often the store is asked whether what was held still is.
	lookAside = 50 * time.Millisecond
	// mostAside is how many commands one such look is about.
	mostAside = 256
	// patience is how long a command waits for somebody else's transaction before it
	// is refused, and vital how long a sign of life does.
	patience = time.Second
	vital    = 10 * time.Second
	// remembered is for how long rows are looked at that nobody waits for any more:
	// who was refused soon asks again.
	remembered = 5 * time.Second
)

// aside holds the commands that wait for rows which somebody else holds: an
// application's transaction with an idempotency key in it, a locked table. They left
// their batch, so that the others go on, and return to the queue when the store says
// that what they wait for is free.
type aside struct {
	c      *committer
	holder store.Holder // nil if the store cannot tell
	wake   chan struct{}

	mu      sync.Mutex
	calls   []*call
	rows    map[store.Row]time.Time // that are held, and when somebody last waited for them
	tables  store.Tables            // that cannot be written
	shut    store.Tables            // that cannot even be read with locks
	stopped bool
}

func newAside(c *committer) *aside {
	h, _ := c.store.(store.Holder)
	return &aside{c: c, holder: h, wake: make(chan struct{}, 1), rows: make(map[store.Row]time.Time)}
}

// stop refuses all that waits, and what comes later.
func (a *aside) stop() {
	a.mu.Lock()
	calls := a.calls
	a.calls, a.stopped = nil, true
	a.mu.Unlock()
	a.refuse(calls)
}

func (a *aside) refuse(calls []*call) {
	for _, k := range calls {
		a.c.answer(k, &machine.Reply{Err: &belay.Error{
			Code: belay.CodeUnavailable, RetryAfter: patience / 2, Err: store.ErrBusy,
			Message: "somebody else's transaction holds what this needs; nothing was written",
		}})
	}
}

// run looks after what waits, until ctx ends.
func (a *aside) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for a.any() {
			if !sleep(ctx, lookAside) {
				return
			}
			a.review(ctx)
		}
	}
}

// any reports whether there is anything to look after.
func (a *aside) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.calls) > 0 || a.heldLocked()
}

func (a *aside) heldLocked() bool { return a.tables|a.shut != 0 || len(a.rows) > 0 }

// review asks what is still held, gives back to the queue what is not, and refuses
// what has waited for too long.
func (a *aside) review(ctx context.Context) {
	a.mu.Lock()
	some := a.calls[:min(len(a.calls), mostAside)]
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
	n := min(len(a.calls), len(some)) // what came meanwhile stands behind them
	var free, late, waiting []*call
	for _, k := range a.calls[:n] {
		switch {
		case now.Sub(k.held) > k.patience():
			late = append(late, k)
		case a.waitsLocked(k, now):
			waiting = append(waiting, k)
		default:
			free = append(free, k)
		}
	}
	a.calls = append(a.calls[n:], waiting...)
	a.refuse(late)
	a.c.again(free)
}

// needOf names the rows that calls wait for, and others.
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

// learnLocked takes in what a look has found: what it does not name is free.
func (a *aside) learnLocked(held store.Held, now time.Time) {
	a.tables, a.shut = held.Tables, held.Shut
	a.c.life.shut(a.tables | a.shut)
	for r, last := range a.rows {
		if _, still := held.Rows[r]; !still || now.Sub(last) > remembered {
			delete(a.rows, r)
		}
	}
	for r := range held.Rows {
		if _, there := a.rows[r]; !there && len(a.rows) < mostAside {
			a.rows[r] = now
		}
	}
}

// waitsLocked reports whether a call waits for what is held.
func (a *aside) waitsLocked(k *call, now time.Time) bool {
	if !a.heldLocked() {
		return false
	}
	var n machine.Need
	k.command.Need(&n)
	if a.tables&writes(k.command, &n)|a.shut&reads(&n) != 0 {
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

// rowsOf are the rows that a call may have to wait for.
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

// screen takes out of a batch what is known to wait for somebody.
func (a *aside) screen(calls []*call) []*call {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.heldLocked() {
		return calls
	}
	free, _ := a.divideLocked(calls)
	return free
}

// divideLocked puts those of the calls aside that wait for what is held.
func (a *aside) divideLocked(calls []*call) (free []*call, some bool) {
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

// part takes out of calls that could not be committed in time those that wait for
// somebody, and gives the rest, to be tried again. Where the store cannot tell which
// these are, it guesses: the calls are tried apart, each kind by itself, then halves.
func (a *aside) part(ctx context.Context, calls []*call, need machine.Need, guesses *int) [][]*call {
	held, _ := a.look(ctx, need)
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for r := range held.Rows {
		a.rows[r] = now
	}
	a.tables, a.shut = a.tables|held.Tables, a.shut|held.Shut
	a.c.life.shut(a.tables | a.shut)
	free, some := a.divideLocked(calls)
	switch {
	case len(free) == 0:
		return nil
	case some:
		return [][]*call{free}
	}
	if *guesses--; len(calls) > 1 && *guesses > 0 {
		return pieces(calls)
	}
	for _, k := range calls {
		a.addLocked(k, now)
	}
	return nil
}

const (
	// mostGuesses is how often one batch is divided without knowing who waits in it, and
	// guessPatience how long each part waits: a lane of the committer stands still
	// meanwhile.
	mostGuesses   = 24
	guessPatience = 50 * time.Millisecond
)

// pieces divides calls of which nobody can say who waits: by kind, then in halves.
func pieces(calls []*call) [][]*call {
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

// look asks the store what is held.
func (a *aside) look(ctx context.Context, need machine.Need) (store.Held, bool) {
	if a.holder == nil {
		return store.Held{}, false
	}
	held, err := a.holder.Held(store.Urgent(ctx), need)
	return held, err == nil
}

func (a *aside) addLocked(k *call, now time.Time) {
	if k.held.IsZero() {
		k.held = now
	}
	if a.stopped {
		a.refuse([]*call{k})
		return
	}
	a.calls = append(a.calls, k)
	nudge(a.wake)
}

// patience is how long the call may wait for somebody else.
func (k *call) patience() time.Duration {
	if k.class == alive {
		return vital
	}
	return patience
}
