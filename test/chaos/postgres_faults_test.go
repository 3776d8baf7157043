package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// killServers kills several servers at once, and starts them together.
func (w *world) killServers(ctx context.Context, f fault) {
	killed := w.servers
	if f.Kind == "kill two" {
		killed = killed[len(killed)-2:]
	}
	for _, s := range killed {
		s.mu.Lock()
	}
	defer func() {
		for _, s := range killed {
			s.mu.Unlock()
		}
	}()
	from := time.Now()
	for _, s := range killed {
		s.proc.signal(syscall.SIGKILL)
	}
	for _, s := range killed {
		<-s.proc.done
	}
	w.fault("several servers killed at once")
	_ = pause(ctx, f.For)
	var all sync.WaitGroup
	for _, s := range killed {
		all.Go(func() {
			if err := s.start(ctx); err != nil {
				w.t.Errorf("start %s: %v", s.name, err)
			}
			w.troubled(s.name, from)
		})
	}
	all.Wait()
	if len(killed) == len(w.servers) {
		_ = pause(ctx, jobTTL/3) // the same pause as after a fault of the first server alone
	}
}

// lockTable locks a table for a while, and records whether another transaction waited for it.
func (w *world) lockTable(ctx context.Context, f fault) {
	text := fmt.Sprintf("BEGIN; LOCK TABLE %s IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(%f); "+
		"SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '%[1]s'::regclass; COMMIT", f.Kind,
		f.For.Seconds())
	w.undisturbed(ctx, func() error {
		defer w.troubled("table "+f.Kind, time.Now())
		said, err := w.query(text)
		if err == nil && !strings.HasSuffix("\n"+said, "\n0") {
			w.happened("waited for a locked table")
		}
		return err
	})
	w.fault("table locked")
}

// undisturbed calls the function do until it returns no error, because another fault of the
// database may interrupt a call.
func (w *world) undisturbed(ctx context.Context, do func() error) {
	for do() != nil {
		if pause(ctx, 300*time.Millisecond) != nil {
			return
		}
	}
}

// readOnly is the text that PostgreSQL logs for each write that it refuses.
const readOnly = "in a read-only transaction"

// refuseWrites makes the database read-only for a while, also for existing connections. The fault
// counts only if the database refused a write.
func (w *world) refuseWrites(ctx context.Context, f fault) {
	from := time.Now()
	defer w.troubled("read-only", from)
	set := func(text string) {
		w.undisturbed(ctx, func() error {
			if _, err := w.query("ALTER SYSTEM " + text); err != nil {
				return err
			}
			_, err := w.query("SELECT pg_reload_conf()")
			return err
		})
	}
	before := strings.Count(w.database.Log(), readOnly)
	set("SET default_transaction_read_only = on")
	_ = pause(ctx, f.For)
	if strings.Count(w.database.Log(), readOnly) > before {
		w.fault("database read-only")
	}
	set("RESET default_transaction_read_only")
}

// holdSnapshot keeps a snapshot open for a while. PostgreSQL cannot vacuum rows that are deleted
// during that time.
func (w *world) holdSnapshot(ctx context.Context, f fault) {
	text := fmt.Sprintf("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM executions; SELECT "+
		"pg_sleep(%f); COMMIT", f.For.Seconds())
	w.undisturbed(ctx, func() error {
		from := time.Now()
		_, err := w.query(text)
		if time.Since(from) > f.For/2 { // the snapshot was open long enough before a kill of the database ended it
			return nil
		}
		return err
	})
	w.fault("old snapshot held")
}

// heldKeys is the number of keys that holdKeys uses in one transaction.
const heldKeys = 20

// holdKeys submits executions with idempotency keys in its own transaction, which stays open for a
// while. During that time clients submit executions with the same keys to the servers, and the
// servers can answer only after the end of the transaction.
func (w *world) holdKeys(ctx context.Context, f fault, c *crowd) {
	w.undisturbed(ctx, func() error { return w.holdKeysOnce(ctx, f, c) })
	w.fault("keys held by an open transaction")
}

func (w *world) holdKeysOnce(ctx context.Context, f fault, c *crowd) error {
	db, err := pgx.Connect(ctx, w.url)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	all := make([]belay.Submission, heldKeys)
	for i := range all {
		all[i] = belay.Submission{
			ID: newExecutionID(), Workflow: "play", Input: []byte(`[{"do":"step","ms":3}]`), Policy: terms,
			IdempotencyKey: fmt.Sprint("held ", c.n.Add(1)),
		}
	}
	began := entry{Kind: "submit", Who: "transaction", At: time.Now()}
	got, err := embedded.SubmitTx(ctx, tx, all...)
	if err != nil {
		return err
	}
	for _, s := range all[:heldKeys/2] {
		s.ID = newExecutionID()
		c.lives.Go(func() { c.submit(ctx, c.dice(), s) })
	}
	_ = pause(ctx, f.For)
	if f.Kind == "roll back" {
		err = tx.Rollback(ctx)
	} else {
		err = tx.Commit(ctx)
	}
	told := err
	switch {
	case f.Kind == "roll back": // the transaction is rolled back even if the connection was lost
		began.Kind, told = "rolled back", nil
	case err != nil:
		told = &belay.Error{Code: belay.CodeUnavailable, Op: "submit", Err: err}
	}
	for _, e := range promise.Entries(began, all, got, time.Now(), told) {
		w.note(e)
	}
	return err
}
