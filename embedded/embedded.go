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

// Option is an option of Open. Open works without options.
type Option func(*settings)

type settings struct {
	engine  engine.Options
	purpose string
	// listen starts to serve the socket of a data directory. It is nil without the option Listen;
	// then there is no socket.
	listen func(b *Backend, dir string, set *settings) error
}

// Logger sets the logger for messages to operators. The default is slog.Default().
func Logger(l *slog.Logger) Option { return func(s *settings) { s.engine.Log = l } }

// Retention sets how long the store keeps an ended execution; a negative duration means for ever.
// The default is 30 days.
func Retention(d time.Duration) Option { return func(s *settings) { s.engine.Retention = d } }

// DeadLetterRetention sets how long the store keeps an execution with an open dead letter after its
// failure, if that is longer than the retention. The default, 0, means until the dead letter is
// resolved.
func DeadLetterRetention(d time.Duration) Option {
	return func(s *settings) { s.engine.LetterRetention = d }
}

// Defaults sets the values of policy fields that submissions to this engine leave out, for the
// fields MaxAttempts, BackoffBase, BackoffCap, ScheduledTimeout, StartTimeout and OnNoWorker. An
// execution keeps the values of its submission. Submissions with SubmitTx do not get these values.
func Defaults(p belay.Policy) Option { return func(s *settings) { s.engine.Defaults = p } }

// CheckInterval sets how often the engine looks for work that is due although no timer and no message
// has reported it. The default is 30 s.
func CheckInterval(d time.Duration) Option { return func(s *settings) { s.engine.SlowPoll = d } }

// Purpose describes this process in one line. The line is part of the error that another process
// gets when it opens the data directory.
func Purpose(line string) Option { return func(s *settings) { s.purpose = line } }

// Bury sets a function for the death of a worker on this host. The engine calls the function when it has proven that
// the worker's process has ended, before another worker continues the executions of the dead worker. The function ends
// everything that the worker left behind and that could disturb the next run, for example child processes. Until the
// function has returned nil, the engine does not declare the worker lost before its lease expires. Other workers are
// not affected. The Client is the Backend that Open returns. The engine may call the function before Open has returned.
func Bury(f func(context.Context, belay.Client, belay.Worker) error) Option {
	return func(s *settings) { s.engine.Bury = f }
}

// CleanUp sets a function that the engine calls after it has declared workers of this host lost whose processes have
// ended. The function removes what the next runs do not need to wait for, for example large files. The engine calls the
// function in the background, never twice at the same time; one call may serve several lost workers. The context ends
// when the Backend is closed; Close waits for the function.
func CleanUp(f func(context.Context)) Option { return func(s *settings) { s.engine.CleanUp = f } }

// Backend is a belay.Backend whose engine runs in this process.
type Backend struct {
	*engine.Engine
	store   store.Store
	lock    *lock
	server  *socket.Server // nil without the option Listen
	ballast []byte
}

// ballast is the size of a block of memory that a Backend allocates and never uses, so that the
// block occupies no physical memory. The engine allocates much memory for each batch and soon frees
// most of it: without the ballast the garbage collector would run once for every few hundred
// executions, and scan the stacks of all waiting goroutines each time. With the ballast, it runs
// once for every few thousand executions, and the heap may grow by as much as the ballast.
const ballast = 16 << 20

var _ belay.Backend = (*Backend)(nil)

// Open opens a store and starts an engine on it:
//
//	sqlite:DIR     a data directory, created if it does not exist
//	postgres://…   a PostgreSQL database; the schema is created if it does not exist
//	memory:        in memory, lost at the end; for tests
//
// If another engine uses the directory, Open returns CodeConflict, and the message names that
// engine's process. Any number of engines may share a database. Close stops the engine.
//
// The URL of a database has the same form as in libpq, and PGPASSWORD, PGPASSFILE and the other
// environment variables of libpq apply. No error message contains the URL.
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
	b := &Backend{Engine: engine.New(s, set.engine), store: s, lock: l, ballast: make([]byte, ballast)}
	if set.listen == nil {
		return b, nil
	}
	if err := set.listen(b, dir, &set); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// prove sets the functions with which the engine proves that a process on this host has ended.
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

// hide writes a .gitignore, so that git ignores the data directory if it lies in a repository.
// Nothing depends on the file, so errors are ignored.
func hide(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, ".gitignore"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString("*\n")
	_ = f.Close()
}

// Close stops the engine, closes the store and releases the data directory. Programs that use the
// engine through its socket get the answers that are ready; then Close removes the socket.
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

// NewID returns a new id of the kind that the engine makes: a UUIDv7.
func NewID() [16]byte { return uid.New() }

// Reader reads a data directory or a PostgreSQL database. Engines in other processes may use it at
// the same time.
type Reader struct {
	*engine.Reader
	store store.Store
}

// readerPoll is the longest time after a write of another process until a Reader notices the write.
const readerPoll = 200 * time.Millisecond

// OpenReader opens a data directory, sqlite:DIR, or a database, postgres://…, for reading only: it
// writes nothing and runs no migration. It returns CodeNotFound if there is no Belay data,
// CodeForbidden if this user may not read the directory, and CodeUnavailable if the schema of the
// store is older than this Belay needs. No error message contains the URL of a database.
func OpenReader(ctx context.Context, url string) (*Reader, error) {
	kind, dir, _ := strings.Cut(url, ":")
	if onPostgres(url) {
		return readPostgres(ctx, url)
	}
	if kind != "sqlite" || dir == "" {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Op: "read", Message: "the store must be sqlite:DIR or postgres://…",
		}
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

// Close closes the database.
func (r *Reader) Close() error { return r.store.Close() }

// Check checks the whole database file for damage. It returns SQLite's version and a list of the
// faults, which is empty if there is no damage. For a PostgreSQL database, which checks its files
// itself, version and damage are empty.
func (r *Reader) Check(ctx context.Context) (version string, damage []string, err error) {
	s, ok := r.store.(*sqlite.Store)
	if !ok {
		return "", nil, nil
	}
	return s.Check(ctx)
}

// Overdue counts the sessions and executions that an engine should have handled already: sessions
// and executions whose deadline has passed, and executions whose owner's session has ended. While an
// engine is running, the count is zero most of the time.
func (r *Reader) Overdue(ctx context.Context) (int, error) {
	due, err := r.store.Due(ctx, 1000)
	return len(due.Workers) + len(due.Checks) + len(due.Lost) + len(due.Children), err
}

// Notes returns notices about a usable store for operators, for example that its clock was set or
// that a new epoch (a new range of larger tokens) began.
func (r *Reader) Notes(now time.Time) []string { return engine.Notes(r.store.Vitals(), now) }

// Changed returns the time of the last write to the database in a data directory, by the clock of
// its file system, or zero if there is no database.
func Changed(dir string) time.Time {
	var last time.Time
	for _, name := range []string{database, database + "-wal"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// Holder describes the process whose engine uses a data directory. It returns "" if no process
// does.
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
