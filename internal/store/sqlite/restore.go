package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Restore copies a database file, which no process may use, to a new file, as Backup does, and
// begins a new epoch in the copy. The original file stays as it is. The result describes the
// content of the copy, with the new epoch.
func Restore(ctx context.Context, file, to string, known belay.Token, now time.Time,
	progress func(done, total int)) (s Snapshot, err error) {
	source, err := unusedSource(file)
	if err == nil {
		s, err = duplicate(ctx, file, source, to, progress)
	}
	if err == nil {
		s.Epoch, err = BeginEpoch(ctx, to, known, now)
	}
	return s, classify("restore "+file, err)
}

// BeginEpoch begins a new epoch (the number above which all new tokens are) in a database that no
// engine uses, and returns it. known is the highest epoch that the caller knows, or 0.
func BeginEpoch(ctx context.Context, path string, known belay.Token, now time.Time) (epoch belay.Token, err error) {
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
	had, hasFloor, err := c.epoch(ctx)
	if err != nil {
		return 0, err
	}
	epoch = machine.NextEpoch(max(known, had), machine.At(now),
		rand.Uint64()) //nolint:gosec // the number must differ from others, but need not be secret
	if err := c.writeEpoch(ctx, epoch, hasFloor); err != nil {
		return 0, err
	}
	if _, err := c.exec(ctx, "COMMIT"); err != nil {
		return 0, fmt.Errorf("%w: %w", errCommit, err)
	}
	// commits may be missing, but the new epoch keeps their tokens from being given out again
	return epoch, acceptLoss(path)
}

// Epoch reads the epoch of a database that no process uses, without checking whether the rest of
// the database is sound.
func Epoch(ctx context.Context, path string) (epoch belay.Token, err error) {
	source, err := unusedSource(path)
	if err != nil {
		return 0, err
	}
	c, err := connectTo(ctx, source)
	if err != nil {
		return 0, err
	}
	epoch, _, err = c.epoch(ctx)
	return epoch, classify("read the epoch of "+path, firstOf(err, c.close()))
}

// epoch reads the epoch (the number above which all new tokens are). An old schema stores only the
// epoch divided by 2^32; hasFloor reports whether the schema has the column floor, which contains
// the whole epoch.
func (c *conn) epoch(ctx context.Context) (epoch belay.Token, hasFloor bool, err error) {
	err = c.query(ctx, "SELECT count(*) FROM pragma_table_info('meta') WHERE name = 'floor'", func(r columns) error {
		hasFloor = r.int(0) > 0
		return nil
	})
	text := "epoch << 32"
	if hasFloor {
		text = selectEpoch
	}
	if err == nil {
		err = c.query(ctx, "SELECT "+text+" FROM meta", func(r columns) error {
			epoch = belay.Token(r.int(0))
			return nil
		})
	}
	return epoch, hasFloor, err
}

// writeEpoch writes an epoch. For an old schema it rounds the epoch up to a multiple of 2^32.
func (c *conn) writeEpoch(ctx context.Context, epoch belay.Token, hasFloor bool) error {
	if !hasFloor {
		c.args.int(int64((epoch + 1<<32 - 1) >> 32))
		_, err := c.exec(ctx, "UPDATE meta SET epoch = ?")
		return err
	}
	c.args.int(int64(epoch >> 32)).int(int64(epoch))
	_, err := c.exec(ctx, "UPDATE meta SET epoch = ?, floor = ?")
	return err
}
