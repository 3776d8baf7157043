package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/internal/run"
)

const (
	// mailboxPause is how long a worker waits before it asks again a server that has no broker.
	mailboxPause = time.Minute
	// cutOff is how long the connection to the broker may be away until the worker closes its mailbox, so that
	// executions that are scheduled to it go to other workers, or come to this worker by claims.
	cutOff = 2 * time.Second
)

// mailboxState is what a worker knows about its mailbox at the server.
type mailboxState uint8

const (
	openMailbox   mailboxState = iota
	unsureMailbox              // the worker has asked to close it, and the server may have done so
	closedMailbox
)

// mailbox receives the messages of a session. A message offers the worker an execution; the worker accepts it at the
// server. Messages are hints: what they say counts only if the server confirms it, and an offer whose message was lost
// comes with the reply to the next heartbeat.
type mailbox struct {
	s *session

	mu      sync.Mutex
	offers  []*offer // that no accept has named yet
	named   map[belay.RunID]*offer
	reached bool          // messages reach the worker
	turned  chan struct{} // closed when reached changes
	wake    chan struct{} // has an element after an offer was added
}

// offer is an execution that is scheduled to the worker.
type offer struct {
	belay.Held
	done chan struct{} // closed when the offer is accepted or out of date
}

func newMailbox(s *session) *mailbox {
	return &mailbox{
		s: s, named: make(map[belay.RunID]*offer), turned: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// serve keeps the mailbox open and accepts offers until ctx ends. A worker without a broker gets no offers by messages,
// and accepts those of heartbeats all the same.
func (m *mailbox) serve(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { m.accepts(ctx) })
	if m.s.w.o.Broker == "" {
		return
	}
	log := m.s.w.o.Log.With("worker", m.s.id)
	said := false
	for delays := retry.NewDelays(m.s.w.o.IDs); ctx.Err() == nil; {
		box, err := m.s.w.b.OpenMailbox(retry.Once(ctx), m.s.id)
		switch {
		case ctx.Err() != nil:
		case belay.CodeOf(err) == belay.CodeLeaseLost:
			m.s.lose(err)
			return
		case err != nil && belay.CodeOf(err) == belay.CodeNotFound:
			if !said {
				log.Warn("the server has no message broker; the worker claims its executions", "error", err)
			}
			said = true
			retry.Sleep(ctx, mailboxPause)
		case err != nil:
			log.Debug("open the mailbox", "error", err)
			delays.Wait(ctx, err)
		default:
			delays.Reset()
			if err := m.receive(ctx, box.Queue); err != nil {
				log.Error("the worker cannot use the message broker; it claims its executions", "error", err)
				for ctx.Err() == nil && m.s.w.b.CloseMailbox(retry.Once(ctx), m.s.id) != nil {
					delays.Wait(ctx, err)
				}
				return
			}
			retry.Sleep(ctx, time.Second)
		}
	}
}

// receive receives messages from a queue until ctx ends, or until the worker was cut off from the broker and can
// reach it again. It opens the mailbox again when the queue is missing.
func (m *mailbox) receive(ctx context.Context, queue string) error {
	ctx, stop := context.WithCancel(ctx)
	o := m.s.w.o
	r, err := broker.NewReceiver(broker.Options{
		URL: o.Broker, Name: o.Name, Prefix: broker.PrefixOf(queue), Log: o.Log.With("worker", m.s.id), Random: o.IDs,
	}, m.s.id, min(2*o.Concurrency, 10_000), m.delivered)
	if err == nil {
		err = r.Follow(queue)
	}
	if err != nil {
		stop()
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer m.turn(false)
	defer stop()
	all.Go(func() { _ = r.Run(ctx) }) // returns nil
	box, opened := openMailbox, time.Now()
	pause, again := time.Second, opened // again: not before then is a missing queue made again
	for ctx.Err() == nil {
		state := r.State().Consume
		missing := state.Err != nil && belay.CodeOf(state.Err) == belay.CodeNotFound
		since := opened
		if state.Since.After(since) {
			since = state.Since
		}
		away := !state.Connected && time.Since(since) >= cutOff
		var timeout <-chan time.Time
		switch {
		case state.Connected && box == openMailbox:
			pause = time.Second
			m.turn(true)
		case away && box != closedMailbox:
			m.turn(false)
			box = unsureMailbox // the call may take effect although its answer is lost
			if m.s.w.b.CloseMailbox(retry.Once(ctx), m.s.id) == nil {
				box = closedMailbox
			}
			if missing { // although it was made: the worker and the server use different brokers
				pause = min(2*pause, mailboxPause)
			}
			again = time.Now().Add(pause)
			timeout = time.After(time.Second)
		case missing && !state.Connected && time.Now().Before(again):
			timeout = time.After(time.Until(again))
		case state.Connected || missing:
			m.turn(false)
			got, err := m.s.w.b.OpenMailbox(retry.Once(ctx), m.s.id)
			if err == nil && got.Queue != queue {
				return nil // such as after a change of the server's configuration
			}
			if err == nil {
				box, opened = openMailbox, time.Now()
			}
			if box == openMailbox && state.Connected {
				continue
			}
			timeout = time.After(time.Second)
		case box == openMailbox:
			timeout = time.After(cutOff)
		}
		select {
		case <-ctx.Done():
		case <-r.Changes():
		case <-timeout:
		}
	}
	return nil
}

// turn notes whether messages reach the worker. When they begin to, a heartbeat brings the offers whose messages
// were lost. When they end, the claim in flight is repeated, for all queues.
func (m *mailbox) turn(reached bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reached == reached {
		return
	}
	m.reached = reached
	close(m.turned)
	m.turned = make(chan struct{})
	if reached {
		m.s.heartbeatSoon()
	}
}

// reach reports whether messages reach the worker, and returns a channel that is closed when that changes.
func (m *mailbox) reach() (bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reached, m.turned
}

// delivered handles a message. It returns nil, so that the message is acknowledged, when the server has decided about
// the offer.
func (m *mailbox) delivered(ctx context.Context, msg broker.Message) error {
	o := m.offer(belay.Held{Execution: msg.Execution, Token: msg.Token})
	if o == nil {
		return nil
	}
	select {
	case <-o.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// offer adds an offer unless the worker has it already. It returns nil if the worker has the run.
func (m *mailbox) offer(h belay.Held) *offer {
	if m.s.find(h) != nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := belay.RunID{Execution: h.Execution, Token: h.Token}
	if o := m.named[id]; o != nil {
		return o
	}
	o := &offer{h, make(chan struct{})}
	m.named[id] = o
	m.offers = append(m.offers, o)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return o
}

// take returns the next offers for an accept, or nil.
func (m *mailbox) take(most int) []*offer {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(len(m.offers), most, belay.MaxOffers)
	some := slices.Clone(m.offers[:n])
	m.offers = slices.Delete(m.offers, 0, n)
	return some
}

// wantsRoom makes the worker report free slots on room if offers wait for a slot, and returns whether they do.
func (m *mailbox) wantsRoom() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	wants := len(m.offers) > 0
	m.s.w.wantsRoom.Store(wants)
	return wants
}

// free returns the number of executions that a claim can win. Offers that are not decided may take slots.
func (s *session) free() int {
	m := s.mailbox
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(0, s.w.free()-len(m.named))
}

// decided notes that the server has decided about offers, or that the worker does not wait for that any more.
func (m *mailbox) decided(offers []*offer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range offers {
		delete(m.named, belay.RunID{Execution: o.Execution, Token: o.Token})
		close(o.done)
	}
	m.s.w.more() // an offer that was out of date takes no slot
}

// accepts accepts offers until ctx ends, one accept at a time, as many as the worker has slots. If every try of an
// accept failed, its offers are accepted one by one: one execution may make every reply that contains it fail.
func (m *mailbox) accepts(ctx context.Context) {
	number := int64(0)
	for {
		some := m.take(m.s.w.free())
		if len(some) == 0 && m.wantsRoom() {
			some = m.take(m.s.w.free()) // a slot may have become free in between
		}
		if len(some) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-m.wake:
			case <-m.s.w.room:
			}
			continue
		}
		number++
		if !m.accept(ctx, number, some) && len(some) > 1 {
			for _, o := range some {
				number++
				m.accept(ctx, number, []*offer{o})
			}
		}
		m.decided(some)
	}
}

// accept accepts offers under a number. It reports false if it gave the number up: then the next heartbeat makes the
// store release the executions that the accept may have begun.
func (m *mailbox) accept(ctx context.Context, number int64, offers []*offer) bool {
	r := belay.AcceptRequest{Worker: m.s.id, Number: number}
	for _, o := range offers {
		r.Offers = append(r.Offers, o.Held)
	}
	delays := retry.NewDelays(m.s.w.o.IDs)
	for refused := 0; ctx.Err() == nil; {
		reply, err := m.once(ctx, r)
		switch {
		case err == nil && ctx.Err() == nil:
			m.s.accepted(number, reply.Assignments)
			return true
		case belay.CodeOf(err) == belay.CodeLeaseLost && err != nil:
			m.s.lose(err)
			return true
		case err != nil && !mayPass(err):
			if refused++; refused >= claimRefusals {
				m.s.w.o.Log.Error("every try of an accept failed; the worker abandons it", "worker", m.s.id,
					"number", number, "offers", len(offers), "error", err)
				m.s.accepted(number, nil)
				m.s.heartbeatSoon()
				return false
			}
		}
		delays.Wait(ctx, err)
	}
	m.s.accepted(number, nil)
	m.s.heartbeatSoon()
	return false
}

func (m *mailbox) once(ctx context.Context, r belay.AcceptRequest) (belay.AcceptReply, error) {
	ctx, cancel := context.WithTimeout(ctx, claimReplyDelay)
	defer cancel()
	return m.s.w.b.Accept(retry.Once(ctx), r)
}

// accepted starts the runs that an accept has begun, and notes that its reply has arrived or that the worker does not
// wait for it any more.
func (s *session) accepted(number int64, assignments []belay.Assignment) {
	var runs []*run.Run
	for i := range assignments {
		if l := assignments[i].Lease; s.find(belay.Held{Execution: l.Execution, Token: l.Token}) == nil {
			runs = append(runs, run.New(&s.shared, assignments[i]))
		}
	}
	s.begin(runs, func() { s.acceptSeen = number })
}
