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

// Pending gives the migrations that Migrate would run, oldest first, and changes
// nothing. It may be asked beside an engine.
func Pending(ctx context.Context, path string) ([]Migration, error) {
	left, err := pending(ctx, path)
	return left, classify("look at the schema of "+path, err)
}

// Migrate brings a database that no engine uses to the newest schema, creating it
// if need be, and answers with what it ran.
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

// known are all migrations, oldest first.
func known() ([]Migration, error) { return store.Migrations(migrations) }

// schemaAt is the schema that a database has, 0 if it is empty or not there.
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
