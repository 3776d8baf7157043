package store

import (
	"context"
	"errors"
	"time"

	"github.com/belaydev/belay/internal/machine"
)

// ErrBusy lies below the errors of a commit that waited too long for rows which
// somebody else holds. Nothing was written.
var ErrBusy = errors.New("somebody else holds the rows")

// ErrSlow lies below the errors of a commit that took longer than one may. Nothing
// was written: less at a time may pass.
var ErrSlow = errors.New("the commit took too long")

// Holder is a store in whose rows others write too, and which can tell what of them
// somebody holds. A Store may be one.
type Holder interface {
	// Held tells which of the rows that a need names are held by somebody else's
	// transaction at this moment, and which tables are. It waits for none of them.
	Held(ctx context.Context, need machine.Need) (Held, error)
}

// Held is what somebody else's transaction holds.
type Held struct {
	Rows map[Row]struct{}
	// Tables are those that cannot be written, and Shut those whose rows cannot even be
	// held.
	Tables, Shut Tables
}

// None reports whether nothing is held.
func (h Held) None() bool { return h.Tables|h.Shut == 0 && len(h.Rows) == 0 }

// Row names a row that may be held.
type Row struct {
	Kind RowKind
	ID   [16]byte    // of a session or an execution
	Key  machine.Key // an idempotency key
}

// RowKind is what a Row is.
type RowKind uint8

// The kinds of rows that batches may wait for. A session that is held as RowSession
// cannot even be shared, as RowRenewal it cannot be written.
const (
	RowSession RowKind = iota + 1
	RowRenewal
	RowExecution
	RowKey
)

// Tables is a set of kinds of rows that are held as a whole.
type Tables uint32

// The kinds of rows.
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
	// TableAll is what every commit needs.
	TableAll
)

// waiting is the key of a context whose commits wait for others for so long at most.
type waiting struct{}

// Waiting is a context whose commits are ErrBusy once they have waited for somebody
// else's rows for so long.
func Waiting(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, waiting{}, d)
}

// WaitOf is for how long commits of a context wait for rows; 0 if it does not say.
func WaitOf(ctx context.Context) time.Duration {
	d, _ := ctx.Value(waiting{}).(time.Duration)
	return d
}

// urgent is the key of a context whose calls must not wait for others.
type urgent struct{}

// Urgent is a context whose calls keep an engine and its sessions alive: a store that
// has several connections does them on some that nothing else uses.
func Urgent(ctx context.Context) context.Context { return context.WithValue(ctx, urgent{}, true) }

// IsUrgent reports whether a context is Urgent.
func IsUrgent(ctx context.Context) bool { return ctx.Value(urgent{}) != nil }

// names are the tables of each kind of rows, as an operator knows them.
var names = []string{
	"workers", "executions", "specs", "runs", "checkpoints", "signals", "actions", "dead_letters", "idempotency",
	"blobs",
	"objects or audit", "meta or servers",
}

// Names are the tables, for people.
func (t Tables) Names() []string {
	var out []string
	for i, name := range names {
		if t&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}
