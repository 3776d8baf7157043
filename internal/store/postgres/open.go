package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store"
	"github.com/jackc/pgx/v5/pgconn"
)

// Options say how to open a store. An engine can use the zero Options.
type Options struct {
	// Server identifies this server in the rows with its marks (the times of its commits); zero
	// means a random id.
	Server [16]byte
	// Writers is the number of commits that run at the same time; 0 means 2. More than 2 make the
	// store slower.
	Writers int
	// Readers is the number of reads that run at the same time; 0 means 4.
	Readers int
	// Patience is how long the database may take to answer before its connection counts as lost; 0
	// means 10 s. If a server stops in the middle of a batch, the rows of the batch stay locked for
	// a tenth of Patience.
	Patience time.Duration
	// LongLook is a duration; 0 means 500 ms. If reading the list of ready lanes (groups of
	// executions) takes longer, the store reuses the list for a while. If a search for due work
	// takes longer than a tenth of LongLook, the next searches read only a part of the indexes for
	// a while.
	LongLook time.Duration
	// ReadOnly makes a store that only reads, for example while servers use the database. It writes
	// nothing and runs no migration.
	ReadOnly bool
	// Clock replaces the database's clock in tests. Steady is the clock that measures how much time
	// has passed.
	Clock  func() time.Time
	Steady func() time.Duration
}

func (o Options) withDefaults() Options {
	if o.Server == ([16]byte{}) {
		_, _ = rand.Read(o.Server[:]) // never fails
	}
	if o.Writers <= 0 {
		o.Writers = 2
	}
	if o.Readers <= 0 {
		o.Readers = 4
	}
	if o.Patience <= 0 {
		o.Patience = 10 * time.Second
	}
	if o.LongLook <= 0 {
		o.LongLook = 500 * time.Millisecond
	}
	return o
}

// Store is a store in one PostgreSQL database. Any number of Stores, in several servers, can use
// one database.
type Store struct {
	options   Options
	config    *pgconn.Config
	want      map[string]string // settings of every session
	known     int64             // newest known schema version
	clock     *store.Clock
	seen      store.Seen
	parents   parents
	laneCache laneCache
	walk      store.Walk  // the execution after which the next Prune continues its search
	gates     store.Gates // the gate after which the next Prune continues its search
	floors    floors
	front     front
	outbox    outbox

	writers pool
	pulse   pool // one connection, for commits that keep sessions alive
	readers pool
	vital   pool // connections for reads of the engine and of owners
	probe   pool // one connection, which searches for locks of other transactions

	mu     sync.Mutex
	closed bool
}

var _ store.Store = (*Store)(nil)

// Open opens the database that a URL names, and migrates it if necessary.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	o = o.withDefaults()
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, errURL
	}
	if _, named := config.RuntimeParams["application_name"]; !named {
		config.RuntimeParams["application_name"] = "belay"
	}
	want := maps.Clone(settings)
	maps.DeleteFunc(want, func(name, _ string) bool { _, set := config.RuntimeParams[name]; return set })
	// A server that stopped in the middle of a batch must not keep the rows of the batch locked for
	// ever.
	want["idle_in_transaction_session_timeout"] = strconv.FormatInt(max(1, o.Patience.Milliseconds()/10), 10)
	if err := unshared(ctx, config, want, o.Patience); err != nil {
		return nil, classify("open", err)
	}
	if err := withDatabase(url, func(db *sql.DB) error { return prepare(ctx, db, o) }); err != nil {
		return nil, classify("open", err)
	}
	s, err := newStore(o)
	if err != nil {
		return nil, err
	}
	s.config, s.want = config, want
	s.writers, s.pulse = newPool(0, o.Writers, true), newPool(o.Writers, 1, true)
	s.readers, s.vital, s.probe = newPool(0, o.Readers, false), newPool(0, vitalReaders, false), newPool(0, 1, false)
	if err := s.start(ctx); err != nil {
		return nil, classify("open", errors.Join(err, s.Close()))
	}
	return s, nil
}

// newStore returns a Store that has no connections.
func newStore(o Options) (*Store, error) {
	all, err := known()
	if err != nil {
		return nil, err
	}
	return &Store{options: o, known: all[len(all)-1].Version, clock: newClock(o)}, nil
}

// prepare brings the schema up to date. With ReadOnly it changes nothing and refuses an old schema.
func prepare(ctx context.Context, db *sql.DB, o Options) error {
	if !o.ReadOnly {
		_, err := migrate(ctx, db)
		return err
	}
	left, err := pending(ctx, db)
	switch {
	case err != nil || len(left) == 0:
	case left[0].Version == 1:
		err = &belay.Error{
			Code: belay.CodeNotFound, Op: "open",
			Message: "there is no Belay data in the database yet; a server makes its tables when it starts",
		}
	default:
		err = &belay.Error{
			Code: belay.CodeUnavailable, Op: "open",
			Message: "the database is older than this Belay; a server of this version brings it up to date when " +
				"it starts",
		}
	}
	return err
}

// start reads the clock for the first time, and checks the identity of the database before anything
// else uses it.
func (s *Store) start(ctx context.Context) error {
	if err := s.query(ctx, s.readTime); err != nil || s.options.ReadOnly {
		return err
	}
	c, err := s.writers.take(ctx)
	if err != nil {
		return err
	}
	defer func() { s.writers <- c }()
	return s.connected(ctx, c)
}

// Close waits for the calls in progress and closes the connections.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	for _, p := range s.pools() {
		p.close()
	}
	return nil
}

// vitalReaders is the number of connections that are reserved for reads of the engine and of the
// owners of executions.
const vitalReaders = 3

func (s *Store) pools() []pool { return []pool{s.readers, s.vital, s.probe, s.writers, s.pulse} }

func (s *Store) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	return nil
}

// pool contains the free slots of a fixed number of connections. A slot connects when it is first
// needed.
type pool chan *slot

// slot is the place of one connection in a pool. It outlives the connection.
type slot struct {
	*conn
	number int
	writes bool
	period int64 // period of the newest mark
}

// newPool returns a pool of n slots, numbered from first on.
func newPool(first, n int, writes bool) pool {
	p := make(pool, n)
	for i := range n {
		p <- &slot{number: first + i, writes: writes}
	}
	return p
}

// take waits for a free slot. After use, the caller returns the slot by sending it to the pool.
func (p pool) take(ctx context.Context) (*slot, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	select {
	case c := <-p:
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// close ends the connections when they are not in use any more.
func (p pool) close() {
	all := make([]*slot, cap(p))
	for i := range all {
		all[i] = <-p
		all[i].drop()
	}
	for _, c := range all {
		p <- c // the next call that waits for a slot gets this slot, and is refused because the store is closed
	}
}

// drop ends the slot's connection, if it has one.
func (c *slot) drop() {
	if c.conn != nil {
		c.conn.close()
		c.conn = nil
	}
}

// connected connects the slot if it has no connection.
func (s *Store) connected(ctx context.Context, c *slot) error {
	if c.conn != nil && !c.pg.IsClosed() {
		return nil
	}
	c.drop()
	ctx, cancel := context.WithTimeout(ctx, s.options.Patience)
	defer cancel()
	fresh, err := connectAs(ctx, s.config, s.want)
	if err != nil {
		return err
	}
	if c.writes {
		begun, err := fresh.identify(ctx)
		if err != nil {
			fresh.close()
			return err
		}
		if begun != 0 {
			s.seen.Begun(begun)
		}
	}
	c.conn = fresh
	return nil
}
