package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/jackc/pgx/v5/pgconn"
)

// pace is the shortest time between two sends of hints (messages about commits), because the commit
// of a notification takes a lock that the whole database shares.
const pace = 5 * time.Millisecond

// resend is the pause after a send that failed.
const resend = time.Second

const (
	// listening is the application name of a listening connection.
	listening = "belay hints"

	// lookout is how often a server looks at the listening connections of the others, and againAfter is
	// the time until the second look after the end of such a connection.
	lookout    = 2 * time.Second
	againAfter = 500 * time.Millisecond

	fromListeners = `
FROM pg_stat_activity
WHERE application_name = '` + listening + `' AND datname = current_database() AND pid <> $1::bigint`
	countListeners  = `SELECT count(*)` + fromListeners
	selectListeners = `SELECT pid::bigint, (extract(epoch FROM backend_start) * 1000000)::bigint` + fromListeners
	notify          = "SELECT pg_notify('belay', unnest($1::text[]))"
	notifyStates    = "SELECT pg_notify('" + statesChannel + "', unnest($1::text[]))"
)

// outbox collects the hints (messages about commits) for other servers while Listen runs.
type outbox struct {
	mu      sync.Mutex
	on      bool
	waiting outgoing
	states  stateOutbox
	wake    chan struct{}
	pid     uint32    // process of the listening connection
	others  bool      // another server listens
	asked   time.Time // when others was last checked
	heard   int       // number of messages of other servers
}

// add adds the hints of a commit.
func (n *outbox) add(rows *machine.Rows, c *machine.Changes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.on {
		return
	}
	n.waiting.note(rows, c)
	n.states.add(rows, c)
	if !n.waiting.empty() {
		n.nudgeLocked()
	}
}

func (n *outbox) nudgeLocked() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns the collected hints and the messages about states, and removes them.
func (n *outbox) take(server [16]byte) (t outgoing, states []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t = n.waiting
	n.waiting = outgoing{}
	return t, n.states.take(server)
}

func (n *outbox) start() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.on, n.wake = true, make(chan struct{}, 1)
	return n.wake
}

func (n *outbox) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.on, n.waiting, n.states = false, outgoing{}, stateOutbox{want: n.states.want}
}

// hear notes that another server has sent a message, so that it listens.
func (n *outbox) hear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard++
	n.others, n.asked = true, time.Now()
}

// saw notes whether a query has found another server that listens. If another server was heard since
// the query began, at which heard was n.heard, the query may have been too early to find it.
func (n *outbox) saw(others bool, heard int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	others = others || n.heard != heard
	n.others, n.asked = others, time.Now()
	return others
}

func (n *outbox) hasHeard() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.heard
}

// hasOthers reports whether another server listened when that was last checked.
func (n *outbox) hasOthers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.others
}

// Listen implements store.Hinter. Each time it connects, it reports that hints were lost.
func (s *Store) Listen(ctx context.Context, onHint func(store.Hint)) error {
	wake := s.outbox.start()
	defer s.outbox.stop()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.send(ctx, wake) })
	defer wg.Wait()
	defer cancel()
	for wait := time.Duration(0); ; {
		began := time.Now()
		err := s.listen(ctx, onHint)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		onHint(store.Hint{Down: true})
		if err := s.usable(); err != nil {
			return err
		}
		if err := classify("listen", err); belay.CodeOf(err) != belay.CodeUnavailable {
			return err
		}
		if wait = min(2*wait+100*time.Millisecond, 2*time.Second); time.Since(began) > 10*time.Second {
			wait = 0
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// listen receives notifications until its connection ends.
func (s *Store) listen(ctx context.Context, onHint func(store.Hint)) error {
	config := s.config.Copy()
	config.RuntimeParams["application_name"] = listening
	var received []*pgconn.Notification
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { received = append(received, n) }
	c, err := connectAs(ctx, config, s.want)
	if err != nil {
		return err
	}
	defer c.close()
	s.outbox.mu.Lock()
	s.outbox.pid = c.backend
	s.outbox.mu.Unlock()
	for _, channel := range []string{"belay", statesChannel} {
		if err := c.ask(ctx, s.options.Patience, "LISTEN "+channel); err != nil {
			return err
		}
	}
	if err := c.ask(ctx, s.options.Patience, notify, (&outgoing{}).payloads(s.options.Server)...); err != nil {
		return err // other servers send hints from now on, because they receive this first notification
	}
	s.pass(store.Hint{Lost: true}, onHint)
	from := newSenders(&s.outbox)
	s.outbox.ask(stateAsk)
	watch := peers{conn: c}
	for {
		rest := 3 * s.options.Patience
		if s.outbox.hasOthers() {
			rest = min(rest, watch.next())
		}
		wait, cancel := context.WithTimeout(ctx, rest)
		err := c.pg.WaitForNotification(wait)
		quiet := err != nil && wait.Err() != nil && ctx.Err() == nil && !c.pg.IsClosed()
		cancel()
		missed := false
		if quiet || err == nil && s.outbox.hasOthers() && time.Since(watch.looked) >= watch.next() {
			// This query also finds a broken connection, on which no notification would ever arrive.
			heard := s.outbox.hasHeard()
			if missed, err = watch.look(ctx, s.options.Patience); err == nil && len(received) == 0 {
				s.outbox.saw(len(watch.known) > 0 || watch.again, heard)
			}
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errLost, err)
		}
		for _, n := range received {
			if n.Channel == statesChannel {
				s.receiveStates(n.Payload, from, onHint)
			} else {
				s.receive(n.Payload, from, onHint)
			}
		}
		received = received[:0]
		if missed {
			s.pass(store.Hint{Lost: true}, onHint)
		}
	}
}

// peers are the listening connections of the other servers. A server whose process ends sends no
// hints about its last commits, and its connection disappears.
type peers struct {
	conn   *conn
	known  map[peer]struct{} // the connections that the last look found
	looked time.Time         // when the last look ended
	again  bool              // the last look missed a connection, so the next look reports a loss too
}

// peer is one listening connection: its process in the database, and the time at which it began.
type peer struct{ pid, began int64 }

// next returns the time from one look to the next.
func (p *peers) next() time.Duration {
	if p.again {
		return againAfter
	}
	return lookout
}

// look reports whether hints may have been lost because a connection has disappeared since the last
// look. The next look reports the same once more, because the database may still have been carrying
// out a commit of the server that ended.
func (p *peers) look(ctx context.Context, patience time.Duration) (missed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	found := make(map[peer]struct{})
	q := p.conn.pipe()
	q.add(selectListeners, func(r columns) error {
		found[peer{r.int(0), r.int(1)}] = struct{}{}
		return nil
	}).int(int64(p.conn.backend))
	if err := q.run(ctx); err != nil {
		return false, err
	}
	gone := false
	for x := range p.known {
		if _, there := found[x]; !there {
			gone = true
		}
	}
	missed = gone || p.again
	p.known, p.looked, p.again = found, time.Now(), gone
	return missed, nil
}

// receive passes the hint of a notification on, unless this server has sent the notification.
func (s *Store) receive(text string, from *senders, onHint func(store.Hint)) {
	server, h, err := parseHint(text)
	switch {
	case err != nil:
		h = store.Hint{Lost: true} // a server with a newer version of the payload has sent the notification
	case server == s.options.Server:
		return
	}
	s.outbox.hear()
	h.StatesLost = err == nil && from.missing(server, h)
	if h.Lost || h.Objects || h.Look != 0 || h.AnyLane != 0 || h.AnyWorker || !h.Ended.None() || !h.Changed.None() ||
		len(h.Lanes)+len(h.Workers) > 0 {
		s.pass(h, onHint)
	}
}

// receiveStates passes the changes of a message on, unless this server has sent the message.
func (s *Store) receiveStates(text string, from *senders, onHint func(store.Hint)) {
	server, kind, all, err := parseStates(text)
	h := store.Hint{StatesLost: true} // a server with a newer version of the message has sent it
	switch {
	case err != nil:
	case server == s.options.Server:
		return
	default:
		s.outbox.hear()
		h = from.receive(server, kind, all)
	}
	if h.StatesLost || len(h.States) > 0 {
		onHint(h)
	}
}

// pass first makes this store's next searches begin early enough in the indexes (see floors and
// front), and then passes the hint on. The order matters, because a claim that the hint wakes must
// find the executions that the hint names.
func (s *Store) pass(h store.Hint, onHint func(store.Hint)) {
	s.floors.onHint(h)
	s.front.onHint(h)
	onHint(h)
}

// ask runs one statement. If there are args, the statement gets them as one array of texts.
func (c *conn) ask(ctx context.Context, patience time.Duration, text string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p := c.pipe()
	s := p.add(text, nil)
	if len(args) > 0 {
		texts(s, args, func(a string) string { return a })
	}
	return p.run(ctx)
}

// send sends the collected hints and changes of states while another server listens.
func (s *Store) send(ctx context.Context, wake <-chan struct{}) {
	renew := time.NewTicker(stateRenewal)
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-renew.C:
			s.outbox.ask(stateWant)
			continue
		}
		t, states := s.outbox.take(s.options.Server)
		pause := pace
		if !t.empty() || len(states) > 0 {
			switch {
			case !s.hasListeners(ctx):
				s.outbox.unsent(len(states) > 0)
			case s.notify(ctx, &t, states) != nil:
				s.outbox.failed()
				pause = resend
			}
		}
		rest := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

// notify sends messages in one transaction: the changes of states before the hints about the same
// commits.
func (s *Store) notify(ctx context.Context, t *outgoing, states []string) error {
	return s.read(ctx, func(ctx context.Context, c *conn) error {
		ctx, cancel := context.WithTimeout(ctx, s.options.Patience)
		defer cancel()
		same := func(text string) string { return text }
		p := c.pipe()
		if len(states) > 0 {
			texts(p.add(notifyStates, nil), states, same)
		}
		if !t.empty() {
			texts(p.add(notify, nil), t.payloads(s.options.Server), same)
		}
		return p.run(ctx)
	})
}

// failed notes that messages were lost; the next message to the other servers says so.
func (n *outbox) failed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting.lost = true
	n.states.failed()
	n.nudgeLocked()
}

// unsent notes that messages were not sent because no other server listens.
func (n *outbox) unsent(states bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if states {
		n.states.unsent()
	}
}

// hasListeners reports whether another server listens. The answer may be a second old.
func (s *Store) hasListeners(ctx context.Context) bool {
	s.outbox.mu.Lock()
	others, asked, pid, heard := s.outbox.others, s.outbox.asked, s.outbox.pid, s.outbox.heard
	s.outbox.mu.Unlock()
	if time.Since(asked) < time.Second {
		return others
	}
	err := s.query(store.Urgent(ctx), func(p *pipe) {
		p.add(countListeners, func(r columns) error {
			others = r.int(0) > 0
			return nil
		}).int(int64(pid))
	})
	if err != nil {
		return true // if in doubt, send: a hint without a listener does no harm
	}
	return s.outbox.saw(others, heard)
}
