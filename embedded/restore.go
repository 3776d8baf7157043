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

// Restored describes a completed restore.
type Restored struct {
	Snapshot
	// Ended is how many sessions were ended as lost. The next engine takes back the executions of
	// these sessions, and other workers continue them.
	Ended int `json:"ended"`
	// Aside is the directory to which the replaced database was moved. It is empty if there was no
	// database.
	Aside string `json:"aside,omitempty"`
}

// Verify checks a backup for damage and describes its contents. It changes nothing. It returns the
// same errors as Restore.
func Verify(ctx context.Context, file string) (Snapshot, error) {
	s, err := sqlite.Inspect(ctx, file)
	return snapshot(file, s), err
}

// Restore creates the data directory sqlite:DIR from a backup. No other process may use the
// directory during the restore. Restore copies the backup file and does not change it.
//
// The restored store has no data from the time after the backup, but workers and other systems have
// such data. Therefore Restore changes two things. It begins a new epoch: every new token is larger
// than all tokens of earlier claims in this data directory or in the store of the backup. And it ends
// all sessions as lost, because a worker with a lease from before the backup may have lost this lease
// after the backup. The next engine takes back the executions of these sessions.
//
// Until the last step the old contents of the directory stay in place. With Force, Restore moves an
// existing database into a new directory beside the restored database. Restore returns CodeConflict
// if the directory is in use, or if it is not empty and Force is not set; CodeNotFound if the file
// does not exist; CodeInvalid if the file is not a backup; CodeInternal if the backup is damaged or
// newer than this Belay.
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

// BeginEpoch begins a new epoch and ends all sessions, as Restore does, in a store that was
// restored by other means: a PostgreSQL database after pg_restore or a point-in-time recovery, or a
// data directory from a snapshot of its disk. It returns the new epoch and the number of ended
// sessions. An unnecessary call does no harm except that the workers lose their executions.
// BeginEpoch returns CodeConflict if a data directory is in use or, unless force is set, if a
// server has used a database in the last moments.
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

// unused returns CodeConflict if the store has a mark of life (the time that each running engine
// writes at short intervals) from the last moments, because a server may then still be running.
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
		"a server left its mark of life %s ago: its workers would lose their executions; stop the servers first, "+
			"or use --force beside them", since.Round(time.Millisecond))}
}

// endSessions ends all sessions that are open now as lost, with the given reason.
func endSessions(ctx context.Context, s store.Store, why string) (n int, err error) {
	// This engine only ends sessions, and endSessions returns the engine's errors, so the engine
	// needs no log.
	e := engine.New(s, engine.Options{Retention: -1, Log: slog.New(slog.DiscardHandler)})
	defer func() { err = errors.Join(err, e.Close()) }()
	for began, more := s.Now().Time(), true; more; {
		workers, err := e.Workers(ctx) // Workers returns the open sessions first
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
