package postgres

import (
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/table"
)

var (
	insertLetters = insert(table.DeadLetters)
	letterChanges = table.DeadLetters.Only("resolution, resolved_by, resolved_at, notes, execution, generation")
	updateLetters = counted(update(letterChanges, "execution, generation"), len(letterChanges.Columns))

	// The rows need no lock: the commands that change a dead letter have locked its execution.
	loadLetters = "SELECT d.* FROM (SELECT unnest($1::uuid[]) AS id, unnest($2::bigint[]) AS generation) u " +
		"CROSS JOIN LATERAL (SELECT " + table.DeadLetters.Names() + " FROM dead_letters WHERE execution = u.id " +
		"AND (u.generation = 0 OR generation = u.generation) ORDER BY generation DESC LIMIT 1) d"

	// The subquery reads the execution of each row that is listed, and of no other.
	listLetters = "SELECT " + table.DeadLetters.Names() + ", (SELECT workflow FROM executions WHERE id = execution)" +
		" FROM dead_letters WHERE (at, execution, generation) < ($1::bigint, $2::uuid, $3::bigint) AND at >= $5::bigint"
	openLetters    = " AND resolution IS NULL"
	lettersOf      = " AND execution = $6::uuid"
	orderOfLetters = " ORDER BY at DESC, execution DESC, generation DESC LIMIT $4::bigint"
)

// writeLetters adds dead letters and changes existing ones.
func (t *tx) writeLetters(p *pipe, c *machine.Changes) error {
	fresh, changed := split(c.DeadLetters, func(d *machine.DeadLetter) bool { return d.New })
	if len(fresh) > 0 {
		bind(p.add(insertLetters, nil), table.DeadLetters, fresh)
	}
	if len(changed) > 0 {
		bind(change(p, updateLetters, "dead letters", len(changed)), letterChanges, changed).int(int64(len(changed)))
	}
	return nil
}

// loadLetters loads dead letters, each once.
func (t *tx) loadLetters(p *pipe, refs []machine.LetterRef) {
	if refs = unique(refs); len(refs) == 0 {
		return
	}
	seen := make(map[machine.LetterRef]bool)
	s := p.add(loadLetters, func(r columns) error {
		d, err := table.Scan(table.DeadLetters, r)
		if err != nil {
			return err
		}
		if ref := (machine.LetterRef{Execution: d.Execution, Generation: d.Generation}); !seen[ref] {
			seen[ref] = true
			t.rows.Letters = append(t.rows.Letters, d)
		}
		return nil
	})
	uuids(s, refs, func(r machine.LetterRef) [16]byte { return r.Execution })
	ints(s, int8s, refs, func(r machine.LetterRef) int64 { return int64(r.Generation) })
}

// listLettersOf lists dead letters, the newest first.
func listLettersOf(p *pipe, q store.Query, last machine.DeadLetter, f *store.Filling, rows int64) {
	text := listLetters
	if q.Letters.Open {
		text += openLetters
	}
	if !q.Letters.Execution.IsZero() {
		text += lettersOf
	}
	full := false
	s := p.add(text+orderOfLetters, func(r columns) error {
		d, err := table.Scan(table.DeadLetters, r)
		if err == nil && !full {
			full = !f.Letter(store.Letter{DeadLetter: d, Workflow: r.text(len(table.DeadLetters.Columns))}, q.Letters)
		}
		return err
	}).int(int64(last.At)).id(last.Execution).int(int64(last.Generation)).int(q.Letters.Read(rows)).
		int(int64(q.Letters.Since))
	if !q.Letters.Execution.IsZero() {
		s.id(q.Letters.Execution)
	}
}
