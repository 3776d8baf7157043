package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store/table"
)

// conn is one connection with its prepared statements. Only one goroutine may use it at a time. It
// does not use database/sql, because at a hundred thousand rows a second the locks and copies of
// that package would take most of the time.
type conn struct {
	driver.Conn
	statements map[string]driver.Stmt
	shared     table.SharedCache
	specs      table.Parsed[belay.WorkerSpec]
	args       args
	dest       []driver.Value
}

func connect(ctx context.Context, c driver.Connector) (*conn, error) {
	dc, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: dc, statements: make(map[string]driver.Stmt)}, nil
}

// close ends the connection and its statements.
func (c *conn) close() error { return errors.Join(c.forget(), c.Conn.Close()) }

// forget closes all statements.
func (c *conn) forget() error {
	var all []error
	for _, s := range c.statements {
		all = append(all, s.Close())
	}
	clear(c.statements)
	return errors.Join(all...)
}

// maxStatements is the maximum number of prepared statements of a connection; lists have many
// different statements.
const maxStatements = 256

// prepare returns the statement for a text, prepared once for the connection. No other statement of
// the connection may be in use, because prepare may close all of them.
func (c *conn) prepare(ctx context.Context, text string) (driver.Stmt, error) {
	if s := c.statements[text]; s != nil {
		return s, nil
	}
	if len(c.statements) >= maxStatements {
		if err := c.forget(); err != nil {
			return nil, err
		}
	}
	p, ok := c.Conn.(driver.ConnPrepareContext)
	if !ok {
		return nil, errors.New("the driver cannot prepare with a context")
	}
	s, err := p.PrepareContext(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("prepare %q: %w", table.Clip(text), err)
	}
	c.statements[text] = s
	return s, nil
}

// exec runs a statement with the arguments in c.args, and clears them.
func (c *conn) exec(ctx context.Context, text string) (int64, error) {
	defer c.args.reset()
	s, err := c.prepare(ctx, text)
	if err != nil {
		return 0, err
	}
	x, ok := s.(driver.StmtExecContext)
	if !ok {
		return 0, errors.New("the driver cannot execute with a context")
	}
	r, err := x.ExecContext(ctx, c.args)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", table.Clip(text), err)
	}
	return r.RowsAffected()
}

// query runs a statement with the arguments in c.args, and clears them. It passes each row to the
// callback, which must not run another statement and must not keep the slice.
func (c *conn) query(ctx context.Context, text string, row func(columns) error) (err error) {
	defer c.args.reset()
	s, err := c.prepare(ctx, text)
	if err != nil {
		return err
	}
	q, ok := s.(driver.StmtQueryContext)
	if !ok {
		return errors.New("the driver cannot query with a context")
	}
	rows, err := q.QueryContext(ctx, c.args)
	if err != nil {
		return fmt.Errorf("%s: %w", table.Clip(text), err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	n := len(rows.Columns())
	if cap(c.dest) < n {
		c.dest = make([]driver.Value, n)
	}
	for {
		err := rows.Next(c.dest[:n])
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", table.Clip(text), err)
		}
		if err := row(c.dest[:n]); err != nil {
			return err
		}
	}
}

// lists are the lengths of the lists of ids in statements. Few lengths make few different
// statements, which can all stay prepared.
var lists = [...]int{1, 4, 16, 64, 256}

// some runs a query whose text ends with IN for all ids, in lists of limited length.
func some[ID ~[16]byte](ctx context.Context, c *conn, text string, ids []ID, row func(columns) error) error {
	return inLists(c, ids, func(list string) error { return c.query(ctx, text+list, row) })
}

// each runs a statement whose text ends with IN for all ids, in lists of limited length.
func each[ID ~[16]byte](ctx context.Context, c *conn, text string, ids []ID) error {
	return inLists(c, ids, func(list string) error {
		_, err := c.exec(ctx, text+list)
		return err
	})
}

// inLists divides ids into lists of a few lengths, so that few statements are prepared. It calls do
// once for each list, with the list's placeholders, and with its ids as the arguments. The last id
// of a list is repeated until the list is full, which changes no result.
func inLists[ID ~[16]byte](c *conn, ids []ID, do func(list string) error) error {
	for len(ids) > 0 {
		size := lists[len(lists)-1]
		for _, l := range lists {
			if l >= len(ids) {
				size = l
				break
			}
		}
		n := min(size, len(ids))
		for i := range size {
			c.args.blob(ids[min(i, n-1)][:])
		}
		if err := do(placeholders(1, size)); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// args are the arguments of a statement.
type args []driver.NamedValue

func (a *args) reset() { *a = (*a)[:0] }

func (a *args) add(v driver.Value) *args {
	*a = append(*a, driver.NamedValue{Ordinal: len(*a) + 1, Value: v})
	return a
}

func (a *args) int(v int64) *args { return a.add(v) }

func (a *args) text(v string) *args { return a.add(v) }

// blob adds bytes. The caller must not change them before the statement has run.
func (a *args) blob(v []byte) *args { return a.add(v) }

func (a *args) intOrNull(v int64) *args {
	if v == 0 {
		return a.add(nil)
	}
	return a.add(v)
}

// columns are the values of one row. The tables are STRICT, so a value has its column's type or is
// NULL, which reads as zero.
type columns []driver.Value

func (c columns) int(i int) int64 {
	v, _ := c[i].(int64)
	return v
}

func (c columns) text(i int) string {
	v, _ := c[i].(string)
	return v
}

// blob returns a value that the driver has copied for this row, so the caller may keep it.
func (c columns) blob(i int) []byte {
	v, _ := c[i].([]byte)
	return v
}

func (c columns) id(i int) (id [16]byte) {
	copy(id[:], c.blob(i))
	return id
}

// Int and the methods after it implement table.Row.
func (c columns) Int(i int) int64   { return c.int(i) }
func (c columns) Text(i int) string { return c.text(i) }
func (c columns) Word(i int) string { return c.text(i) }
func (c columns) Raw(i int) []byte  { return c.blob(i) }
func (c columns) Blob(i int) []byte { return c.blob(i) }

// placeholders is a list of n rows of placeholders of the given width: (?,?),(?,?).
func placeholders(n, width int) string {
	row := "(" + strings.TrimSuffix(strings.Repeat("?,", width), ",") + ")"
	return strings.TrimSuffix(strings.Repeat(row+",", n), ",")
}

// ignore is a callback of query for statements whose rows are not needed.
func ignore(columns) error { return nil }

// number is a callback of query for statements that return one number.
func number(n *int64) func(columns) error {
	return func(r columns) error {
		*n = r.int(0)
		return nil
	}
}

// idsInto is a callback of query for statements that return ids.
func idsInto[ID ~[16]byte](all *[]ID) func(columns) error {
	return func(r columns) error {
		*all = append(*all, r.id(0))
		return nil
	}
}
