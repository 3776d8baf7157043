package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/internal/socket"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/store/sqlite"
	"github.com/belaydev/belay/internal/uid"
)

// Option changes how Open opens. None is needed.
type Option func(*settings)

type settings struct {
	engine  engine.Options
	purpose string
	// listen serves the socket of a data directory; nil serves none.
	listen func(b *Backend, dir string, set *settings) error
}

// Logger sends what an operator should know to l instead of slog.Default().
func Logger(l *slog.Logger) Option { return func(s *settings) { s.engine.Log = l } }

// Retention is how long an ended execution is kept; below 0 for ever. The
// default is 30 days.
func Retention(d time.Duration) Option { return func(s *settings) { s.engine.Retention = d } }

// Purpose says in one line what this process is, for whoever finds the data
// directory in use.
func Purpose(line string) Option { return func(s *settings) { s.purpose = line } }

// Bury is called with a worker whose process was proven dead on this host,
// before its executions go on elsewhere: end what it left behind. While it
// returns an error the worker is not given up before its time. The Client is this
// Backend's own, which may not have been returned by Open yet.
func Bury(f func(context.Context, belay.Client, belay.Worker) error) Option {
	return func(s *settings) { s.engine.Bury = f }
}

// Backend is a belay.Backend whose engine runs in this process.
type Backend struct {
	*engine.Engine
	store  store.Store
	lock   *lock
	server *socket.Server // nil if it does not listen
	room   []byte
}

// room is how much memory a Backend holds without using it, which costs none. Its
// engine allocates in bursts as large as its batches and keeps little: the collector
// would run for every few hundred executions, and look each time through the stacks
// of all that wait. With the room it runs for every few thousand, and the heap may
// be larger by as much.
const room = 16 << 20

var _ belay.Backend = (*Backend)(nil)

// Open opens a store and starts an engine on it:
//
//	sqlite:DIR     a data directory, made if need be
//	postgres://…   a PostgreSQL database, its schema made if need be
//	memory:        nothing is kept; for tests
//
// Another engine on the same directory is refused with CodeConflict and the
// holder's process; a database is shared by any number of them. Close ends it.
//
// The URL of a database is as libpq's, PGPASSWORD, PGPASSFILE and the other
// variables included. No error shows it.
func Open(ctx context.Context, url string, options ...Option) (*Backend, error) {
	set := settings{purpose: filepath.Base(os.Args[0])}
	for _, o := range options {
		o(&set)
	}
	kind, dir, _ := strings.Cut(url, ":")
	switch kind {
	case "postgres", "postgresql":
		return openPostgres(ctx, url, set)
	case "memory":
		s := memory.New(time.Now)
		return &Backend{Engine: engine.New(s, set.engine), store: s}, nil
	case "sqlite":
		return openSQLite(ctx, strings.TrimPrefix(dir, "//"), set)
	}
	return nil, &belay.Error{
		Code: belay.CodeInvalid, Op: "open", Message: "the store must be sqlite:DIR, postgres://… or memory:",
	}
}

func openSQLite(ctx context.Context, dir string, set settings) (*Backend, error) {
	if dir == "" {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Op: "open sqlite:", Message: "name a data directory: sqlite:DIR",
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	take := acquire
	if set.listen != nil {
		if err := socket.Check(dir); err != nil {
			return nil, err
		}
		take = takeOver
	}
	l, err := take(ctx, dir, set.purpose)
	if err != nil {
		return nil, err
	}
	hide(dir)
	s, err := sqlite.Open(ctx, filepath.Join(dir, database), sqlite.Options{})
	if err != nil {
		l.release()
		return nil, err
	}
	set.prove()
	b := &Backend{Engine: engine.New(s, set.engine), store: s, lock: l, room: make([]byte, room)}
	if set.listen == nil {
		return b, nil
	}
	if err := set.listen(b, dir, &set); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// prove lets the engine prove deaths on this host.
func (s *settings) prove() {
	self, err := host.Self()
	if err != nil {
		return
	}
	s.engine.Self = belay.Process(self)
	s.engine.Near = func(p belay.Process) bool { return host.Process(p).State(self) != host.Unknown }
	s.engine.Dead = func(p belay.Process) (string, bool) {
		if host.Process(p).State(self) != host.Dead {
			return "", false
		}
		return fmt.Sprintf("process %d on this host is gone", p.PID), true
	}
}

// hide keeps the data directory out of the git repository it may lie in. It is
// a courtesy: nothing depends on it.
func hide(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, ".gitignore"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString("*\n")
	_ = f.Close()
}

// Close stops the engine, closes the store and gives the data directory back. Programs
// that use the engine through its socket get the answers that were ready; then the
// socket goes.
func (b *Backend) Close() error {
	if b.server != nil {
		b.server.Stop("")
	}
	err := b.Engine.Close()
	if b.server != nil {
		b.server.Close()
		b.server.Remove()
	}
	if cerr := b.store.Close(); err == nil {
		err = cerr
	}
	if b.lock != nil {
		b.lock.release()
	}
	return err
}

// NewID makes an id as the engine does: a UUIDv7.
func NewID() [16]byte { return uid.New() }

// Reader reads a data directory beside the engine that has it, if any has.
type Reader struct {
	*engine.Reader
	store store.Store
}

// readerPoll is how late a Reader sees at most what another process wrote.
const readerPoll = 200 * time.Millisecond

// OpenReader opens a data directory for reading only. CodeNotFound if there is
// none.
func OpenReader(ctx context.Context, url string) (*Reader, error) {
	kind, dir, _ := strings.Cut(url, ":")
	if kind != "sqlite" || dir == "" {
		return nil, &belay.Error{Code: belay.CodeInvalid, Op: "read " + url, Message: "the store must be sqlite:DIR"}
	}
	path := filepath.Join(strings.TrimPrefix(dir, "//"), database)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrPermission) {
		return nil, &belay.Error{
			Code: belay.CodeForbidden, Op: "read " + url, Err: err,
			Message: "this user may not look into " + dir +
				", which has mode 0700: work as its owner, or ask its server with --server",
		}
	} else if err != nil {
		return nil, &belay.Error{
			Code: belay.CodeNotFound, Op: "read " + url, Message: "there is no Belay data in " + dir +
				" yet; `belay run` makes it",
		}
	}
	s, err := sqlite.Open(ctx, path, sqlite.Options{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	return &Reader{Reader: engine.NewReader(s, readerPoll), store: s}, nil
}

// Close ends the reading.
func (r *Reader) Close() error { return r.store.Close() }

// Check looks through the whole database file for damage, and answers with
// SQLite's version and what is damaged, nothing if all is well.
func (r *Reader) Check(ctx context.Context) (version string, damage []string, err error) {
	s, ok := r.store.(*sqlite.Store)
	if !ok {
		return "", nil, nil
	}
	return s.Check(ctx)
}

// Overdue counts what should have been done by now and was not: sessions and
// executions whose time is over, and executions owned by a session that ended.
// With a running engine it is zero but for moments.
func (r *Reader) Overdue(ctx context.Context) (int, error) {
	due, err := r.store.Due(ctx, 1000)
	return len(due.Workers) + len(due.Checks) + len(due.Lost) + len(due.Children), err
}

// Notes say what of the store is worth knowing though it can be used: that the clock was
// set, that an epoch began.
func (r *Reader) Notes(now time.Time) []string { return engine.Notes(r.store.Vitals(), now) }

// Changed is when the database in a data directory was last written to, by the clock of
// its file system; zero if there is none.
func Changed(dir string) time.Time {
	var last time.Time
	for _, name := range []string{database, database + "-wal"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// Holder says which process has a data directory, in words; "" if none has.
func Holder(dir string) string {
	l, err := acquireExisting(dir)
	var e *belay.Error
	if errors.As(err, &e) {
		return e.Message
	}
	if err != nil {
		return err.Error()
	}
	if l != nil {
		l.release()
	}
	return ""
}
