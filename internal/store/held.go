package store

import (
	"context"
	"errors"
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// ErrBusy is wrapped by the error of a commit that waited too long for rows that another
// transaction has locked. Nothing was written.
var ErrBusy = errors.New("another transaction has locked the rows")

// ErrSlow is wrapped by the error of a commit that took longer than the store allows. Nothing was
// written; a smaller commit may succeed.
var ErrSlow = errors.New("the commit took too long")

// Holder is a store whose rows other processes can lock, and which can report their locks. A Store
// may implement Holder.
type Holder interface {
	// Held reports which of the rows that a batch of commands needs, and which tables, other
	// transactions have locked at this moment. Held does not wait for any lock.
	Held(ctx context.Context, need machine.Need) (Held, error)
}

// Held lists the locks of other transactions.
type Held struct {
	Rows map[Row]struct{}
	// Tables are the tables that cannot be written. Shut are the tables whose rows cannot even be
	// locked.
	Tables, Shut Tables
}

// None reports whether nothing is locked.
func (h Held) None() bool { return h.Tables|h.Shut == 0 && len(h.Rows) == 0 }

// Row names a row that may be locked.
type Row struct {
	Kind RowKind
	ID   [16]byte    // id of a session or an execution
	Key  machine.Key // an idempotency key
}

// RowKind is the kind of a Row.
type RowKind uint8

// The kinds of rows for which batches may wait. If a session is locked as RowSession, a batch can
// neither share-lock nor write it; if it is locked as RowRenewal, a batch can only share-lock it.
const (
	RowSession RowKind = iota + 1
	RowRenewal
	RowExecution
	RowKey
)

// Tables is a set of tables that are locked as a whole.
type Tables uint32

// The tables.
const (
	TableWorkers Tables = 1 << iota
	TableExecutions
	TableSpecs
	TableRuns
	TableCheckpoints
	TableSignals
	TableActions
	TableLetters
	TableKeys
	TableChunks
	TableObjects
	// TableAll stands for the tables meta and servers, which every commit needs.
	TableAll
)

// waiting is the key in a context for the limit that Waiting sets.
type waiting struct{}

// Waiting returns a context with a limit for commits: a commit fails with ErrBusy if it waits
// longer than d for rows that other transactions have locked.
func Waiting(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, waiting{}, d)
}

// WaitOf returns the limit that Waiting has set, 0 if the context has no limit.
func WaitOf(ctx context.Context) time.Duration {
	d, _ := ctx.Value(waiting{}).(time.Duration)
	return d
}

// urgent is the key in a context for the mark that Urgent sets.
type urgent struct{}

// Urgent returns a context for calls that keep an engine and its sessions alive. A store with
// several connections reserves some of them for these calls.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgent{}, true) }

// IsUrgent reports whether a context comes from Urgent.
func IsUrgent(ctx context.Context) bool { return ctx.Value(urgent{}) != nil }

// tableNames are the names of the tables in the database, in the order of the bits.
var tableNames = []string{
	"workers", "executions", "specs", "runs", "checkpoints", "signals", "actions", "dead_letters", "idempotency",
	"blobs",
	"objects or audit", "meta or servers",
}

// Names are the names of the tables in the database.
func (t Tables) Names() []string {
	var out []string
	for i, name := range tableNames {
		if t&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}
