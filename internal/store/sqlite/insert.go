package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/belaydev/belay/internal/store/table"
)

// insertion has the INSERT statements for one list of columns of a table, one statement for each
// number in rowsPerInsert.
type insertion struct {
	width int
	texts [len(rowsPerInsert)]string
}

// rowsPerInsert are the numbers of rows that one statement inserts. A statement with more rows
// costs less for each row, and few different numbers need few statements.
var rowsPerInsert = [...]int{32, 8, 1}

func newTable(name, columns string) *insertion {
	t := &insertion{width: strings.Count(columns, ",") + 1}
	for i, h := range rowsPerInsert {
		t.texts[i] = fmt.Sprintf("INSERT INTO %s (%s) VALUES %s", name, columns, placeholders(h, t.width))
	}
	return t
}

// insert adds n rows; bind adds the values of row i to the arguments.
func (c *conn) insert(ctx context.Context, t *insertion, n int, bind func(i int, a *args) error) error {
	next := 0
	for i, h := range rowsPerInsert {
		for n-next >= h {
			for range h {
				if err := bind(next, &c.args); err != nil {
					c.args.reset()
					return err
				}
				next++
			}
			if _, err := c.exec(ctx, t.texts[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// inserting is a table with the statements that insert into it.
type inserting[R any] struct {
	*table.Table[R]
	*insertion
}

func insertInto[R any](t *table.Table[R]) inserting[R] {
	return inserting[R]{t, newTable(t.Name, t.Names())}
}

// add inserts rows.
func (x inserting[R]) add(t *tx, rows ...*R) error {
	return t.insert(t.ctx, x.insertion, len(rows), func(i int, a *args) error {
		bind(a, x.Table, rows[i])
		return nil
	})
}

// changing is the statement that changes one row of a table. The last columns of the table name the
// row.
type changing[R any] struct {
	*table.Table[R]
	text string
}

// change returns an update of some columns of a table. The columns in where name the row.
func change[R any](t *table.Table[R], set, where string) changing[R] {
	return changing[R]{
		t.Only(set + ", " + where), "UPDATE " + t.Name + " SET " + given(set, ", ") + " WHERE " + given(where, " AND "),
	}
}

func given(names, sep string) string { return strings.ReplaceAll(names, ", ", " = ?"+sep) + " = ?" }

// and adds a condition to the statement.
func (x changing[R]) and(condition string) changing[R] {
	return changing[R]{x.Table, x.text + " AND " + condition}
}

// in changes a row, and returns the number of changed rows.
func (x changing[R]) in(t *tx, r *R) (int64, error) {
	bind(&t.args, x.Table, r)
	return t.exec(t.ctx, x.text)
}

// must changes a row that must exist.
func (x changing[R]) must(t *tx, id any, r *R) error {
	bind(&t.args, x.Table, r)
	return t.changed("the row of "+x.Name, id, x.text)
}

// bind adds the columns of a row to the arguments.
func bind[R any](a *args, t *table.Table[R], r *R) {
	for i := range t.Columns {
		bindColumn(a, &t.Columns[i], r)
	}
}

func bindColumn[R any](a *args, c *table.Column[R], r *R) {
	null := c.Zero == table.Null
	switch c.Kind {
	case table.String:
		if v := c.Text(r); v == "" && null {
			a.add(nil)
		} else {
			a.add(v)
		}
	case table.UUID:
		if v := c.Bytes(r); null && [16]byte(v) == ([16]byte{}) {
			a.add(nil)
		} else {
			a.add(v)
		}
	case table.Bytes:
		if v := c.Bytes(r); null && len(v) == 0 {
			a.add(nil)
		} else {
			a.add(v)
		}
	default:
		a.number(c.Zero, c.Int(r))
	}
}

// number adds an integer.
func (a *args) number(zero table.Zero, v int64) {
	if v == 0 && zero == table.Null {
		a.add(nil)
	} else {
		a.add(v)
	}
}
