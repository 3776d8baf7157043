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

// sweepLimit is the largest number of due rows of each kind (sessions, executions and others) that
// the sweeper reads from the store at once.
const sweepLimit = 500

// sweeper finds the sessions and timeouts that are due and the changes that a crash left
// unfinished, and sends an ordinary command for each. It also writes the engine's mark of life (a
// time that shows that the engine runs) when no batch has done so.
type sweeper struct {
	engine *Engine
	wake   chan struct{}
	shared bool // several servers use the store, and each sweeps

	understaffed understaffed

	mu       sync.Mutex
	next     machine.Time  // time of the next planned sweep
	marked   machine.Time  // time of the last mark that was written
	counted  machine.Time  // when the sessions were last read to compute the interval of the marks
	marks    int64         // marks that were written without another command
	promised time.Duration // the interval that this engine wrote with its last mark and must keep
	interval time.Duration // the interval between two marks; 0 while no session is open
}

func newSweeper(e *Engine) *sweeper {
	return &sweeper{engine: e, wake: make(chan struct{}, 1), next: math.MaxInt64,
		understaffed: understaffed{engine: e}}
}

// marksPerTTL is the number of marks of life (times that show that a server can write) in the
// shortest TTL. A stall of all servers counts as an outage after three missed marks, which take 3/5
// of the TTL. With the default heartbeat interval, a third of the TTL, at least 2/3 of the TTL is
// left of a live session. So every stall that could end a live session counts as an outage.
const marksPerTTL = 5

// beat is the interval at which this server promises to write its mark of life. A session with a
// short TTL that the batch opens shortens the interval. So does a shorter interval that another
// server has written since this server last read the sessions, because the other server may know a
// session with a shorter TTL.
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

// onHint wakes the sweeper if another server has reported work that is due before the planned
// sweep.
func (s *sweeper) onHint(h store.Hint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Lost || h.Look != 0 && h.Look < s.next {
		s.nudge()
	}
}

// look makes the sweeper sweep now.
func (s *sweeper) look() { s.nudge() }

// run sweeps until ctx ends. The first sweep is at the start of the engine.
func (s *sweeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		s.next = math.MaxInt64 // so that any time at which a batch makes work due wakes the sweeper
		s.mu.Unlock()
		s.engine.committer.health.sweeping()
		at, done := s.sweep(ctx)
		if done {
			s.engine.committer.health.swept(at.Sub(s.engine.store.Now()))
		}
		s.mu.Lock()
		s.next = at
		s.mu.Unlock()
		if !s.rest(ctx, at) {
			return
		}
	}
}

// spread is the largest random delay that a server adds to a planned sweep. Servers on one store
// wake at different times, so the first server to wake usually does the work for all.
const spread = 50 * time.Millisecond

// rest waits until the given time or until something wakes the sweeper. It reports false if ctx
// ends first.
func (s *sweeper) rest(ctx context.Context, until machine.Time) bool {
	wait := max(until.Sub(s.engine.store.Now()), time.Millisecond)
	if s.shared && wait > time.Millisecond { // the first server to wake does the work for all servers
		wait += time.Duration(s.engine.opt.Jitter() * float64(spread))
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

// sweep sends the commands for all due work. It returns the time of the next sweep, and whether all
// commands could be carried out.
func (s *sweeper) sweep(ctx context.Context) (again machine.Time, done bool) {
	now := s.engine.store.Now()
	retry := now.Add(200 * time.Millisecond)
	due, err := s.engine.store.Due(ctx, sweepLimit)
	if err != nil {
		if ctx.Err() == nil && s.engine.outage.begin() {
			s.engine.log.Warn("look for what is due", "error", err)
		}
		return retry, false
	}
	s.engine.outage.end()
	s.mu.Lock()
	s.interval, s.counted = due.MinTTL/marksPerTTL, now
	s.mu.Unlock()
	s.engine.committer.health.beats(due.MinTTL / marksPerTTL)
	commands := s.commands(due)
	alone, err := s.understaffed.look(ctx, now)
	if err != nil {
		return retry, false
	}
	commands = append(commands, alone...)
	s.engine.firing.offer(due.Objects)
	s.engine.alerter.offer(due.Objects)
	if n, ok, away := s.send(ctx, commands); n > 0 {
		if ok == n {
			return s.engine.store.Now(), true // the store may have more due work, which these commands may have caused
		}
		return retry, !away
	}
	at := s.engine.store.Now().Add(s.engine.opt.SlowPoll)
	for _, t := range []machine.Time{due.NextWorker, due.NextCheck, due.NextObject, s.understaffed.next()} {
		if t != 0 {
			at = min(at, t)
		}
	}
	if due.MinTTL > 0 {
		at = min(at, s.mark(ctx))
	}
	if s.engine.committer.health.isFailing() {
		at = min(at, s.probe(ctx))
	}
	return at, true
}

func (s *sweeper) commands(due store.Due) []machine.Command {
	var out []machine.Command
	for _, id := range due.Workers {
		// A heartbeat counts if it was received before the session's time was over, even if it is
		// not written yet.
		if s.engine.committer.pendingBeat(id) == nil {
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
	for _, id := range due.Unspent {
		out = append(out, &machine.Unspend{Execution: id})
	}
	for i := range due.Parted {
		out = append(out, &due.Parted[i])
	}
	for _, o := range due.Objects {
		if o.Kind == machine.GateObject {
			out = append(out, &machine.Admit{Gate: belay.GateID(o.Name), Heads: machine.MaxHeads})
		}
	}
	return out
}

// losses returns the commands that take back the executions of ended sessions. Each command says
// which other executions its session has lost.
func losses(lost []store.Lost) []machine.Command {
	type left struct {
		all, suspects int
		newest        machine.Time // start of the newest run of a suspect
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

// send commits the commands together. It returns the number of commands, the number of accepted
// commands, and whether the store was unavailable. A refused command is no error: a heartbeat
// arrived in time, or another server sent the same command earlier.
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

// mark writes the mark of life (the present time, which shows that this server runs) if no batch
// has written it in the last interval, and returns the time at which the next mark is due.
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

// probeEvery is how soon the engine tries a write again after the store refused a write.
const probeEvery = 2 * time.Second

// probe writes a mark of life (the present time) after the store has refused the newest write, so
// that the engine notices that the store accepts writes again even if no other command arrives.
func (s *sweeper) probe(ctx context.Context) machine.Time {
	_, _ = s.engine.do(ctx, &machine.Mark{}) // the committer records the result
	return s.engine.store.Now().Add(probeEvery)
}

// pausedForRoot reports whether a spent budget of its root has paused the execution, or is about to. A
// batch may have read the budget shortly before another server raised it, and the sweep after the raise
// did not see this batch.
func pausedForRoot(e *machine.Execution) bool {
	return !e.SpentBy.IsZero() && e.SpentBy != e.ID && (e.State == belay.Paused || e.Attention)
}

// observe notes the next due time that follows from a batch.
func (s *sweeper) observe(b *batch) {
	c := b.changes
	if c.Empty() {
		return
	}
	now := s.engine.store.Now() // before the lock: a store may lock its clock while it calls beat
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Vital() {
		s.marked, s.promised = max(s.marked, b.rows.Now), c.Beat
	}
	sooner := false
	late := s.next < now // whether the clock was set forwards, so that the sweeper's timer is late
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
		if e.Parting() != 0 || e.Budget != 0 && e.State.Terminal() || pausedForRoot(e) {
			at(now)
		}
	}
	for _, d := range c.Deeds {
		if d.Kind == string(belay.ActionBudget) { // descendants may have to be resumed
			at(now)
		}
	}
	for _, o := range c.Objects {
		at(o.NextAt)
	}
	at(s.understaffed.observe(b))
	if sooner {
		s.nudge()
	}
}
