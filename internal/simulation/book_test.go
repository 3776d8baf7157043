package simulation

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// book is the history of a simulation in the form that the checkers need: the rows of each
// execution and of each session, commit by commit.
type book struct {
	*history
	w       *world
	stories []*story
	byID    map[belay.ExecutionID]*story
	shifts  []*shift
	workers map[belay.WorkerID]*shift
	// stale maps a commit to the time from the last mark of life (a time that each engine writes at
	// short intervals) to the commit, if that time was longer than three intervals.
	stale map[*commit]time.Duration
	// healed is the time at which the last fault was over; ended is the time at which all workers
	// and nodes had stopped.
	healed, ended time.Duration
	detected      []time.Duration // for each ended session, the time from its expiry to its end
}

// story has all rows of one execution, commit by commit, and the public history of the execution.
type story struct {
	*promise.Story
	id       belay.ExecutionID
	rows     []row
	runs     []*attempt
	byToken  map[belay.Token]*attempt
	letters  []promise.Letter
	resolved map[int][]*machine.DeadLetter // by generation, the resolutions of its dead letter
	newest   map[int]*machine.DeadLetter   // by generation, the newest row of its dead letter
	specs    []*machine.Spec
	ops      map[belay.OpID][]int64
	wrote    map[int64]*commit // the commit that wrote each seq
	written  *machine.Record
	record   *machine.Record // the record of the execution in the store at the end
}

// row is an execution's row after a commit.
type row struct {
	*machine.Execution
	c *commit
}

type attempt struct {
	machine.Run
	began, ended *commit
}

// shift has all rows of one session (the connection of one worker).
type shift struct {
	id       belay.WorkerID
	versions []version
}

// version is a session's row after a commit.
type version struct {
	*machine.Worker
	c     *commit
	grace bool // a commit extended the session without writing its row
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
		b.publicStory(s)
		if p, gone := w.history.deleted[s.id]; gone {
			s.record, s.Deleted = p.record, true
		} else if r, err := w.store.Read(context.Background(), store.Read{Execution: s.id, Spec: true, History: true,
			Data: true}); err == nil {
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
		s = &story{
			id: id, byToken: make(map[belay.Token]*attempt), resolved: make(map[int][]*machine.DeadLetter),
			newest: make(map[int]*machine.DeadLetter), ops: make(map[belay.OpID][]int64),
			wrote: make(map[int64]*commit), written: &machine.Record{},
		}
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
		s.written.Checkpoints = append(s.written.Checkpoints, k)
		s.put(c, k.Op, k.Seq)
	}
	for _, k := range x.Signals {
		s := b.story(k.Execution)
		s.written.Signals = append(s.written.Signals, k)
		s.put(c, k.Op, k.Seq)
	}
	for _, d := range x.Deeds {
		s := b.story(d.Execution)
		s.written.Deeds = append(s.written.Deeds, d)
		s.put(c, d.Op, d.Seq)
	}
	for _, d := range x.DeadLetters {
		b.story(d.Execution).enterLetter(d, c)
	}
	b.enterWorkers(c)
}

// put notes the commit in which an operation wrote a seq.
func (s *story) put(c *commit, op belay.OpID, seq int64) {
	if seq == 0 {
		return
	}
	if s.wrote[seq] == nil {
		s.wrote[seq] = c
	}
	if !op.IsZero() {
		s.ops[op] = append(s.ops[op], seq)
	}
}

func (s *story) enterRun(r *machine.Run, c *commit) {
	a := s.byToken[r.Token]
	if r.New || a == nil {
		a = &attempt{Run: *r}
		s.runs = append(s.runs, a)
		s.written.Runs = append(s.written.Runs, &a.Run)
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
	s.put(c, belay.OpID{}, a.ScheduledSeq)
	s.put(c, belay.OpID{}, a.StartedSeq)
	if a.StartedSeq != 0 && a.began == nil {
		a.began = c
	}
	if a.EndedSeq != 0 && a.ended == nil {
		a.ended = c
		s.put(c, a.Op, a.EndedSeq)
	}
}

// enterLetter adds a dead letter and the commit that wrote it.
func (s *story) enterLetter(d *machine.DeadLetter, c *commit) {
	if d.New {
		s.letters = append(s.letters, promise.Letter{
			Execution: s.id, Generation: d.Generation, Seq: d.Seq, Token: d.Token, At: c.at.Time(),
		})
	}
	s.newest[d.Generation] = d
	if d.Resolution != "" && !slices.ContainsFunc(s.resolved[d.Generation], func(was *machine.DeadLetter) bool {
		return was.Resolution == d.Resolution && was.ResolvedBy == d.ResolvedBy && was.ResolvedAt == d.ResolvedAt
	}) {
		s.resolved[d.Generation] = append(s.resolved[d.Generation], d)
	}
	for i := range s.letters {
		if s.letters[i].Generation == d.Generation {
			s.letters[i].Resolution = d.Resolution
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

// before returns the session's row before a commit, and false if the session did not exist before
// that commit.
func (s *shift) before(c *commit) (version, bool) {
	i, _ := slices.BinarySearchFunc(s.versions, c.n, func(v version, n int) int { return cmp.Compare(v.c.n, n) })
	if i == 0 {
		return version{}, false
	}
	return s.versions[i-1], true
}

// before returns the execution's row before a commit, and false if the execution did not exist
// before that commit.
func (s *story) before(c *commit) (row, bool) {
	i, _ := slices.BinarySearchFunc(s.rows, c.n, func(r row, n int) int { return cmp.Compare(r.c.n, n) })
	if i == 0 {
		return row{}, false
	}
	return s.rows[i-1], true
}

// at returns the execution's row after a commit, whether or not this commit wrote the row.
func (s *story) at(c *commit) (row, bool) {
	i, _ := slices.BinarySearchFunc(s.rows, c.n+1, func(r row, n int) int { return cmp.Compare(r.c.n, n) })
	if i == 0 {
		return row{}, false
	}
	return s.rows[i-1], true
}

func (s *story) last() row { return s.rows[len(s.rows)-1] }

// publicStory fills in the public part of a story, its promise.Story, from the rows that were
// written.
func (b *book) publicStory(s *story) {
	s.wrote[1] = s.rows[0].c
	s.written.Execution = s.last().Execution
	if n := len(s.specs); n > 0 {
		s.written.Spec = s.specs[n-1]
	}
	s.Story = promise.NewStory(&promise.Tale{
		Execution: machine.View(s.written), Events: machine.Events(s.written, 0, 1<<30),
	})
	s.Letters, s.Ops, s.Gates = s.letters, s.ops, s.rows[0].Gates
	s.When = func(ev *belay.Event) time.Time { return b.w.zero.Add(s.wrote[ev.Seq].real) }
	if len(s.specs) > 0 {
		s.Submitted = s.specs[0].Input
	}
	for _, r := range s.Runs {
		at, _ := s.at(s.wrote[r.Seq])
		r.Base = at.BaseSeq
	}
}

// public returns the history that the public API shows.
func (b *book) public() *promise.History {
	h := &promise.History{Sessions: make(map[belay.WorkerID]*belay.Worker), Told: b.entries(), Seen: b.seen,
		Name: short, Sometimes: b.sometimes, Changed: b.changedGates()}
	for _, s := range b.stories {
		h.Stories = append(h.Stories, s.Story)
	}
	for _, x := range b.shifts {
		v := machine.WorkerView(x.last().Worker)
		h.Sessions[x.id] = &v
	}
	return h
}

// entries returns the calls as their callers saw them, and the effects and sleeps of workflows. It
// leaves out sleeps if the store's clock was set during the simulation.
func (b *book) entries() []promise.Entry {
	var out []promise.Entry
	for _, c := range b.calls {
		begin := promise.Entry{Kind: c.kind, Who: c.actor, At: b.w.zero.Add(c.from)}
		for _, e := range promise.Entries(begin, c.request, c.reply, b.w.zero.Add(c.to), c.err) {
			if c.end == open {
				e.End = promise.Unknown
			}
			out = append(out, e)
		}
	}
	for _, x := range b.steps {
		out = append(out, promise.Entry{
			Kind: "effect", At: b.w.zero.Add(x.real), Execution: x.execution, Token: x.token, Name: x.key,
		})
	}
	if len(b.offsets) == 1 {
		out = append(out, b.slept...)
	}
	return out
}

// deadline returns the time by which a node must have done work that becomes due at the given time.
// The node that set this time, in the commit c, does the work promptly, except while faults prevent
// it. Another node finds the work with its next slow poll.
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

// real converts a time of the store's clock into simulation time: the virtual time, since the
// simulation began, at which the store's clock first showed it.
func (b *book) real(at machine.Time) time.Duration { return b.clockShows(at, b.w.zero) }
