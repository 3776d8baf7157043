package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/postgres"
	"github.com/belaydev/belay/internal/store/sqlite"
)

// Migration is one change of a store's schema.
type Migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
	SQL     string `json:"sql"`
}

// Migrate brings the schema of a store, sqlite:DIR or postgres://…, up to date and returns the
// migrations that it carried out. With dryRun, it carries out no migration and returns the pending
// migrations. An engine migrates in the same way when it opens a store. Concurrent migrations of
// one store run one after the other; no process may use a data directory during its migration.
// Migrate refuses a schema that is newer than this Belay with CodeInternal, unless the schema of a
// PostgreSQL database records that this Belay may use it: then there is nothing to do.
func Migrate(ctx context.Context, url string, dryRun bool) ([]Migration, error) {
	if onPostgres(url) {
		run := postgres.Migrate
		if dryRun {
			run = postgres.Pending
		}
		steps, err := run(ctx, url)
		return listed(steps), err
	}
	dir, err := directory("migrate", url)
	if err != nil {
		return nil, err
	}
	run := sqlite.Pending
	if !dryRun {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the data directory: %w", err)
		}
		l, err := acquire(ctx, dir, "a migration")
		if err != nil {
			return nil, err
		}
		defer l.release()
		run = sqlite.Migrate
	}
	steps, err := run(ctx, filepath.Join(dir, database))
	return listed(steps), err
}

func onPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres:") || strings.HasPrefix(url, "postgresql:")
}

func listed(steps []store.Migration) []Migration {
	all := make([]Migration, len(steps))
	for i, m := range steps {
		all[i] = Migration(m)
	}
	return all
}
