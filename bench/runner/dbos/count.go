package dbos

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/belaydev/belay/bench/trial"
)

// counts counts the rows of the store directly, not through DBOS.
func (b *bed) counts(ctx context.Context, url string) ([]trial.Count, error) {
	driver, schema := "pgx", "dbos."
	if dir, ok := strings.CutPrefix(url, "sqlite:"); ok {
		driver, url, schema = "sqlite", "file:"+dir+"/dbos.db", ""
	}
	db, err := sql.Open(driver, url)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	counts := []trial.Count{
		{What: "workflows succeeded", Want: b.flows.Load()},
		{What: "workflows enqueued", Want: b.waiting.Load()},
		{What: "steps", Want: b.steps.Load()},
	}
	for i, query := range []string{
		"workflow_status WHERE status = 'SUCCESS'",
		"workflow_status WHERE status = 'ENQUEUED'",
		"operation_outputs",
	} {
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+schema+query).Scan(&counts[i].Got); err != nil {
			return nil, fmt.Errorf("count %s: %w", counts[i].What, err)
		}
	}
	return counts, nil
}
