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

// pace is how often at most hints are sent: a notification takes a lock at its
// commit that all of the database share.
const pace = 5 * time.Millisecond

const (
	// listening is the name under which a listening connection is known.
	listening = "belay hints"

	selectListeners = `
SELECT count(*)
FROM pg_stat_activity
WHERE application_name = '` + listening + `' AND datname = current_database() AND pid <> $1::bigint`
	notify = "SELECT pg_notify('belay', unnest($1::text[]))"
)

// news gathers what other servers should know of, while Listen runs.
type news struct {
	mu      sync.Mutex
	on      bool
	waiting telling
	wake    chan struct{}
	pid     uint32    // of the connection that listens
	others  bool      // somebody else listens
	asked   time.Time // when that was last looked at
}

// tell notes what a commit did.
func (n *news) tell(rows *machine.Rows, c *machine.Changes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.on {
		return
	}
	n.waiting.note(rows, c)
	if n.waiting.empty() {
		return
	}
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take gives what is waiting to be told.
func (n *news) take() telling {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.waiting
	n.waiting = telling{}
	return t
}

func (n *news) start() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.on, n.wake = true, make(chan struct{}, 1)
	return n.wake
}

func (n *news) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.on, n.waiting = false, telling{}
}

// heard notes that another server is there.
func (n *news) heard() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.others, n.asked = true, time.Now()
}

// Listen implements store.Hinter. When it connects, again or for the first time, it
// says that hints were lost.
func (s *Store) Listen(ctx context.Context, heed func(store.Hint)) error {
	wake := s.news.start()
	defer s.news.stop()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.send(ctx, wake) })
	defer wg.Wait()
	defer cancel()
	for wait := time.Duration(0); ; {
		began := time.Now()
		err := s.listen(ctx, heed)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		heed(store.Hint{Down: true})
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

// listen hears notifications until its connection ends.
func (s *Store) listen(ctx context.Context, heed func(store.Hint)) error {
	config := s.config.Copy()
	config.RuntimeParams["application_name"] = listening
	var heard []string
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { heard = append(heard, n.Payload) }
	c, err := connectAs(ctx, config, s.want)
	if err != nil {
		return err
	}
	defer c.close()
	s.news.mu.Lock()
	s.news.pid = c.backend
	s.news.mu.Unlock()
	if err := c.ask(ctx, s.options.Patience, "LISTEN belay"); err != nil {
		return err
	}
	if err := c.ask(ctx, s.options.Patience, notify, (&telling{}).payloads(s.options.Server)...); err != nil {
		return err // others are greeted, so that they tell from now on
	}
	s.pass(store.Hint{Lost: true}, heed)
	for {
		wait, cancel := context.WithTimeout(ctx, 3*s.options.Patience)
		err := c.pg.WaitForNotification(wait)
		quiet := err != nil && wait.Err() != nil && ctx.Err() == nil && !c.pg.IsClosed()
		cancel()
		if quiet { // a connection that says nothing may be none
			err = c.ask(ctx, s.options.Patience, "SELECT 1")
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errLost, err)
		}
		for _, text := range heard {
			s.heed(text, heed)
		}
		heard = heard[:0]
	}
}

// heed passes a notification on, unless it is this server's own.
func (s *Store) heed(text string, heed func(store.Hint)) {
	server, h, err := parseHint(text)
	switch {
	case err != nil:
		h = store.Hint{Lost: true} // of a version to come
	case server == s.options.Server:
		return
	}
	s.news.heard()
	if h.Lost || h.Objects || h.Look != 0 || h.AnyLane != 0 || h.AnyWorker || !h.Ended.None() || !h.Changed.None() ||
		len(h.Lanes)+len(h.Workers) > 0 {
		s.pass(h, heed)
	}
}

// pass passes a hint on, after this store has heeded it: who is woken by it must not
// look above a floor that it lowers.
func (s *Store) pass(h store.Hint, heed func(store.Hint)) {
	s.floors.heed(h)
	s.front.heed(h)
	heed(h)
}

// ask runs one statement; texts, if there are any, are its argument.
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

// send tells what was committed, as long as somebody listens.
func (s *Store) send(ctx context.Context, wake <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		t := s.news.take()
		if s.heeded(ctx) && !t.empty() {
			err := s.read(ctx, func(ctx context.Context, c *conn) error {
				return c.ask(ctx, s.options.Patience, notify, t.payloads(s.options.Server)...)
			})
			if err != nil {
				s.news.failed()
			}
		}
		rest := time.NewTimer(pace)
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

// failed makes the next telling say that one was lost.
func (n *news) failed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting.lost = true
}

// heeded reports whether anybody else listens, as far as that was known a second
// ago.
func (s *Store) heeded(ctx context.Context) bool {
	s.news.mu.Lock()
	others, asked, pid := s.news.others, s.news.asked, s.news.pid
	s.news.mu.Unlock()
	if time.Since(asked) < time.Second {
		return others
	}
	err := s.query(store.Urgent(ctx), func(p *pipe) {
		p.add(selectListeners, func(r columns) error {
			others = r.int(0) > 0
			return nil
		}).int(int64(pid))
	})
	if err != nil {
		return true // rather tell nobody than keep it
	}
	s.news.mu.Lock()
	defer s.news.mu.Unlock()
	s.news.others, s.news.asked = others, time.Now()
	return others
}
