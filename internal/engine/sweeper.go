package engine

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// sweepLimit is how many of each kind one look at the store takes.
const sweepLimit = 500

// sweeper finds what time or a crash has left to do and sends an ordinary
// command for each: it is the reaper, the timers and the tidier in one. It also
// writes the server's mark of life where no batch did.
type sweeper struct {
	engine *Engine
	wake   chan struct{}
	shared bool // with other servers, which look for the same

	mu       sync.Mutex
	next     machine.Time  // when it means to look again
	marked   machine.Time  // the last mark written
	counted  machine.Time  // when the sessions were last looked at for the interval
	marks    int64         // written alone
	promised time.Duration // the beat written with the last mark, which binds
	interval time.Duration // of marks; 0 while no session lives
}

func newSweeper(e *Engine) *sweeper {
	return &sweeper{engine: e, wake: make(chan struct{}, 1), next: math.MaxInt64}
}

// marksPerTTL is how many marks of life fit in the shortest TTL. Three missed
// ones must be fewer than a session has to spare between its heartbeat and its
// end, so that every stall that could end a session is seen as one.
const marksPerTTL = 5

// beat is how often this server means to write its mark. A session that the
// batch opens binds it, and so does what another server has promised since this
// one has looked at the sessions: it may know of one with a shorter TTL.
func (s *sweeper) beat(b *batch) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	beat := s.interval
	if beat == 0 {
		beat = belay.DefaultTTL.D() / marksPerTTL
	}
	for _, w := range b.changes.Workers {
		if w.New {
			beat = min(beat, w.Spec.TTL.D()/marksPerTTL)
		}
	}
	if r := b.rows; r.Beat != 0 && r.Beat < beat && r.Mark > s.counted {
		beat = r.Beat
		if r.Now > s.counted.Add(time.Second) {
			s.nudge()
		}
	}
	return beat
}

// nudge wakes the sweeper.
func (s *sweeper) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// heed takes what another server says.
func (s *sweeper) heed(h store.Hint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Lost || h.Look != 0 && h.Look < s.next {
		s.nudge()
	}
}

// look has the store looked at again.
func (s *sweeper) look() { s.nudge() }

// run sweeps until ctx ends, first of all when the engine starts.
func (s *sweeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		s.next = math.MaxInt64 // whatever a batch names from here on is sooner
		s.mu.Unlock()
		s.engine.mourner.bury(ctx)
		s.engine.committer.life.sweeping()
		at, done := s.sweep(ctx)
		if done {
			s.engine.committer.life.swept(at.Sub(s.engine.store.Now()))
		}
		s.mu.Lock()
		s.next = at
		s.mu.Unlock()
		if !s.rest(ctx, at) {
			return
		}
	}
}

// apart is how far servers on one store are apart at most that wake for the same.
const apart = 50 * time.Millisecond

// rest waits until the moment comes or something wakes the sweeper.
func (s *sweeper) rest(ctx context.Context, until machine.Time) bool {
	wait := max(until.Sub(s.engine.store.Now()), time.Millisecond)
	if s.shared && wait > time.Millisecond { // whoever comes first leaves the others nothing to do
		wait += time.Duration(s.engine.opt.Jitter() * float64(apart))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
	case <-s.wake:
	}
	return true
}

// sweep does what is due and answers when to look again, and whether all could be done.
func (s *sweeper) sweep(ctx context.Context) (again machine.Time, done bool) {
	now := s.engine.store.Now()
	retry := now.Add(200 * time.Millisecond)
	due, err := s.engine.store.Due(ctx, sweepLimit)
	if err != nil {
		if ctx.Err() == nil && s.engine.troubled.begin() {
			s.engine.log.Warn("look for what is due", "error", err)
		}
		return retry, false
	}
	s.engine.troubled.end()
	s.mu.Lock()
	s.interval, s.counted = due.MinTTL/marksPerTTL, now
	s.mu.Unlock()
	s.engine.committer.life.beats(due.MinTTL / marksPerTTL)
	commands := s.commands(due)
	if n, ok, away := s.send(ctx, commands); n > 0 {
		if ok == n {
			return s.engine.store.Now(), true // there may be more, and what was done may have left more
		}
		return retry, !away
	}
	at := s.engine.store.Now().Add(s.engine.opt.SlowPoll)
	for _, t := range []machine.Time{due.NextWorker, due.NextCheck} {
		if t != 0 {
			at = min(at, t)
		}
	}
	if due.MinTTL > 0 {
		at = min(at, s.mark(ctx))
	}
	if s.engine.committer.life.isFailing() {
		at = min(at, s.try(ctx))
	}
	return min(at, s.engine.mourner.next()), true
}

func (s *sweeper) commands(due store.Due) []machine.Command {
	var out []machine.Command
	for _, id := range due.Workers {
		// What was received before its time was over counts, wherever it stands.
		if s.engine.committer.inHand(id) == nil {
			out = append(out, &machine.Expire{Worker: id})
		}
	}
	out = append(out, losses(due.Lost)...)
	for _, id := range due.Checks {
		out = append(out, &machine.Tick{Execution: id, Jitter: s.engine.opt.Jitter()})
	}
	for _, id := range due.Children {
		out = append(out, &machine.CancelChild{Execution: id})
	}
	for i := range due.Parted {
		out = append(out, &due.Parted[i])
	}
	return out
}

// losses are the commands that take back what sessions have left. Each says what else its
// session has left.
func losses(lost []store.Lost) []machine.Command {
	type left struct {
		all, suspects int
		newest        machine.Time // begin of a suspect's run
	}
	of := make(map[belay.WorkerID]left)
	for i := range lost {
		l := &lost[i]
		s := of[l.Worker]
		if s.all++; machine.Suspect(l.Losses) {
			s.suspects, s.newest = s.suspects+1, max(s.newest, l.RunAt)
		}
		of[l.Worker] = s
	}
	var out []machine.Command
	for i := range lost {
		l := &lost[i]
		s := of[l.Worker]
		if machine.Suspect(l.Losses) {
			s.suspects--
		}
		l.Beside, l.Newest, l.Together = s.suspects > 0, l.RunAt >= s.newest, s.all > 1
		out = append(out, &l.Lose)
	}
	return out
}

// send commits the commands together and answers how many there were and how
// many passed, and whether the store was away. A refusal means that the moment has passed: a heartbeat came in
// time, or somebody else was quicker.
func (s *sweeper) send(ctx context.Context, commands []machine.Command) (sent, passed int, away bool) {
	calls := make([]*call, len(commands))
	for i, c := range commands {
		calls[i] = newCall(c)
	}
	s.engine.committer.sendAll(calls...)
	for _, k := range calls {
		_, err := s.engine.await(ctx, k)
		if err == nil {
			passed++
		}
		away = away || belay.CodeOf(err) == belay.CodeUnavailable && !errors.Is(err, store.ErrBusy)
	}
	return len(calls), passed, away
}

// mark writes the mark of life if no batch did for a beat, and answers when the
// next one is due.
func (s *sweeper) mark(ctx context.Context) machine.Time {
	s.mu.Lock()
	last, interval := s.marked, s.interval
	if s.promised > 0 {
		interval = min(interval, s.promised)
	}
	s.mu.Unlock()
	now := s.engine.store.Now()
	if at := last.Add(interval); at > now {
		return at
	}
	if _, err := s.engine.do(ctx, &machine.Mark{}); err != nil {
		if ctx.Err() == nil && belay.CodeOf(err) != belay.CodeUnavailable {
			s.engine.log.Warn("write the mark of life", "error", err)
		}
		return now.Add(interval / 4)
	}
	s.mu.Lock()
	s.marked = now
	s.marks++
	s.mu.Unlock()
	return now.Add(interval)
}

// tryAgain is how soon a store that did not take a write is asked again.
const tryAgain = 2 * time.Second

// try writes a mark where the store did not take the newest write, so that somebody
// finds out when it takes writes again, whether anybody else asks for one or not.
func (s *sweeper) try(ctx context.Context) machine.Time {
	_, _ = s.engine.do(ctx, &machine.Mark{}) // the committer sees what becomes of it
	return s.engine.store.Now().Add(tryAgain)
}

// observe notes what a batch says about the next moment to look.
func (s *sweeper) observe(b *batch) {
	c := b.changes
	if c.Empty() {
		return
	}
	now := s.engine.store.Now() // a store may hold its clock while it asks for the beat
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Vital() {
		s.marked, s.promised = max(s.marked, b.rows.Now), c.Beat
	}
	sooner := false
	late := s.next < now // the clock was set, and the timer does not know
	at := func(t machine.Time) { sooner = sooner || t != 0 && (t < s.next || late) }
	for _, w := range c.Workers {
		switch {
		case w.State.Ended():
			at(now)
		case w.New:
			at(min(w.ExpiresAt, now.Add(w.Spec.TTL.D()/marksPerTTL)))
		}
	}
	for _, e := range c.Executions {
		at(e.CheckAt)
		if e.Parting() != 0 {
			at(now)
		}
	}
	if sooner {
		s.nudge()
	}
}
