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

// conn is one connection with its prepared statements. It is used by one
// goroutine at a time. database/sql is left out: at a hundred thousand rows a
// second its locks and copies are what one would mostly wait for.
type conn struct {
	driver.Conn
	statements map[string]driver.Stmt
	policies   table.Parsed[belay.Policy]
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

// maxStatements bounds what a connection keeps prepared; lists come in many
// shapes.
const maxStatements = 256

// prepare gives the statement for the text, made once for the connection. None
// is in use while another is prepared.
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

// exec runs a statement with the arguments gathered in c.args, and forgets them.
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

// query runs a statement with the arguments gathered in c.args, and forgets
// them. It shows each row to the callback, which must not run another statement
// and must not keep the slice.
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

// lists are the lengths of the lists of ids in statements: few, so that there
// are few statements.
var lists = [...]int{1, 4, 16, 64, 256}

// some runs a query that ends in IN for ids.
func some[ID ~[16]byte](ctx context.Context, c *conn, text string, ids []ID, row func(columns) error) error {
	return inLists(c, ids, func(list string) error { return c.query(ctx, text+list, row) })
}

// each runs a statement that ends in IN for ids.
func each[ID ~[16]byte](ctx context.Context, c *conn, text string, ids []ID) error {
	return inLists(c, ids, func(list string) error {
		_, err := c.exec(ctx, text+list)
		return err
	})
}

// inLists cuts ids into lists of a few sizes, so that few statements are prepared, and calls
// do once for each list: with its placeholders, and with its ids as the arguments. The last
// id of a list is repeated until the list is full, which changes no result.
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
		if err := do(marks(1, size)); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// args gathers the arguments of a statement. What is zero is NULL where it says so.
type args []driver.NamedValue

func (a *args) reset() { *a = (*a)[:0] }

func (a *args) add(v driver.Value) *args {
	*a = append(*a, driver.NamedValue{Ordinal: len(*a) + 1, Value: v})
	return a
}

func (a *args) int(v int64) *args { return a.add(v) }

func (a *args) text(v string) *args { return a.add(v) }

// blob adds bytes that the caller leaves alone until the statement ran.
func (a *args) blob(v []byte) *args { return a.add(v) }

func (a *args) intOrNull(v int64) *args {
	if v == 0 {
		return a.add(nil)
	}
	return a.add(v)
}

// columns are the values of one row. The tables are STRICT, so a value is of its
// column's type or NULL, which reads as zero.
type columns []driver.Value

func (c columns) int(i int) int64 {
	v, _ := c[i].(int64)
	return v
}

func (c columns) text(i int) string {
	v, _ := c[i].(string)
	return v
}

// blob is the row's own copy.
func (c columns) blob(i int) []byte {
	v, _ := c[i].([]byte)
	return v
}

func (c columns) id(i int) (id [16]byte) {
	copy(id[:], c.blob(i))
	return id
}

// Int and the methods after it make columns a table.Row.
func (c columns) Int(i int) int64   { return c.int(i) }
func (c columns) Text(i int) string { return c.text(i) }
func (c columns) Word(i int) string { return c.text(i) }
func (c columns) Raw(i int) []byte  { return c.blob(i) }
func (c columns) Blob(i int) []byte { return c.blob(i) }

// marks is a list of n rows of placeholders of a width: (?,?),(?,?).
func marks(n, width int) string {
	row := "(" + strings.TrimSuffix(strings.Repeat("?,", width), ",") + ")"
	return strings.TrimSuffix(strings.Repeat(row+",", n), ",")
}

// ignore is for statements whose rows say nothing.
func ignore(columns) error { return nil }

// number is for those that answer with one.
func number(n *int64) func(columns) error {
	return func(r columns) error {
		*n = r.int(0)
		return nil
	}
}

// idsInto is for those that answer with ids.
func idsInto[ID ~[16]byte](all *[]ID) func(columns) error {
	return func(r columns) error {
		*all = append(*all, r.id(0))
		return nil
	}
}
