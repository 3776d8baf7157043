package embedded

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/postgres"
)

// SubmitTx submits executions inside the caller's own transaction on the database that Belay uses.
// The executions exist if the transaction is committed, and PostgreSQL notifies the workers of all
// servers and programs on the database at that moment. If the transaction is rolled back, none of
// the executions exists. No engine needs to run in this program. The schema must exist; any engine
// that opens the database creates it.
//
// SubmitTx applies the same rules as Submit. It accepts or refuses each submission independently of
// the others; the Err of a refused submission's Submitted says why. An error of the call itself
// means that no submission was accepted; the transaction remains usable unless its connection is
// lost. A submission must not have a parent, since only the run of the parent can start a child. Its Actor is
// stored as it is, because a program that can write the database needs no key.
//
// Until the transaction ends, it locks its execution ids and idempotency keys, including the keys that Belay computes
// from contents: another submission with the same id or key gets CodeUnavailable after about a second. The isolation
// level should be READ COMMITTED, PostgreSQL's default. At a stricter level, SubmitTx returns CodeUnavailable for a key
// under which another program has submitted since the transaction began.
func SubmitTx(ctx context.Context, tx pgx.Tx, s ...belay.Submission) ([]belay.Submitted, error) {
	const op = "submit in a transaction"
	var commands []machine.Command
	var which []int // the submissions of the commands
	out := make([]belay.Submitted, len(s))
	for i := range s {
		if s[i].Parent != nil {
			return nil, &belay.Error{
				Code: belay.CodeInvalid, Op: op,
				Message: "only the run of the parent can start a child, outside of a transaction",
			}
		}
		one, err := catalog.Notified(s[i])
		if one.ID.IsZero() {
			one.ID = belay.ExecutionID(NewID())
		}
		if out[i] = (belay.Submitted{ID: one.ID, Err: err}); err == nil {
			commands, which = append(commands, &machine.Submit{Submission: one, Joined: true}), append(which, i)
		}
	}
	if len(commands) == 0 {
		return out, nil
	}
	var replies []machine.Reply
	err := postgres.Join(ctx, tx, machine.NeedOf(commands), func(rows *machine.Rows) (changes *machine.Changes) {
		changes, replies = machine.Fold(rows, commands)
		return changes
	})
	if err != nil {
		return nil, err
	}
	for n, r := range replies {
		i := which[n]
		if r.Err == nil {
			out[i].ID = r.ID
		}
		out[i].Replayed, out[i].Err = r.Replayed, r.Err
	}
	return out, nil
}
