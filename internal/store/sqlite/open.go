package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
	"modernc.org/sqlite"
)

// Options say how to open a store. An engine can use the zero Options.
type Options struct {
	// Clock returns the time; nil means time.Now. Steady measures how much time has passed, even if
	// the clock is set. If Steady is nil, the store uses the monotonic clock of this machine, or,
	// if Clock is set, the differences of its times.
	Clock  func() time.Time
	Steady func() time.Duration
	// Server identifies this server in the row with the times of its commits.
	Server [16]byte
	// ReadOnly makes a store that only reads, for example while an engine in another process uses
	// the database. It writes nothing and runs no migration.
	ReadOnly bool
	// Readers is the number of reads that run at the same time; 0 means 4.
	Readers int
	// BusyTimeout is how long to wait for another process's lock; 0 means 5 s.
	BusyTimeout time.Duration
}

// leastVersion is the oldest SQLite without a known defect that loses commits in the WAL.
const leastVersion = 3_051_003

// Store is a store in one SQLite database.
type Store struct {
	path    string
	options Options

	writing   chan struct{} // a lock for the fields from writer to walk; its holder has sent a value
	writer    *conn         // nil if read-only
	texts     texts
	cache     cache
	log       log
	gen       generation
	walk      store.Walk  // the execution after which the next Prune continues its search
	gates     store.Gates // the gate after which the next Prune continues its search
	readers   chan *conn  // nil stands for a connection that is not open yet
	vital     chan *conn  // connections for reads of the engine and of owners
	connector driver.Connector

	mu     sync.Mutex
	clock  *store.Clock
	seen   store.Seen
	broken error // the reason for which the store refuses all writes
	closed bool
}

var _ store.Store = (*Store)(nil)

// vitalReaders is the number of connections that are reserved for reads of the engine and of the
// owners of executions.
const vitalReaders = 2

// Open opens the database at path, and creates and migrates it if necessary.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	if o.Clock == nil {
		o.Clock, o.Steady = time.Now, store.Steady()
	}
	if o.Readers <= 0 {
		o.Readers = 4
	}
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 5 * time.Second
	}
	op := "open " + path
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, classify(op, err)
	}
	if strings.ContainsRune(path, 0) {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Op: "open", Message: "the path of the database contains a NUL character",
		}
	}
	if o.ReadOnly {
		if err := o.file(path); err != nil {
			return nil, classify(op, err)
		}
	}
	if !o.ReadOnly {
		// The lock makes other processes wait while one process switches a new database to WAL mode
		// or moves the log for the first time. Without the lock, SQLite would return an error
		// instead of waiting.
		unlock, err := lock(ctx, path+".migrate")
		if err != nil {
			return nil, classify(op, fmt.Errorf("wait for others that open it: %w", err))
		}
		defer unlock()
		if err := firstOf(checkBeforeWriting(ctx, path), o.file(path)); err != nil {
			return nil, classify(op, err)
		}
		if err := migrate(ctx, path, o); err != nil {
			return nil, classify(op, err)
		}
	}
	s := &Store{
		path: path, options: o, clock: store.NewClock(o.Clock, o.Steady), writing: make(chan struct{}, 1),
		readers: make(chan *conn, o.Readers),
		vital:   make(chan *conn, vitalReaders),
		texts: texts{
			updates: make(map[table.Mask]string), inserts: make(map[table.Mask]*insertion),
		}, log: log{limit: logPages},
	}
	s.gen.path = path + generationFile
	s.gen.due.Store(true)
	for range o.Readers {
		s.readers <- nil
	}
	for range vitalReaders {
		s.vital <- nil
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(classify(op, err), s.Close())
	}
	return s, nil
}

// file creates the database file, readable by its owner only, unless it exists. It does not open an
// existing file, because closing that file would drop the locks of SQLite's connections in this
// process.
func (o Options) file(path string) error {
	if o.ReadOnly {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return &belay.Error{Code: belay.CodeNotFound, Op: "open", Message: "there is no database at " + path +
				"; run something first"}
		} else if err != nil {
			return err
		}
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder fsyncs a folder, so that a new name in it survives a power loss.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// start connects, and checks the database.
func (s *Store) start(ctx context.Context) (err error) {
	source := s.options.dsn(s.path, true)
	if s.options.ReadOnly {
		if source, err = readable(ctx, s.path, source); err != nil {
			return err
		}
	}
	if s.connector, err = sqlite.NewConnector(source); err != nil {
		return err
	}
	if !s.options.ReadOnly {
		c, err := sqlite.NewConnector(s.options.dsn(s.path, false))
		if err != nil {
			return err
		}
		if s.writer, err = connect(ctx, c); err != nil {
			return err
		}
		if s.log.mover, err = connect(ctx, c); err != nil {
			return err
		}
		// Commits that a crash left in the log are written to the database again, because the fsync
		// of their pages may have failed before the crash.
		if err := s.writer.query(ctx, "PRAGMA wal_checkpoint(TRUNCATE)", ignore); err != nil {
			return err
		}
	}
	n := recorded(s.path) // reads the file before the database, because an engine writes the database before the file
	return s.read(ctx, func(ctx context.Context, c *conn) error {
		if err := checkLibrary(ctx, c); err != nil {
			return err
		}
		if err := c.checkNumber(ctx, s.path, n); err != nil {
			return err
		}
		if err := checkSchema(ctx, c); err != nil {
			return err
		}
		return c.query(ctx, "SELECT (SELECT max(mark_at) FROM servers), "+selectEpoch+" FROM meta",
			func(r columns) error {
				s.clock.Read(0, machine.Time(r.int(0)))
				s.seen.Epoch(belay.Token(r.int(1)))
				return nil
			})
	})
}

func checkLibrary(ctx context.Context, c *conn) error {
	var text string
	if err := c.query(ctx, "SELECT sqlite_version()", func(r columns) error {
		text = r.text(0)
		return nil
	}); err != nil {
		return err
	}
	var major, minor, patch int
	if _, err := fmt.Sscanf(text, "%d.%d.%d", &major, &minor, &patch); err != nil {
		return fmt.Errorf("read SQLite's version %q: %w", text, err)
	}
	if major*1_000_000+minor*1_000+patch < leastVersion {
		return fmt.Errorf("SQLite is %s; Belay needs 3.51.3 or newer", text)
	}
	return nil
}

// dsn returns the data source with all settings of a connection, because a pragma in a statement
// would change only one connection of a pool.
func (o Options) dsn(path string, reading bool) string {
	q := url.Values{}
	q.Set("_busy_timeout", fmt.Sprint(o.BusyTimeout.Milliseconds()))
	q.Set("_synchronous", "FULL")
	q.Set("_foreign_keys", "off")
	q.Set("_txlock", "immediate")
	if reading {
		q.Set("mode", "ro")
		q.Set("_query_only", "on")
		q.Add("_pragma", "cache_size(-4096)")
	} else {
		q.Set("_journal_mode", "WAL")
		q.Set("_txlock", "immediate")
		q.Add("_pragma", "cache_size(-16384)")
		q.Add("_pragma", "wal_autocheckpoint(0)")
		q.Add("_pragma", "journal_size_limit(67108864)")
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// Close waits for the calls in progress and closes the database. After a failed write it leaves the
// writer's connection open, because closing the connection would write and fsync the log once more.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	var all []error
	for _, pool := range []chan *conn{s.readers, s.vital} {
		for range cap(pool) {
			if c := <-pool; c != nil {
				all = append(all, c.close())
			}
		}
	}
	s.writing <- struct{}{}
	s.log.moving.Wait()
	s.mu.Lock()
	intact := s.broken == nil
	s.mu.Unlock()
	for _, c := range []*conn{s.log.mover, s.writer} {
		if c != nil && intact {
			all = append(all, c.close())
		}
	}
	if intact {
		all = append(all, s.gen.close())
	}
	<-s.writing // the next call that waits for this lock gets it, and is refused because the store is closed
	for range cap(s.readers) {
		s.readers <- nil
	}
	for range cap(s.vital) {
		s.vital <- nil
	}
	return classify("close "+s.path, errors.Join(all...))
}

// usable refuses calls after Close, or after a failed write.
func (s *Store) usable(op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return &belay.Error{Code: belay.CodeUnavailable, Op: op, Message: "the store is closed"}
	case s.broken != nil:
		return broken(op, s.broken)
	}
	return nil
}

// Now implements store.Store with the process's clock. It never goes back, and never shows an
// earlier time than that of any commit that was in the database when the store was opened.
func (s *Store) Now() machine.Time { return s.clock.Now() }

// Vitals implements store.Store.
func (s *Store) Vitals() store.Vitals { return s.seen.Vitals(s.clock) }
