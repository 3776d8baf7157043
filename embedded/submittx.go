package embedded

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/postgres"
)

// SubmitTx accepts executions inside the caller's own transaction on the database
// that Belay is kept in: they are there if that is committed, and workers of all
// servers and programs on the database hear of them at that moment. If it is
// rolled back, nothing ever was. No engine needs to run in this program; the schema
// must be there, which any engine makes that opens the database.
//
// It decides and writes as Submit does. Each submission stands or falls alone, its
// error in its answer; the call's own error means that none was accepted, and then
// the transaction can go on unless its connection is lost. A submission can have no
// parent: a child is started by the run of its parent.
//
// Until the transaction ends it holds its ids and idempotency keys: who submits the
// same one meanwhile gets CodeUnavailable after a second or so. Its isolation should
// be READ COMMITTED, PostgreSQL's default; in a stricter one, what others have
// submitted under the same key since it began is CodeUnavailable here.
func SubmitTx(ctx context.Context, tx pgx.Tx, s ...belay.Submission) ([]belay.Submitted, error) {
	const op = "submit in a transaction"
	commands := make([]machine.Command, len(s))
	out := make([]belay.Submitted, len(s))
	for i := range s {
		if s[i].Parent != nil {
			return nil, &belay.Error{
				Code: belay.CodeInvalid, Op: op,
				Message: "a child is started by the run of its parent, outside of a transaction",
			}
		}
		one := s[i]
		if one.ID.IsZero() {
			one.ID = belay.ExecutionID(NewID())
		}
		out[i].ID = one.ID
		commands[i] = &machine.Submit{Submission: one}
	}
	if len(s) == 0 {
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
	for i, r := range replies {
		if r.Err == nil {
			out[i].ID = r.ID
		}
		out[i].Replayed, out[i].Err = r.Replayed, r.Err
	}
	return out, nil
}
