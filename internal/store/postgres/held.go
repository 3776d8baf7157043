package postgres

import (
	"context"
	"errors"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/jackc/pgx/v5/pgconn"
)

var _ store.Holder = (*Store)(nil)

// PostgreSQL does not report which row a transaction waits for, and does not show uncommitted rows.
// So Held tries to lock the existing rows with SKIP LOCKED, and tries to add the keys and
// executions that do not exist. Then it rolls back all of these statements.
const (
	thereWorkers = "SELECT id FROM workers WHERE id = ANY($1::uuid[])"
	freeToShare  = thereWorkers + " FOR KEY SHARE SKIP LOCKED"
	freeToRenew  = thereWorkers + " FOR NO KEY UPDATE SKIP LOCKED"
	thereRows    = "SELECT id FROM executions WHERE id = ANY($1::uuid[])"
	freeRows     = thereRows + " FOR NO KEY UPDATE SKIP LOCKED"
	tryKey       = "INSERT INTO idempotency (workflow, key, execution, at, hash) VALUES ($1::text, $2::text, " +
		"gen_random_uuid(), 0, '')"
	tryExecution = "INSERT INTO executions (id, lane, created_at, seq, generation, input_gen, state, queue, " +
		"workflow) VALUES ($1::uuid, 0, 0, 0, 0, 0, 6, '', '')"
	tryTime       = "SET LOCAL lock_timeout = 1" // a millisecond, the minimum
	selectLockers = `
SELECT t.n, bool_or(l.mode IN ('ExclusiveLock', 'AccessExclusiveLock'))
FROM unnest($1::text[]) WITH ORDINALITY t (name, n)
JOIN pg_locks l ON l.relation = to_regclass(t.name)
WHERE l.locktype = 'relation' AND l.pid <> pg_backend_pid()
  AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
GROUP BY t.n`
)

// lockable are the tables that may be locked, in the order in which the query numbers them.
var lockable = []struct {
	name string
	kind store.Tables
}{
	{"workers", store.TableWorkers}, {"executions", store.TableExecutions}, {"specs", store.TableSpecs},
	{"runs", store.TableRuns},
	{"checkpoints", store.TableCheckpoints}, {"signals", store.TableSignals}, {"actions", store.TableActions},
	{"dead_letters", store.TableLetters}, {"idempotency", store.TableKeys}, {"blobs", store.TableChunks},
	{"blob_sums", store.TableChunks}, {"objects", store.TableObjects}, {"audit", store.TableObjects},
	{"meta", store.TableAll}, {"servers", store.TableAll},
}

// Held implements store.Holder. A table also counts as locked while another transaction waits to
// lock it, because later statements wait for that transaction.
func (s *Store) Held(ctx context.Context, need machine.Need) (store.Held, error) {
	const op = "look for locks"
	c, err := s.probe.take(ctx)
	if err != nil {
		return store.Held{}, classify(op, err)
	}
	defer func() { s.probe <- c }()
	h := lockProbe{store: s, need: need, held: store.Held{Rows: make(map[store.Row]struct{})}}
	for n := 0; ; n++ {
		err = s.readOnce(ctx, c, h.look)
		if err == nil || !lost(err) || n == 1 {
			break
		}
	}
	if err != nil {
		c.drop() // ends any statement that the connection still runs
	}
	return h.held, classify(op, err)
}

// lockProbe is one search for locks of other transactions.
type lockProbe struct {
	store *Store
	need  machine.Need
	held  store.Held
}

func (h *lockProbe) look(ctx context.Context, c *conn) error {
	p := c.pipe()
	texts(p.add(selectLockers, func(r columns) error {
		kind := lockable[r.int(0)-1].kind
		h.held.Tables |= kind
		if r.bool(1) {
			h.held.Shut |= kind
		}
		return nil
	}), lockable, func(t struct {
		name string
		kind store.Tables
	}) string {
		return t.name
	})
	if err := p.run(ctx); err != nil {
		return err
	}
	missing, err := h.rows(ctx, c)
	if err != nil {
		return err
	}
	if h.held.Tables&(store.TableKeys|store.TableAll) == 0 {
		if err := h.keys(ctx, c); err != nil {
			return err
		}
	}
	if !h.held.None() || h.held.Tables&(store.TableExecutions|store.TableAll) != 0 {
		return nil
	}
	return h.added(ctx, c, missing)
}

// rows finds the sessions and executions that are locked, and returns the executions that do not
// exist.
func (h *lockProbe) rows(ctx context.Context, c *conn) (missing []belay.ExecutionID, err error) {
	type ids map[[16]byte]struct{}
	var sessions, shared, renewed, there, free ids
	p := c.pipe()
	ask := func(text string, list func(*step)) ids {
		found := make(ids)
		list(p.add(text, func(r columns) error { found[r.id(0)] = struct{}{}; return nil }))
		return found
	}
	p.add("BEGIN", nil)
	p.add(tryTime, nil)
	if workers := unique(h.need.Workers); len(workers) > 0 && h.held.Shut&store.TableWorkers == 0 {
		list := func(s *step) { idList(s, workers) }
		sessions, shared, renewed = ask(thereWorkers, list), ask(freeToShare, list), ask(freeToRenew, list)
	}
	executions := h.withAncestors()
	look := len(executions) > 0 && h.held.Shut&store.TableExecutions == 0
	if look {
		list := func(s *step) { idList(s, executions) }
		there, free = ask(thereRows, list), ask(freeRows, list)
	}
	p.add("ROLLBACK", nil)
	if err := p.run(ctx); err != nil {
		return nil, err
	}
	for id := range sessions {
		if _, ok := shared[id]; !ok {
			h.held.Rows[store.Row{Kind: store.RowSession, ID: id}] = struct{}{}
		}
		if _, ok := renewed[id]; !ok {
			h.held.Rows[store.Row{Kind: store.RowRenewal, ID: id}] = struct{}{}
		}
	}
	for _, id := range h.need.Executions {
		for up, known := id, true; known; up, known = h.store.parents.of(up) {
			_, is := there[up]
			if _, ok := free[up]; is && !ok {
				h.held.Rows[store.Row{Kind: store.RowExecution, ID: id}] = struct{}{}
			}
		}
		if _, is := there[id]; !is && look {
			missing = append(missing, id)
		}
	}
	return missing, nil
}

// withAncestors returns the executions that the commands need and their known ancestors, because a
// batch locks both.
func (h *lockProbe) withAncestors() []belay.ExecutionID {
	all := unique(h.need.Executions)
	for i := 0; i < len(all); i++ {
		if up, known := h.store.parents.of(all[i]); known {
			all = append(all, up)
		}
	}
	return unique(all)
}

// keys finds the idempotency keys that other transactions are about to add.
func (h *lockProbe) keys(ctx context.Context, c *conn) error {
	keys := unique(h.need.Keys)
	return tryEach(ctx, c, tryKey, keys, func(s *step, k machine.Key) {
		s.string(k.Workflow).string(k.Key)
	}, func(k machine.Key) {
		h.held.Rows[store.Row{Kind: store.RowKey, Key: k}] = struct{}{}
	})
}

// added finds the executions that other transactions are about to add.
func (h *lockProbe) added(ctx context.Context, c *conn, missing []belay.ExecutionID) error {
	return tryEach(ctx, c, tryExecution, missing, func(s *step, id belay.ExecutionID) {
		s.id(id)
	}, func(id belay.ExecutionID) {
		h.held.Rows[store.Row{Kind: store.RowExecution, ID: id}] = struct{}{}
	})
}

// tryEach runs a statement for each value and rolls it back. It calls waits with each value for
// which the statement had to wait. All statements go to the database together.
func tryEach[T any](ctx context.Context, c *conn, text string, all []T, bind func(*step, T), waits func(T)) error {
	if len(all) == 0 {
		return nil
	}
	c.buffer.clear()
	pl := c.pg.StartPipeline(ctx)
	query := func(text string, params [][]byte) { pl.SendQueryParams(text, params, nil, binaryFormat, binaryFormat) }
	query("BEGIN", nil)
	query(tryTime, nil)
	query("SAVEPOINT trial", nil)
	for _, v := range all {
		s := &step{buffer: &c.buffer}
		bind(s, v)
		query(text, s.params)
		if err := pl.Sync(); err != nil {
			return failedTrial(c, pl, err)
		}
		query("ROLLBACK TO SAVEPOINT trial", nil)
	}
	query("ROLLBACK", nil)
	if err := pl.Sync(); err != nil {
		return failedTrial(c, pl, err)
	}
	for i := 0; i <= len(all); { // the reply to a sync follows the reply to each statement
		r, err := pl.GetResults()
		var reply *pgconn.PgError
		switch r := r.(type) {
		case *pgconn.PipelineSync:
			i++
			continue
		case *pgconn.ResultReader:
			_, err = r.Close()
		}
		switch {
		case errors.As(err, &reply) && reply.Code == "55P03" && i < len(all):
			waits(all[i])
		case errors.As(err, &reply) && reply.Severity != "FATAL": // the value now exists, or the database refuses it
		case err != nil:
			return failedTrial(c, pl, err)
		}
	}
	return pl.Close()
}

func failedTrial(c *conn, pl *pgconn.Pipeline, err error) error {
	_ = pl.Close()
	if c.pg.IsClosed() {
		return errors.Join(errLost, err)
	}
	return err
}
