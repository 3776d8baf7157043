package chaos

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver with which query reads a data directory
)

// The stores in which the servers may keep their state.
const (
	onPostgres = "postgres" // several servers on one database
	onSQLite   = "sqlite"   // one server with its data directory
)

// query queries the store directly, not through the servers. It returns the rows in the format of
// psql, with fields separated by bars.
func (w *world) query(text string) (string, error) {
	if w.store == onPostgres {
		return w.database.Query(w.name(), text)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.path("data"), "belay.db")+
		"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		return "", err
	}
	defer db.Close()
	rows, err := db.QueryContext(w.t.Context(), text)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for rows.Next() {
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return "", err
		}
		for i, v := range row {
			if i > 0 {
				out.WriteByte('|')
			}
			fmt.Fprint(&out, v)
		}
		out.WriteByte('\n')
	}
	return strings.TrimSpace(out.String()), rows.Err()
}

// name returns the name of the database.
func (w *world) name() string {
	path, _, _ := strings.Cut(w.url, "?")
	return filepath.Base(path)
}
