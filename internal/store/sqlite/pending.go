package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/belaydev/belay/internal/store"
)

// Migration is one step of the schema.
type Migration = store.Migration

// Pending returns the migrations that Migrate would run, oldest first, and changes nothing. It may
// be called while an engine uses the database.
func Pending(ctx context.Context, path string) ([]Migration, error) {
	left, err := pending(ctx, path)
	return left, classify("look at the schema of "+path, err)
}

// Migrate brings a database that no engine uses to the newest schema, and creates the database if
// necessary. It returns the migrations that it ran.
func Migrate(ctx context.Context, path string) ([]Migration, error) {
	left, err := pending(ctx, path)
	if err == nil && len(left) > 0 {
		var o Options
		if err = o.file(path); err == nil {
			err = migrate(ctx, path, o)
		}
	}
	return left, classify("migrate "+path, err)
}

func pending(ctx context.Context, path string) ([]Migration, error) {
	all, err := known()
	if err != nil {
		return nil, err
	}
	have, err := schemaAt(ctx, path)
	if err != nil {
		return nil, err
	}
	if want := all[len(all)-1].Version; have > want {
		return nil, tooNew(have, want)
	}
	return store.After(have, all), nil
}

// known returns all migrations, oldest first.
func known() ([]Migration, error) { return store.Migrations(migrations) }

// schemaAt returns the schema version of a database, 0 if it is empty or does not exist.
func schemaAt(ctx context.Context, path string) (have int64, err error) {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	c, err := connectTo(ctx, sourceOf(path, true))
	if err != nil {
		return 0, err
	}
	defer func() { err = firstOf(err, c.close()) }()
	return c.version(ctx)
}
