package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// Restore copies the database in a file that nobody uses to a new file, as
// Backup does, and begins a new epoch in the copy. The file stays as it is. What
// it answers with is what the file holds, but for the epoch, which is the new one.
func Restore(ctx context.Context, file, to string, known int64, now time.Time, progress func(done, total int)) (s Snapshot, err error) {
	source, err := resting(file)
	if err == nil {
		s, err = duplicate(ctx, source, to, progress)
	}
	if err == nil {
		s.Epoch, err = BeginEpoch(ctx, to, known, now)
	}
	return s, classify("restore "+file, err)
}

// BeginEpoch begins a new epoch in a database that no engine uses, and answers
// with it. known is the highest epoch that its caller knows of, if it knows any.
func BeginEpoch(ctx context.Context, path string, known int64, now time.Time) (epoch int64, err error) {
	op := "begin an epoch in " + path
	c, err := connectTo(ctx, sourceOf(path, false))
	if err != nil {
		return 0, classify(op, err)
	}
	defer func() { err = classify(op, firstOf(err, c.close())) }()
	if _, err := c.schema(ctx); err != nil {
		return 0, err
	}
	if _, err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return 0, err
	}
	if err := c.query(ctx, "SELECT epoch FROM meta", func(r columns) error { epoch = machine.NextEpoch(max(known, r.int(0)), machine.At(now)); return nil }); err != nil {
		return 0, err
	}
	c.args.int(epoch)
	if _, err := c.exec(ctx, "UPDATE meta SET epoch = ?"); err != nil {
		return 0, err
	}
	if _, err := c.exec(ctx, "COMMIT"); err != nil {
		return 0, fmt.Errorf("%w: %w", errCommit, err)
	}
	return epoch, nil
}

// Epoch reads the epoch of a database that nobody uses, without looking whether
// the rest of it is sound.
func Epoch(ctx context.Context, path string) (epoch int64, err error) {
	source, err := resting(path)
	if err != nil {
		return 0, err
	}
	c, err := connectTo(ctx, source)
	if err != nil {
		return 0, err
	}
	err = c.query(ctx, "SELECT epoch FROM meta", func(r columns) error { epoch = r.int(0); return nil })
	return epoch, classify("read the epoch of "+path, firstOf(err, c.close()))
}
