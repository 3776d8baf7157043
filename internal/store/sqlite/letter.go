package sqlite

import (
	"context"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

var (
	insertLetters = insertInto(table.DeadLetters)
	changeLetter  = change(table.DeadLetters, "resolution, resolved_by, resolved_at, notes", "execution, generation")
	selectLetters = selecting(table.DeadLetters)

	listLetters = "SELECT " + table.DeadLetters.Names() + ", (SELECT workflow FROM executions WHERE id = execution)" +
		" FROM dead_letters WHERE (at, execution, generation) < (?, ?, ?) AND at >= ?"
)

const (
	newestLetter   = " WHERE execution = ?1 AND (?2 = 0 OR generation = ?2) ORDER BY generation DESC LIMIT 1"
	openLetters    = " AND resolution IS NULL"
	lettersOf      = " AND execution = ?"
	orderOfLetters = " ORDER BY at DESC, execution DESC, generation DESC LIMIT ?"
)

// writeLetters adds dead letters and changes existing ones.
func (t *tx) writeLetters(c *machine.Changes) error {
	for _, d := range c.DeadLetters {
		var err error
		if d.New {
			err = insertLetters.add(t, d)
		} else {
			_, err = changeLetter.in(t, d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// loadLetters loads dead letters, each once.
func (t *tx) loadLetters(rows *machine.Rows, refs []machine.LetterRef) error {
	seen := make(map[machine.LetterRef]bool)
	for _, ref := range unique(refs) {
		t.args.blob(ref.Execution[:]).int(int64(ref.Generation))
		err := t.query(t.ctx, selectLetters+newestLetter, func(r columns) error {
			d, err := table.Scan(table.DeadLetters, r)
			if err != nil {
				return err
			}
			if ref := (machine.LetterRef{Execution: d.Execution, Generation: d.Generation}); !seen[ref] {
				seen[ref] = true
				rows.Letters = append(rows.Letters, d)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// listLettersOf lists dead letters, the newest first.
func (c *conn) listLettersOf(ctx context.Context, q store.Query, last machine.DeadLetter, f *store.Filling,
	rows int64) error {
	c.args.int(int64(last.At)).blob(last.Execution[:]).int(int64(last.Generation)).int(int64(q.Letters.Since))
	text := listLetters
	if q.Letters.Open {
		text += openLetters
	}
	if !q.Letters.Execution.IsZero() {
		text += lettersOf
		c.args.blob(q.Letters.Execution[:])
	}
	c.args.int(q.Letters.Read(rows))
	return c.query(ctx, text+orderOfLetters, func(r columns) error {
		d, err := table.Scan(table.DeadLetters, r)
		if err != nil {
			return err
		}
		if !f.Letter(store.Letter{DeadLetter: d, Workflow: r.text(len(table.DeadLetters.Columns))}, q.Letters) {
			return errFull
		}
		return nil
	})
}
