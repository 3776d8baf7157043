package engine

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Courier tells workers, through a broker, which executions are scheduled to them. Carries, Ready and Remove are
// called often, with locks held: they return at once and do not call the engine.
type Courier interface {
	// Carries reports whether executions of the queue are scheduled to workers. The answer never changes.
	Carries(queue string) bool
	// Ready reports whether messages can be sent now.
	Ready() bool
	// Open makes the mailbox of a worker, and returns the name of its queue in the broker.
	Open(ctx context.Context, w belay.WorkerID) (queue string, err error)
	// Send sends a message to the mailbox of a worker. After nil, the message will come back if the worker
	// does not take it.
	Send(ctx context.Context, queue string, a Assigned) error
	// Remove deletes, some time later, the mailbox of a worker whose session has ended.
	Remove(queue string)
}

// Assigned is an execution that is scheduled to a worker under a token.
type Assigned struct {
	Execution belay.ExecutionID
	Token     belay.Token
	Worker    belay.WorkerID
}

const (
	// sending is the largest number of messages on their way.
	sending = 256
	// firstTakers is to how many workers the first round of a pass schedules executions.
	firstTakers = 16
	// idleLook is how often the scheduler looks for a worker while none can take what is due.
	idleLook = time.Second
	// late is how long the broker may take to confirm a message until workers claim, because the broker may hang.
	late = 2 * time.Second
	// firstShun and lastShun are how long a worker gets no messages after one or several messages to it
	// failed. Meanwhile it claims, as if it had no broker.
	firstShun, lastShun = time.Second, time.Minute
)

// scheduler schedules the due executions of queues that the courier carries to workers that it reaches, and
// sends the messages after the commit. It never relies on a message: what a worker does not accept comes back
// by a dead letter, by the end of its session, or by the scheduled timeout.
type scheduler struct {
	engine  *Engine
	courier Courier
	wake    chan struct{}
	slots   chan struct{} // has an element for each message on its way
	sends   sync.WaitGroup

	passes int64 // how often assign ran; only run uses it

	mu        sync.Mutex
	turn      string // the queue of the last execution that was scheduled
	stopped   bool   // no further message is sent
	overdue   int    // messages on their way that are late
	shuns     map[belay.WorkerID]shun
	mailboxes map[belay.WorkerID]string // of sessions that have not ended, as far as this server knows
}

// shun is the time until which a worker gets no messages.
type shun struct {
	until machine.Time
	last  time.Duration
}

func newScheduler(e *Engine, c Courier) *scheduler {
	return &scheduler{
		engine: e, courier: c, wake: make(chan struct{}, 1), slots: make(chan struct{}, sending),
		shuns: make(map[belay.WorkerID]shun), mailboxes: make(map[belay.WorkerID]string),
	}
}

// observe sends the messages about the executions that a batch has scheduled to workers. It wakes the
// scheduler if the batch makes an execution ready, or gives a worker room, and removes the mailboxes of
// sessions that it has ended. (If this server does not know such a mailbox, or ends before it has removed
// the mailbox, the broker removes it after a time without use.)
func (s *scheduler) observe(b *batch) {
	for i, k := range b.calls {
		if k.mailbox == "" {
			continue
		}
		s.nudge() // a worker that the last pass left out, because this command was under way, may have room
		for n := range b.replies[i].Claims {
			e := &b.replies[i].Claims[n].Execution
			s.setTurn(e.Queue)
			s.send(store.Urgent(s.engine.ctx), k.mailbox, Assigned{e.ID, e.Token, e.Worker})
		}
	}
	fleet := false
	for _, w := range b.changes.Workers {
		s.note(w)
		fleet = fleet || w.New || w.HeartbeatAt != b.rows.Now // a heartbeat gives no worker room
	}
	for _, e := range b.changes.Executions {
		if e.Ready() != 0 && s.courier.Carries(e.Queue) {
			s.nudge()
			return
		}
	}
	ended := func(r *machine.Run) bool { return r.EndedSeq != 0 }
	if fleet || len(b.changes.Objects)+len(b.changes.Places) > 0 ||
		slices.ContainsFunc(b.changes.Runs, ended) {
		s.nudge()
	}
}

// note notes the mailbox of a session, or removes it if the session has ended.
func (s *scheduler) note(w *machine.Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if queue := w.Mailbox(); queue != "" {
		s.mailboxes[w.ID] = queue
		return
	}
	if !w.State.Ended() {
		return // the queue of a closed mailbox stays, since its worker may open it again
	}
	if queue := s.mailboxes[w.ID]; queue != "" {
		s.courier.Remove(queue)
	}
	delete(s.mailboxes, w.ID)
	delete(s.shuns, w.ID)
}

// onHint wakes the scheduler, because another server may have made an execution ready.
func (s *scheduler) onHint(store.Hint) { s.nudge() }

func (s *scheduler) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run schedules what is due until ctx ends.
func (s *scheduler) run(ctx context.Context) {
	defer s.stop()
	for ctx.Err() == nil {
		if settle := s.engine.opt.Settle; settle != nil {
			settle()
			select {
			case <-s.wake:
			default:
			}
		}
		next, err := s.pass(ctx)
		if err != nil && ctx.Err() == nil && s.engine.outage.begin() {
			s.engine.log.Warn("schedule executions to workers", "error", err)
		}
		now := s.engine.store.Now()
		timer := time.NewTimer(max(min(next.Sub(now), s.engine.opt.SlowPoll), time.Millisecond))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.wake:
		}
		timer.Stop()
	}
}

// stop waits for the messages on their way.
func (s *scheduler) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.sends.Wait()
}

// pass schedules what is due, and returns the time of the next pass.
func (s *scheduler) pass(ctx context.Context) (machine.Time, error) {
	for round := 1; ; round = min(2*round, manySlots) {
		now := s.engine.store.Now()
		lanes, next := s.engine.dispatcher.due(now, s.courier.Carries)
		if len(lanes) == 0 {
			return next, nil
		}
		if !s.ready() {
			s.engine.dispatcher.wakeTakers(lanes)
			return now.Add(idleLook), nil
		}
		takers, err := s.takers(ctx, lanes, now)
		if err != nil {
			return now.Add(idleLook), err
		}
		won, err := s.assign(ctx, takers, round)
		if err != nil || won == 0 {
			return min(next, now.Add(idleLook)), err
		}
	}
}

// due returns the lanes of some queues that may have a due execution, highest priority first, and the time at
// which the next of these lanes may have one.
func (d *dispatcher) due(now machine.Time, of func(queue string) bool) ([]*lane, machine.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var due []*lane
	next := machine.Time(math.MaxInt64)
	for _, l := range d.lanes {
		switch {
		case l.hint == 0 || !of(l.Queue):
		case l.hint <= now:
			due = append(due, l)
		default:
			next = min(next, l.hint)
		}
	}
	slices.SortFunc(due, byPriority)
	return due, next
}

// taker is a worker that may take executions, and the lanes from which it may.
type taker struct {
	store.WorkerRow
	lanes []machine.Lane
	rank  int // see failedRuns.rankOf
	free  int

	assigning *call // session.assigning before the free slots were counted
	pending   bool  // session.pending likewise
}

// takers returns the workers to which due executions can be scheduled: those that come first have not just
// failed or lost an execution of these lanes, and use the smallest share of their slots.
func (s *scheduler) takers(ctx context.Context, lanes []*lane, now machine.Time) ([]taker, error) {
	d := s.engine.dispatcher
	before := d.assigning()
	rows, err := s.engine.store.Workers(ctx, store.WorkerQuery{Living: true, Owned: true})
	if err != nil {
		return nil, err
	}
	var all []taker
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, row := range rows {
		t := before[row.ID]
		t.WorkerRow, t.free = row, max(1, row.Spec.Capacity)-row.Running
		if t.free <= 0 || row.Spec.External || !row.State.Claims() || row.Mailbox() == "" || !s.reaches(row.ID, now) {
			continue
		}
		for _, l := range lanes {
			if l.Takes(row.Spec) {
				t.lanes = append(t.lanes, l.Lane)
				t.rank = max(t.rank, d.failed.rankOf(l.ID, row.Spec, now))
			}
		}
		if len(t.lanes) > 0 {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b taker) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank),
			cmp.Compare(a.Running*max(1, b.Spec.Capacity), b.Running*max(1, a.Spec.Capacity)),
			slices.Compare(a.ID[:], b.ID[:]))
	})
	return all, nil
}

// assigning returns, for each session, the last command that schedules executions to its worker.
func (d *dispatcher) assigning() map[belay.WorkerID]taker {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[belay.WorkerID]taker)
	for id, x := range d.sessions {
		if x.assigning != nil {
			all[id] = taker{assigning: x.assigning, pending: x.pending()}
		}
	}
	return all
}

// assign sends a claim for each worker, for a few workers and slots at first, so that little work is spread over
// them, and returns how many executions the claims have won.
func (s *scheduler) assign(ctx context.Context, takers []taker, round int) (won int, err error) {
	s.passes++ // a busy worker takes an execution that must run alone first only in claims with an even number
	calls := s.claimsFor(takers[:min(len(takers), firstTakers*round)], round)
	s.engine.committer.sendAll(calls...)
	for _, k := range calls {
		r, failure := s.engine.await(ctx, k)
		if failure != nil && belay.CodeOf(failure) != belay.CodeLeaseLost { // a session that has ended takes nothing
			err = cmp.Or(err, failure)
		}
		if failure == nil {
			won += len(r.Claims)
		}
	}
	return won, err
}

// claimsFor makes the calls of claims for workers, without those to which other executions were scheduled since their
// free slots were counted.
func (s *scheduler) claimsFor(takers []taker, slots int) []*call {
	d, after := s.engine.dispatcher, s.lastTurn()
	d.mu.Lock()
	defer d.mu.Unlock()
	var calls []*call
	for _, t := range takers {
		x := d.sessions[t.ID]
		if t.pending || x != nil && x.assigning != t.assigning {
			continue
		}
		k := s.claimFor(t.Mailbox(), &machine.Claim{
			ClaimRequest: belay.ClaimRequest{Worker: t.ID, Slots: min(slots, t.free), Number: s.passes},
			Lanes:        t.lanes, Idle: t.Running == 0, After: after,
		})
		if x != nil {
			x.assigning = k
		}
		calls = append(calls, k)
	}
	return calls
}

// pending reports whether a command that schedules executions to the worker of a session has no answer yet.
func (s *session) pending() bool { return s.assigning != nil && !s.assigning.answered.Load() }

func (s *scheduler) lastTurn() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn
}

func (s *scheduler) setTurn(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn = queue
}

// claimFor makes the call of a claim for a worker that gets messages. After its commit, observe sends the messages.
func (s *scheduler) claimFor(mailbox string, c *machine.Claim) *call {
	c.Assign, c.Secrets = true, make([]belay.Secret, c.Slots)
	for n := range c.Secrets {
		s.engine.opt.Random(c.Secrets[n][:])
	}
	k := newCall(c)
	k.mailbox = mailbox
	return k
}

// join returns calls that schedule executions to the workers of parked claims, which are sorted: up to ready
// executions, which the next batch makes ready in the lanes. So these executions need no further commit. The
// caller has locked the dispatcher.
func (s *scheduler) join(claims []*claim, lanes map[*lane]bool, ready int) []*call {
	var joined []*call
	now, after := s.engine.store.Now(), s.lastTurn()
	for i, c := range claims {
		x := c.session
		if x.pending() || c.sent != nil || !s.engine.dispatcher.knowsRuns(x, now) {
			continue // the number of free slots is not known; the next pass counts them
		}
		// Each worker gets its share of what is left, so that the executions are spread over all workers.
		slots := min((ready+len(claims)-i-1)/(len(claims)-i), manySlots, max(1, x.spec.Capacity)-x.running)
		mailbox := s.mailboxOf(x.spec.ID)
		if slots <= 0 || mailbox == "" {
			continue
		}
		r := &machine.Claim{
			ClaimRequest: belay.ClaimRequest{Worker: x.spec.ID, Slots: slots, Number: 1}, Idle: x.running == 0,
			After: after,
		}
		for _, l := range x.lanes {
			if (lanes[l] || c.mayWin(l, now)) && s.courier.Carries(l.Queue) {
				r.Lanes = append(r.Lanes, l.Lane)
			}
		}
		x.assigning = s.claimFor(mailbox, r)
		joined = append(joined, x.assigning)
		ready -= slots
	}
	return joined
}

// mailboxOf returns the mailbox of a session, or "" if this server does not know it.
func (s *scheduler) mailboxOf(w belay.WorkerID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mailboxes[w]
}

// send sends a message in the background. If that fails, the execution is due again, and for a while the
// worker claims instead of getting messages.
func (s *scheduler) send(ctx context.Context, queue string, a Assigned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	late := time.AfterFunc(late, func() { s.delayed(1) })
	s.sends.Go(func() {
		defer func() {
			if !late.Stop() {
				s.delayed(-1)
			}
		}()
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-s.slots }()
		err := s.courier.Send(ctx, queue, a)
		if err == nil {
			s.forgive(a.Worker)
			return
		}
		if ctx.Err() != nil {
			return // the scheduled timeout takes the execution back, or the dead letter does
		}
		s.shun(a.Worker)
		log := s.engine.log.With("execution", a.Execution, "token", a.Token, "worker", a.Worker)
		log.Warn("a message to a worker failed; the worker claims for a while", "error", err)
		err = s.engine.Undeliver(ctx, a.Execution, a.Worker, a.Token, 0)
		if err != nil && belay.CodeOf(err) != belay.CodeConflict && ctx.Err() == nil {
			log.Warn("take back an execution", "error", err)
		}
	})
}

// reaches reports whether messages can be sent, and the worker is not shunned.
func (s *scheduler) reaches(w belay.WorkerID, now machine.Time) bool {
	s.mu.Lock()
	x, shunned := s.shuns[w]
	s.mu.Unlock()
	return (!shunned || x.until <= now) && s.ready()
}

// ready reports whether messages can be sent, and those that are on their way are not late.
func (s *scheduler) ready() bool {
	s.mu.Lock()
	overdue := s.overdue
	s.mu.Unlock()
	return overdue == 0 && s.courier.Ready()
}

// delayed counts a message as late, or not any more, and wakes the scheduler.
func (s *scheduler) delayed(by int) {
	s.mu.Lock()
	s.overdue += by
	s.mu.Unlock()
	s.nudge()
}

func (s *scheduler) shun(w belay.WorkerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.engine.store.Now()
	for id, x := range s.shuns { // forgets workers whose messages failed long ago
		if x.until.Add(lastShun) < now {
			delete(s.shuns, id)
		}
	}
	x := s.shuns[w]
	if x.until > now {
		return // another message failed at the same time
	}
	x.last = min(max(2*x.last, firstShun), lastShun)
	x.until = now.Add(x.last)
	s.shuns[w] = x
}

func (s *scheduler) forgive(w belay.WorkerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.shuns, w)
}

// byMessage reports whether the worker of a claim gets the executions of a lane by messages, so that the claim leaves
// them out. The worker says that messages reach it.
func (d *dispatcher) byMessage(c *claim, l *lane) bool {
	s := d.engine.scheduler
	return s != nil && c.request.Messages && s.courier.Carries(l.Queue) &&
		s.reaches(c.request.Worker, d.engine.store.Now())
}

// wakeTakers wakes the claims that may win executions of the lanes, because no messages can be sent now.
func (d *dispatcher) wakeTakers(lanes []*lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range lanes {
		d.wakeTakersLocked(l)
	}
}
