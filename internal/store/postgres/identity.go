package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// identity distinguishes a database from its copies: restored backups and promoted standbys.
type identity struct {
	place
	// lineage is a random number that is chosen when an epoch begins. It distinguishes two standbys
	// of one primary that were both promoted, because these have the same place.
	lineage [16]byte
	// life identifies one run of the database from its start to its end or crash, by its start time
	// and the reset time of its statistics, which do not survive a crash. After a crash the
	// database may use the number of a transaction again for another transaction, if the first
	// transaction left no trace in the log. So the store can look up the outcome of a transaction,
	// by its number, only in the same life.
	life string
}

// place is the id of a database's system and its timeline. A promotion and a restore to a point in
// time begin a new timeline.
type place struct{ system, timeline string }

const (
	// A standby that is not promoted can neither name its timeline nor take a write.
	selectStandby = "SELECT pg_is_in_recovery()"

	selectIdentity = `
SELECT s.system_identifier::text, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), m.system, m.timeline, m.lineage,
       concat(extract(epoch FROM pg_postmaster_start_time()), ' ', extract(epoch FROM b.stats_reset))
FROM pg_control_system() s, meta m, pg_stat_bgwriter b`

	// Every commit reads meta after it has taken its locks, so no commit is in progress while meta
	// is locked.
	lockMeta    = "LOCK TABLE meta IN ACCESS EXCLUSIVE MODE"
	selectEpoch = "SELECT greatest(floor, epoch << 32), system, timeline, lineage FROM meta"
	writeEpoch  = "UPDATE meta SET epoch = $1::bigint, floor = $2::bigint, system = $3::text, timeline = " +
		"$4::text, lineage = $5::uuid"

	// An acknowledged write must survive a crash (guarantee G3). If the database is set to
	// acknowledge a commit before the commit is on disk, this statement changes the setting for
	// this connection.
	writeFirst = "SELECT set_config('synchronous_commit', 'on', false) WHERE " +
		"current_setting('synchronous_commit') = 'off'"
)

// identify checks which database a writer's new connection leads to. If this is not the database in
// which the epoch began, some commits may be lost and their tokens could be given out again. Then
// identify raises the epoch before anything is written (guarantee G1). begun is the new epoch, 0 if
// none began.
func (c *conn) identify(ctx context.Context) (begun belay.Token, err error) {
	var was place
	p := c.pipe()
	p.add(writeFirst, nil)
	p.add(selectStandby, func(r columns) error {
		if r.bool(0) {
			return errStandby
		}
		return nil
	})
	p.add(selectIdentity, func(r columns) error {
		c.identity = identity{place{r.text(0), r.text(1)}, r.id(4), r.text(5)}
		was = place{r.text(2), r.text(3)}
		return nil
	})
	if err := p.run(ctx); err != nil || c.identity.place == was {
		return 0, err
	}
	raised := false
	epoch, err := c.epoch(ctx, func(was place) bool {
		// The epoch need not be raised in a new database, or if another connection has raised it
		// already.
		raised = was.system != "" && was != c.identity.place
		return raised
	})
	if err != nil || !raised {
		return 0, err
	}
	return epoch, nil
}

// errStandby refuses writes to a standby, which accepts no writes until it is promoted.
var errStandby = &belay.Error{
	Code: belay.CodeUnavailable, Message: "the database is a standby: it takes no writes until it is promoted",
	RetryAfter: time.Second,
}

// epoch calls begin with the place (database system and timeline) at which the last epoch began. If
// begin reports true, epoch starts a new epoch and a new lineage. In any case it stores the place of
// this database. It locks the table meta, so that no other connection can commit before epoch
// returns.
func (c *conn) epoch(ctx context.Context, begin func(was place) bool) (belay.Token, error) {
	var epoch belay.Token
	var was place
	p := c.pipe()
	p.add("BEGIN", nil)
	p.add(lockMeta, nil)
	p.add(selectEpoch, func(r columns) error {
		epoch, was = belay.Token(r.int(0)), place{r.text(1), r.text(2)}
		c.identity.lineage = r.id(3)
		return nil
	})
	if err := p.run(ctx); err != nil {
		return 0, err
	}
	if begin(was) {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		epoch = machine.NextEpoch(epoch, machine.At(time.Now()), binary.BigEndian.Uint64(random[:]))
		_, _ = rand.Read(c.identity.lineage[:])
	}
	p = c.pipe()
	p.add(writeEpoch, nil).int(int64(epoch >> 32)).int(int64(epoch)).string(c.identity.system).string(
		c.identity.timeline).id(c.identity.lineage)
	p.add("COMMIT", nil)
	return epoch, p.run(ctx)
}

// RaiseEpoch makes all later tokens higher than all earlier tokens, and returns the new epoch. It
// is for a database that was restored in a way that identify cannot detect.
func (s *Store) RaiseEpoch(ctx context.Context) (belay.Token, error) {
	const op = "raise the epoch"
	c, err := s.writers.take(ctx)
	if err != nil {
		return 0, classify(op, err)
	}
	defer func() { s.writers <- c }()
	var epoch belay.Token
	err = s.transact(ctx, c, func(ctx context.Context) error {
		var err error
		epoch, err = c.epoch(ctx, func(place) bool { return true })
		return err
	})
	if err == nil {
		s.seen.Begun(epoch)
	}
	return epoch, classify(op, err)
}

// askFor is how long the store tries to find out the outcome of a commit after the connection was
// lost, and askAgain is the pause between two tries.
const (
	askFor   = 2 * time.Second
	askAgain = 20 * time.Millisecond
)

// outcome asks the database for the outcome of a transaction whose COMMIT was not answered. A
// committed transaction is acknowledged only after a further commit (touchMark) is acknowledged:
// both have then reached everything that a commit must reach, such as standbys (guarantee G3).
func (s *Store) outcome(ctx context.Context, c *slot, u *unanswered) (committed, known bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askFor)
	defer cancel()
	for ctx.Err() == nil {
		status, err := s.status(ctx, c, u)
		switch {
		case errors.Is(err, errElsewhere):
			return false, false
		case err == nil && status == "committed":
			return true, true
		case err == nil && status == "aborted":
			return false, true
		}
		t := time.NewTimer(askAgain) // the database does not answer yet, or the transaction has not ended
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
	return false, false
}

// errElsewhere reports that the answer comes from another database than the COMMIT went to, or from
// the same database after a crash.
var errElsewhere = errors.New("the database that answers is another one, or has crashed and restarted")

func (s *Store) status(ctx context.Context, c *slot, u *unanswered) (status string, err error) {
	if err := s.connected(ctx, c); err != nil {
		return "", err
	}
	if c.identity != u.of {
		return "", errElsewhere
	}
	p := c.pipe()
	p.add("BEGIN", nil)
	p.add("SELECT pg_xact_status($1::text::xid8)", func(r columns) error {
		status = r.text(0)
		return nil
	}).string(u.xid)
	p.add(touchMark, nil).id(s.options.Server).int(int64(c.number)).int(int64(c.number) + vitalSlot)
	p.add("COMMIT", nil)
	return status, p.run(ctx)
}

// touchMark is a write that changes no value.
const touchMark = "UPDATE servers SET beat = beat WHERE id = $1::uuid AND slot IN ($2::bigint, $3::bigint)"

// unknown is the error of a commit with an unknown outcome.
func unknown(err error) error {
	return &belay.Error{
		Code: belay.CodeUnavailable, Op: "commit",
		Message: "the connection was lost in the commit, which may have been written or not", Err: err,
	}
}
