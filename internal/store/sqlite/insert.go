package sqlite

import (
	"context"
	"fmt"
	"strings"
)

// table is where rows of one shape are inserted.
type table struct {
	name  string
	width int
	texts [len(heights)]string
}

// heights are the numbers of rows that one statement inserts: more rows cost
// less each, and few numbers need few statements.
var heights = [...]int{32, 8, 1}

func newTable(name, columns string) *table {
	t := &table{name: name, width: strings.Count(columns, ",") + 1}
	for i, h := range heights {
		t.texts[i] = fmt.Sprintf("INSERT INTO %s (%s) VALUES %s", name, columns, marks(h, t.width))
	}
	return t
}

// insert adds n rows; bind gives the values of one.
func (c *conn) insert(ctx context.Context, t *table, n int, bind func(i int, a *args) error) error {
	next := 0
	for i, h := range heights {
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
