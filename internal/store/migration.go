package store

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Migration is one step of a schema.
type Migration struct {
	Version int64
	Name    string
	SQL     string
}

// Migrations are those in the folder of that name, oldest first.
func Migrations(files fs.FS) ([]Migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	all := make([]Migration, len(names))
	for i, path := range names {
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(path, "migrations/")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the version of migration %s: %w", name, err)
		}
		all[i] = Migration{version, name, string(text)}
	}
	return all, nil
}

// After are the migrations that follow a version.
func After(version int64, all []Migration) []Migration {
	for len(all) > 0 && all[0].Version <= version {
		all = all[1:]
	}
	return all
}
