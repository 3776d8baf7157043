package store

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Migration is one step of a database schema.
type Migration struct {
	Version int64
	Name    string
	SQL     string
}

// Migrations reads the files in the folder migrations, oldest first.
func Migrations(files fs.FS) ([]Migration, error) {
	tableNames, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	all := make([]Migration, len(tableNames))
	for i, path := range tableNames {
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

// After lists the migrations after a version.
func After(version int64, all []Migration) []Migration {
	for len(all) > 0 && all[0].Version <= version {
		all = all[1:]
	}
	return all
}
