package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
	"github.com/belaydev/belay/internal/store/sqlite"
)

// Restored says what a restore did.
type Restored struct {
	Snapshot
	// Ended is how many sessions were ended as lost. What they owned is taken
	// back when an engine runs.
	Ended int `json:"ended"`
	// Aside is where the database that was there before is, if one was.
	Aside string `json:"aside,omitempty"`
}

// Verify looks through a backup for damage and says what it holds. It changes
// nothing. Errors are those of Restore.
func Verify(ctx context.Context, file string) (Snapshot, error) {
	s, err := sqlite.Inspect(ctx, file)
	return snapshot(file, s), err
}

// Restore makes sqlite:DIR a data directory with what a backup holds. Nobody may
// use it meanwhile. The backup is copied and stays as it is.
//
// What happened after the backup is forgotten, but not by those it was told to,
// so two things are not as they were. A new epoch begins: every token is above
// all that were ever given, by this store or by what it is restored from. And all
// sessions are over: a worker that still has a lease of then may have lost it
// since, so what was owned is taken back, as from any worker that was lost.
//
// Until the last step the directory holds what it did. CodeConflict if it is in
// use, or not empty without Force; with it, a database that is there is moved
// into a directory of its own beside it. CodeNotFound, CodeInvalid or
// CodeInternal if the file is not there, is no backup, or is damaged or newer
// than this Belay.
func Restore(ctx context.Context, file, url string, o CopyOptions) (Restored, error) {
	dir, err := directory("restore", url)
	if err != nil {
		return Restored{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Restored{}, fmt.Errorf("make the data directory: %w", err)
	}
	l, err := acquire(ctx, dir, "a restore")
	if err != nil {
		return Restored{}, err
	}
	defer l.release()
	hide(dir)
	r := restoring{file: file, dir: dir, staging: filepath.Join(dir, "restoring"), at: time.Now().UTC()}
	if err := r.look(o.Force); err != nil {
		return Restored{}, err
	}
	done, err := r.run(ctx, o)
	if err == nil {
		err = r.handOver(done.Aside)
	}
	return done, errors.Join(err, os.RemoveAll(r.staging))
}

// BeginEpoch does for a store that was restored by other means what Restore does
// besides copying: for a PostgreSQL database after pg_restore or a recovery to a
// point in time, or for a data directory out of a snapshot of its disk. It
// answers with the new epoch and how many sessions it ended. Doing it once more
// than needed does no harm but to the workers, which lose what they have. A data
// directory must not be in use, and unless force is set no server may have used a
// database just now (CodeConflict).
func BeginEpoch(ctx context.Context, url string, force bool) (epoch belay.Token, ended int, err error) {
	const why = "the store was restored from a backup"
	if onPostgres(url) {
		s, err := postgres.Open(ctx, url, postgres.Options{})
		if err != nil {
			return 0, 0, err
		}
		if !force {
			err = unused(ctx, s)
		}
		if err == nil {
			epoch, err = s.RaiseEpoch(ctx)
		}
		if err == nil {
			ended, err = endSessions(ctx, s, why)
		}
		return epoch, ended, errors.Join(err, s.Close())
	}
	dir, err := directory("begin an epoch", url)
	if err != nil {
		return 0, 0, err
	}
	path, err := present("begin an epoch in "+url, dir)
	if err != nil {
		return 0, 0, err
	}
	l, err := acquire(ctx, dir, "a new epoch")
	if err != nil {
		return 0, 0, err
	}
	defer l.release()
	if epoch, err = sqlite.BeginEpoch(ctx, path, 0, time.Now()); err != nil {
		return 0, 0, err
	}
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return epoch, 0, err
	}
	ended, err = endSessions(ctx, s, why)
	return epoch, ended, errors.Join(err, s.Close())
}

// unused refuses a store in which a server has just left its mark of life.
func unused(ctx context.Context, s store.Store) error {
	var since, beat time.Duration
	if err := s.Commit(ctx, machine.Need{}, func(r *machine.Rows) *machine.Changes {
		since, beat = r.Now.Sub(r.Mark), r.Beat
		return nil
	}); err != nil {
		return err
	}
	if since > 3*max(beat, time.Second) {
		return nil
	}
	return &belay.Error{Code: belay.CodeConflict, Op: "begin an epoch", Message: fmt.Sprintf(
		"a server left its mark of life %s ago: its workers would lose all that they run; stop the servers first, "+
			"or use --force beside them", since.Round(time.Millisecond))}
}

// endSessions ends all sessions that are open now as lost, for one reason.
func endSessions(ctx context.Context, s store.Store, why string) (n int, err error) {
	// what it could say is answered
	e := engine.New(s, engine.Options{Retention: -1, Log: slog.New(slog.DiscardHandler)})
	defer func() { err = errors.Join(err, e.Close()) }()
	for began, more := s.Now().Time(), true; more; {
		workers, err := e.Workers(ctx) // the living ones first
		if err != nil {
			return n, err
		}
		more = false
		for _, w := range workers {
			if w.State.Ended() || w.OpenedAt.After(began) {
				continue
			}
			if err := e.Bury(ctx, w.ID, why); err != nil {
				return n, err
			}
			n++
			more = true
		}
	}
	return n, nil
}
