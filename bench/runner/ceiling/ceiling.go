// Package ceiling measures the database alone, without any contender: PostgreSQL with its own
// pgbench, SQLite with one connection that commits row after row.
package ceiling

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver with which commits opens its database

	"github.com/belaydev/belay/bench/trial"
)

// Run carries out a trial.
func Run(ctx context.Context, r trial.Request) (trial.Sample, error) {
	if r.Measure != trial.Ceiling {
		return trial.Sample{}, trial.ErrNone
	}
	if dir, ok := strings.CutPrefix(r.URL, "sqlite:"); ok {
		return commits(ctx, dir, r)
	}
	b := bench{path: filepath.Join(r.Tools, "pgbench"), url: r.URL, dir: r.Dir, long: r.For}
	return b.run(ctx)
}

// bench runs pgbench.
type bench struct {
	path, url, dir string
	long           time.Duration
}

const table = `CREATE TABLE t (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	state int NOT NULL DEFAULT 0,
	body text
)`

// run measures commits of one row from 1, 16 and 64 clients, and rows written a thousand at a time.
// The better result of 16 and 64 clients is the ceiling of single commits.
func (b bench) run(ctx context.Context) (trial.Sample, error) {
	s := trial.Sample{
		Values:   make(map[string]float64),
		Settings: "pgbench -M prepared, rows of 300 bytes in a table with a primary key",
	}
	const one = "INSERT INTO t (body) VALUES (repeat('x', 300));"
	const thousand = "INSERT INTO t (body) SELECT repeat('x', 300) FROM generate_series(1, 1000);"
	for _, m := range []struct {
		name    string
		script  string
		clients int
		rows    float64
	}{{"single_1", one, 1, 1}, {"single_16", one, 16, 1}, {"single_64", one, 64, 1}, {"bulk_1", thousand, 1, 1000},
		{"bulk_2", thousand, 2, 1000}} {
		per, err := b.measure(ctx, m.script, m.clients)
		if err != nil {
			return s, err
		}
		s.Values[m.name] = per * m.rows
	}
	s.Rate = max(s.Values["single_16"], s.Values["single_64"])
	s.Values["bulk"] = max(s.Values["bulk_1"], s.Values["bulk_2"])
	return s, nil
}

var tps = regexp.MustCompile(`tps = ([0-9.]+)`)

func (b bench) measure(ctx context.Context, script string, clients int) (float64, error) {
	file := filepath.Join(b.dir, "script.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return 0, err
	}
	fresh := "DROP TABLE IF EXISTS t;" + table
	if out, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(b.path), "psql"), "-qXc", fresh,
		b.url).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("psql: %w: %s", err, out)
	}
	args := []string{"-n", "-M", "prepared", "-f", file, "-T", strconv.Itoa(max(1, int(b.long.Seconds()))), "-c",
		strconv.Itoa(clients), "-j", "2", b.url}
	out, err := exec.CommandContext(ctx, b.path, args...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	found := tps.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("pgbench says %s", out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// commits measures how many single rows of 300 bytes SQLite commits in a second, one after the
// other, with the settings of Belay's own store.
func commits(ctx context.Context, dir string, r trial.Request) (trial.Sample, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "single.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return trial.Sample{}, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)"); err != nil {
		return trial.Sample{}, err
	}
	insert, err := db.PrepareContext(ctx, "INSERT INTO t (body) VALUES (?)") //nolint:sqlclosecheck // db closes it
	if err != nil {
		return trial.Sample{}, err
	}
	body := []byte(strings.Repeat("x", 300))
	var m trial.Meter
	done, err := trial.Loop(ctx, r, 1, &m, func(ctx context.Context, _ int) error {
		_, err := insert.ExecContext(ctx, body)
		m.Add(1)
		return err
	})
	s := done.Sample()
	s.Settings = "one connection, rows of 300 bytes, journal_mode=WAL, synchronous=FULL"
	return s, err
}
