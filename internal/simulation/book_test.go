package simulation

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// book is a history put in order for the checkers: what became of each
// execution and of each session, commit by commit.
type book struct {
	*history
	w       *world
	stories []*story
	byID    map[belay.ExecutionID]*story
	shifts  []*shift
	workers map[belay.WorkerID]*shift
	// stale is, by commit, the gap that the marks of life had before it, where
	// that was more than three beats.
	stale map[*commit]time.Duration
	// healed is when the last fault was over, ended when nobody worked any
	// more.
	healed, ended time.Duration
	detected      []time.Duration // how long after its time a session was given up
}

// story is all that was written of one execution.
type story struct {
	id      belay.ExecutionID
	rows    []row
	runs    []*attempt
	byToken map[belay.Token]*attempt
	saved   []*savedRow
	signals []*signalRow
	deeds   []*deedRow
	letters []*letterRow
	specs   []*machine.Spec
	events  []event // by seq
	record  *machine.Record
}

// row is the execution as a commit left it.
type row struct {
	*machine.Execution
	c *commit
}

type attempt struct {
	machine.Run
	began, ended *commit
}

type savedRow struct {
	*machine.Checkpoint
	c *commit
}

type signalRow struct {
	*machine.Signal
	c        *commit
	consumed *commit
	by       int64
}

type deedRow struct {
	*machine.Deed
	c *commit
}

type letterRow struct {
	*machine.DeadLetter
	c        *commit
	resolved []*commit
}

// event is what was written under one seq.
type event struct {
	seq   int64
	c     *commit
	kind  string
	token belay.Token // of the owner who wrote it; 0 if none did
	start *attempt
	end   *attempt
	saved *savedRow
	deed  *deedRow
	final bool
}

// shift is all that was written of one session.
type shift struct {
	id       belay.WorkerID
	versions []version
}

// version is the session as a commit left it.
type version struct {
	*machine.Worker
	c     *commit
	grace bool // moved by grace alone
}

func (w *world) newBook() *book {
	b := &book{
		history: w.history, w: w, byID: make(map[belay.ExecutionID]*story), workers: make(map[belay.WorkerID]*shift),
		stale: make(map[*commit]time.Duration), ended: w.stoppedAt, healed: w.healed,
	}
	b.history.settle()
	var mark machine.Time
	var beat time.Duration
	for _, c := range b.commits {
		if mark != 0 && beat != 0 && c.at.Sub(mark) > 3*beat {
			b.stale[c] = c.at.Sub(mark)
		}
		if c.changes.Vital() {
			mark = c.at
		}
		if c.beat != 0 {
			beat = c.beat
		}
		b.enter(c)
	}
	for _, s := range b.stories {
		s.tell()
		if r, err := w.store.Read(context.Background(), store.Read{Execution: s.id, Spec: true, History: true, Data: true}); err == nil {
			s.record = r
		}
	}
	slices.SortFunc(b.stories, func(a, b *story) int { return a.id.Compare(b.id) })
	slices.SortFunc(b.shifts, func(a, b *shift) int { return slices.Compare(a.id[:], b.id[:]) })
	return b
}

func (b *book) story(id belay.ExecutionID) *story {
	s := b.byID[id]
	if s == nil {
		s = &story{id: id, byToken: make(map[belay.Token]*attempt)}
		b.byID[id] = s
		b.stories = append(b.stories, s)
	}
	return s
}

func (b *book) enter(c *commit) {
	x := c.changes
	for _, e := range x.Executions {
		s := b.story(e.ID)
		s.rows = append(s.rows, row{e, c})
	}
	for _, sp := range x.Specs {
		s := b.story(sp.Execution)
		s.specs = append(s.specs, sp)
	}
	for _, r := range x.Runs {
		b.story(r.Execution).enterRun(r, c)
	}
	for _, k := range x.Checkpoints {
		s := b.story(k.Execution)
		s.saved = append(s.saved, &savedRow{k, c})
	}
	for _, k := range x.Signals {
		s := b.story(k.Execution)
		s.signals = append(s.signals, &signalRow{Signal: k, c: c})
	}
	for _, k := range x.Consumed {
		for _, y := range b.story(k.Execution).signals {
			if y.Seq == k.Seq {
				y.consumed, y.by = c, k.ConsumedBy
			}
		}
	}
	for _, d := range x.Deeds {
		s := b.story(d.Execution)
		s.deeds = append(s.deeds, &deedRow{d, c})
	}
	for _, d := range x.DeadLetters {
		b.story(d.Execution).enterLetter(d, c)
	}
	b.enterWorkers(c)
}

func (s *story) enterRun(r *machine.Run, c *commit) {
	a := s.byToken[r.Token]
	if r.New || a == nil {
		a = &attempt{Run: *r}
		s.runs = append(s.runs, a)
		s.byToken[r.Token] = a
	} else {
		began := a.Run
		a.Run = *r
		a.Worker, a.Attempt, a.Generation = began.Worker, began.Attempt, began.Generation
		if r.StartedSeq == 0 {
			a.StartedSeq, a.StartedAt = began.StartedSeq, began.StartedAt
		}
		a.ScheduledSeq, a.ScheduledAt = began.ScheduledSeq, began.ScheduledAt
	}
	if a.StartedSeq != 0 && a.began == nil {
		a.began = c
	}
	if a.EndedSeq != 0 && a.ended == nil {
		a.ended = c
	}
}

func (s *story) enterLetter(d *machine.DeadLetter, c *commit) {
	if d.New {
		s.letters = append(s.letters, &letterRow{DeadLetter: d, c: c})
		return
	}
	for _, l := range s.letters {
		if l.Generation == d.Generation {
			l.resolved = append(l.resolved, c)
		}
	}
}

func (b *book) enterWorkers(c *commit) {
	written := make(map[belay.WorkerID]bool)
	for _, x := range c.changes.Workers {
		written[x.ID] = true
		s := b.workers[x.ID]
		if s == nil {
			s = &shift{id: x.ID}
			b.workers[x.ID] = s
			b.shifts = append(b.shifts, s)
		}
		s.versions = append(s.versions, version{Worker: x, c: c})
	}
	if c.changes.Grace == 0 {
		return
	}
	for _, s := range b.shifts {
		if last := s.last(); !written[s.id] && !last.State.Ended() {
			next := *last.Worker
			next.ExpiresAt = max(next.ExpiresAt.Add(c.changes.Grace), c.at.Add(next.Spec.TTL.D()))
			s.versions = append(s.versions, version{Worker: &next, c: c, grace: true})
		}
	}
}

func (s *shift) last() version { return s.versions[len(s.versions)-1] }

// before is the session as it was before a commit; false if it was not there.
func (s *shift) before(c *commit) (version, bool) {
	i, _ := slices.BinarySearchFunc(s.versions, c.n, func(v version, n int) int { return cmp.Compare(v.c.n, n) })
	if i == 0 {
		return version{}, false
	}
	return s.versions[i-1], true
}

// before is the execution as it was before a commit; false if it was not there.
func (s *story) before(c *commit) (row, bool) {
	i, _ := slices.BinarySearchFunc(s.rows, c.n, func(r row, n int) int { return cmp.Compare(r.c.n, n) })
	if i == 0 {
		return row{}, false
	}
	return s.rows[i-1], true
}

// at is the execution as a commit left it, or one before it.
func (s *story) at(c *commit) (row, bool) {
	i, _ := slices.BinarySearchFunc(s.rows, c.n+1, func(r row, n int) int { return cmp.Compare(r.c.n, n) })
	if i == 0 {
		return row{}, false
	}
	return s.rows[i-1], true
}

func (s *story) last() row { return s.rows[len(s.rows)-1] }

// tell puts the events in order.
func (s *story) tell() {
	put := func(e event) { s.events = append(s.events, e) }
	put(event{seq: 1, c: s.rows[0].c, kind: "submitted"})
	for _, a := range s.runs {
		if a.ScheduledSeq != 0 {
			put(event{seq: a.ScheduledSeq, c: a.began, kind: "scheduled"})
		}
		if a.StartedSeq != 0 {
			put(event{seq: a.StartedSeq, c: a.began, kind: "started", start: a})
		}
	}
	named := make(map[int64]bool) // ends that an action names
	for _, d := range s.deeds {
		e := event{seq: d.Seq, c: d.c, kind: d.Kind, deed: d, final: d.Final}
		if d.Token != 0 {
			named[d.Seq] = true
			e.end = s.byToken[d.Token]
		}
		put(e)
	}
	for _, a := range s.runs {
		if a.EndedSeq != 0 && !named[a.EndedSeq] {
			e := event{seq: a.EndedSeq, c: a.ended, kind: a.Outcome.String(), end: a, final: a.Final}
			if !a.Op.IsZero() {
				e.token = a.Token
			}
			put(e)
		}
	}
	for _, k := range s.saved {
		put(event{seq: k.Seq, c: k.c, kind: k.Kind.String(), saved: k, token: k.Token})
	}
	for _, k := range s.signals {
		kind := "signal"
		if !k.Child.IsZero() {
			kind = "child"
		}
		put(event{seq: k.Seq, c: k.c, kind: kind})
	}
	slices.SortStableFunc(s.events, func(a, b event) int { return cmp.Compare(a.seq, b.seq) })
}

// deadline is by when what became due at a moment must have been done. The node
// that wrote the time does it promptly, but for the times at which it could not;
// another one finds out with its next slow poll.
func (b *book) deadline(due time.Duration, c *commit) time.Duration {
	latest := time.Duration(1<<63 - 1)
	for _, n := range b.w.nodes {
		d, within := due, promptly
		if n.name != c.node {
			within += b.w.plan.slowPoll
		}
		for _, t := range b.trouble[n.name] {
			if t.from <= d+within && t.to > d {
				d = t.to
			}
		}
		latest = min(latest, d+within)
	}
	return latest
}

// real is when the store's clock first showed a time.
func (b *book) real(at machine.Time) time.Duration { return b.clockShows(at, b.w.zero) }
