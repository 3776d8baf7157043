package belay

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
)

// template is an execution whose rows are copied.
type template struct {
	id, parent belay.ExecutionID
	created    time.Time
	pending    bool
}

// copied are the tables of which rows are copied, with the column of the execution's id.
var copied = []struct{ table, id string }{
	{"executions", "id"}, {"specs", "execution"}, {"runs", "execution"}, {"checkpoints", "execution"},
	{"signals", "execution"}, {"actions", "execution"}, {"dead_letters", "execution"}, {"blobs", "execution"},
	{"blob_sums", "execution"}, {"idempotency", "execution"},
}

// database is the database of a store while nothing else uses it. The two kinds differ in a few expressions.
type database struct {
	exec    func(ctx context.Context, text string, args ...any) error
	list    func(ctx context.Context, text string) ([]string, error)
	columns string // lists the columns of the table %s
	newID   string // the id of milliseconds, the number of a template and the number of a copy
	idType  string
	letter  string // the letter with a number
	id      func(belay.ExecutionID) any
	close   func() error
}

// copyTemplates copies the rows of all templates, each r.N/endedTemplates times. A copy has another id, an idempotency
// key, labels and a message of its own, and times that lie evenly in the past.
func copyTemplates(ctx context.Context, r trial.Request, all []template, made *filled) (err error) {
	open := openSQLite
	if !strings.HasPrefix(r.URL, "sqlite:") {
		open = openPostgres
	}
	d, err := open(ctx, r)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := d.close(); err == nil {
			err = cerr
		}
	}()
	if err := d.plan(ctx, all, r.N/endedTemplates); err != nil {
		return err
	}
	for _, c := range copied {
		if err := d.copy(ctx, c.table, c.id); err != nil {
			return fmt.Errorf("copy the rows of %s: %w", c.table, err)
		}
	}
	for text, to := range map[string]*int64{
		"SELECT count(*) FROM executions": &made.executions, "SELECT count(*) FROM dead_letters": &made.letters,
	} {
		n, err := d.list(ctx, strings.Replace(text, "count(*)", "CAST(count(*) AS text)", 1))
		if err != nil {
			return err
		}
		if _, err := fmt.Sscan(n[0], to); err != nil {
			return err
		}
	}
	return nil
}

// plan makes the table bench_copies: for each copy the id of its template, its own id, that of its parent, its number,
// and by how many microseconds its times differ from those of the template.
func (d *database) plan(ctx context.Context, all []template, n int) error {
	err := d.exec(ctx, "CREATE TEMP TABLE bench_templates (i bigint, id "+d.idType+", parent bigint, at bigint, "+
		"created bigint, step bigint)")
	if err != nil {
		return err
	}
	number := make(map[belay.ExecutionID]int)
	places := make([]int64, len(all)) // in milliseconds
	for i, t := range all {
		number[t.id] = i
		span := endedSpan
		if t.pending {
			span = pendingSpan
		}
		step := span.Milliseconds() / int64(n)
		var parent any
		if places[i] = t.created.UnixMilli() + int64(i)*step/int64(len(all)); !t.parent.IsZero() {
			p := number[t.parent]
			parent, places[i] = p, places[p]+t.created.UnixMilli()-all[p].created.UnixMilli()
		}
		err := d.exec(ctx, "INSERT INTO bench_templates VALUES ($1, $2, $3, $4, $5, $6)", i, d.id(t.id), parent,
			places[i], t.created.UnixMilli(), step)
		if err != nil {
			return err
		}
	}
	return d.exec(ctx, fmt.Sprintf(`
CREATE TEMP TABLE bench_copies AS
WITH RECURSIVE c (k) AS (SELECT %d UNION ALL SELECT k - 1 FROM c WHERE k > 1)
SELECT t.id AS old, %s AS new, CASE WHEN p.i IS NOT NULL THEN %s END AS parent, c.k AS k,
    (t.at - t.created - c.k * t.step) * 1000 AS shift
FROM c CROSS JOIN bench_templates t LEFT JOIN bench_templates p ON p.i = t.parent
ORDER BY 2`, n, d.idOf("t"), d.idOf("p")))
}

// idOf returns the expression for the id of the c.k-th copy of the template with an alias.
func (d *database) idOf(t string) string {
	return fmt.Sprintf(d.newID, t+".at - c.k * "+t+".step", t+".i", "c.k")
}

// copy copies the rows of one table.
func (d *database) copy(ctx context.Context, table, id string) error {
	names, err := d.list(ctx, fmt.Sprintf(d.columns, table))
	if err != nil {
		return err
	}
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = d.value(table, name, id)
	}
	for _, text := range []string{
		fmt.Sprintf("CREATE TEMP TABLE bench_%s AS SELECT * FROM %s WHERE %s IN (SELECT id FROM bench_templates)",
			table, table, id),
		fmt.Sprintf("CREATE INDEX bench_of_%s ON bench_%s (%s)", table, table, id),
		fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM bench_copies c CROSS JOIN bench_%s s WHERE s.%s = c.old",
			table, strings.Join(names, ", "), strings.Join(values, ", "), table, id),
	} {
		if err := d.exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// value returns the expression for a column of a copy.
func (d *database) value(table, name, id string) string {
	switch {
	case name == id:
		return "c.new"
	case name == "parent":
		return "c.parent"
	case name == "child" && table == "signals": // the id of the child whose end the signal reports
		return "(SELECT " + d.idOf("t") + " FROM bench_templates t WHERE t.id = s.child)"
	case name == "at" || name == "cancel_by" || name == "admit_by" || strings.HasSuffix(name, "_at"):
		return "s." + name + " + c.shift"
	case name == "key" && table != "checkpoints":
		return "s.key || '-' || c.k"
	case name == "labels":
		return "replace(s.labels, '\"c-0\"', '\"c-' || (c.k % 2000) || '\"')"
	case name == "message":
		return "replace(s.message, 'shard a', 'shard ' || " + fmt.Sprintf(d.letter, "c.k % 26") + ")"
	}
	return "s." + name
}

func openPostgres(ctx context.Context, r trial.Request) (*database, error) {
	c, err := pgx.Connect(ctx, r.URL)
	if err != nil {
		return nil, err
	}
	d := &database{
		columns: "SELECT column_name::text FROM information_schema.columns WHERE table_name = '%s' " +
			"AND table_schema = current_schema() ORDER BY ordinal_position",
		newID: "(lpad(to_hex(%s), 12, '0') || '7' || lpad(to_hex(%s), 3, '0') || 'b' || " +
			"lpad(to_hex(%s), 15, '0'))::uuid",
		idType: "uuid", letter: "chr((97 + %s)::int)",
		id: func(id belay.ExecutionID) any { return [16]byte(id) },
		exec: func(ctx context.Context, text string, args ...any) error {
			_, err := c.Exec(ctx, text, args...)
			return err
		},
		list: func(ctx context.Context, text string) ([]string, error) {
			rows, err := c.Query(ctx, text)
			if err != nil {
				return nil, err
			}
			return pgx.CollectRows(rows, pgx.RowTo[string])
		},
	}
	d.close = func() error {
		// a database that has grown in the course of weeks has been vacuumed and analyzed
		_, err := c.Exec(ctx, "VACUUM (ANALYZE)")
		if cerr := c.Close(context.WithoutCancel(ctx)); err == nil {
			err = cerr
		}
		return err
	}
	err = d.exec(ctx, "SET synchronous_commit = off")
	return d, err
}

func openSQLite(ctx context.Context, r trial.Request) (*database, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(strings.TrimPrefix(r.URL, "sqlite:"), "belay.db")+
		"?_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)&_pragma=cache_size(-200000)&_pragma=temp_store(MEMORY)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &database{
		columns: "SELECT name FROM pragma_table_info('%s') ORDER BY cid",
		newID:   "unhex(printf('%%012x7%%03xb%%015x', %s, %s, %s))",
		idType:  "blob",
		letter:  "char(97 + %s)",
		id:      func(id belay.ExecutionID) any { return slices.Clone(id[:]) },
		exec: func(ctx context.Context, text string, args ...any) error {
			_, err := db.ExecContext(ctx, text, args...)
			return err
		},
		list: func(ctx context.Context, text string) (all []string, err error) {
			rows, err := db.QueryContext(ctx, text)
			if err != nil {
				return nil, err
			}
			defer rows.Close() // its error is that of Err
			for rows.Next() {
				var s string
				if err := rows.Scan(&s); err != nil {
					return nil, err
				}
				all = append(all, s)
			}
			return all, rows.Err()
		},
		close: db.Close,
	}, nil
}
