package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store/sqlite"
)

// Snapshot says what a backup of a data directory holds.
type Snapshot struct {
	File       string `json:"file"`
	Bytes      int64  `json:"bytes"`
	Executions int64  `json:"executions"`
	// Events is how many transitions the histories of all executions have
	// together.
	Events int64 `json:"events"`
	// Owned is how many executions a worker had, and Sessions how many
	// workers and owners from outside there were.
	Owned    int64 `json:"owned"`
	Sessions int64 `json:"sessions"`
	Schema   int64 `json:"schema"`
	// Epoch is below every token that is given out from then on.
	Epoch belay.Token `json:"epoch"`
	// Mark is when an engine last wrote, by its clock; zero if none ever did.
	Mark time.Time `json:"mark,omitzero"`
}

func snapshot(file string, s sqlite.Snapshot) Snapshot {
	return Snapshot{
		File: file, Bytes: s.Bytes, Executions: s.Executions, Events: s.Events, Owned: s.Owned, Sessions: s.Sessions,
		Schema: s.Schema, Epoch: s.Epoch, Mark: s.Mark.Time(),
	}
}

// CopyOptions say how to back up or restore. The zero value will do.
type CopyOptions struct {
	// Force lets a backup take the place of another file, and a restore that
	// of a database, which is moved aside and kept.
	Force bool
	// Progress, if set, is told now and then how many pages of the database
	// are copied.
	Progress func(done, total int)
}

// Backup copies the database of sqlite:DIR, as it is at this moment, to a file,
// or to a new file in a directory. It may run beside the engine, in this process
// or another: nobody is held up. All that was acknowledged before Backup was
// called is in the file. It is looked through for damage, on the disk, and for
// its owner only, before it gets its name; until then, or after an error, nothing
// is at that name, or what was there before.
//
// CodeConflict if there is a file and Force is not set, CodeNotFound if there is
// no database.
func Backup(ctx context.Context, url, to string, o CopyOptions) (Snapshot, error) {
	dir, err := directory("back up", url)
	if err != nil {
		return Snapshot{}, err
	}
	path, err := present("back up "+url, dir)
	if err != nil {
		return Snapshot{}, err
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() {
		to = filepath.Join(to, time.Now().UTC().Format("belay-20060102T150405Z.db"))
	}
	if err := mayBe(to, dir, o.Force); err != nil {
		return Snapshot{}, err
	}
	made, err := unique(to)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := sqlite.Backup(ctx, path, made, o.Progress)
	if err != nil {
		return Snapshot{}, err
	}
	if err := name(made, to, o.Force); err != nil {
		return Snapshot{}, errors.Join(fmt.Errorf("name the backup: %w", err), os.Remove(made))
	}
	return snapshot(to, s), nil
}

// database is the file of a data directory that everything is in.
const database = "belay.db"

// directory is the data directory of a store.
func directory(op, url string) (string, error) {
	kind, dir, _ := strings.Cut(url, ":")
	switch {
	case kind == "sqlite" && dir != "":
		return strings.TrimPrefix(dir, "//"), nil
	case onPostgres(url):
		return "", &belay.Error{
			Code: belay.CodeInvalid, Op: op,
			Message: "PostgreSQL has tools of its own for that, pg_dump and pg_basebackup; see docs/operations.md",
		}
	}
	return "", &belay.Error{Code: belay.CodeInvalid, Op: op, Message: "the store must be sqlite:DIR"}
}

// present is the path of the database that is in a data directory.
func present(op, dir string) (string, error) {
	path := filepath.Join(dir, database)
	_, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", &belay.Error{Code: belay.CodeNotFound, Op: op, Message: "there is no Belay data in " + dir}
	case err != nil:
		return "", fmt.Errorf("%s: %w", op, err)
	}
	return path, nil
}

// mayBe refuses a name that is taken, or is in the data directory itself.
func mayBe(to, dir string, force bool) error {
	op := "back up to " + to
	info, err := os.Lstat(to)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return &belay.Error{Code: belay.CodeInvalid, Op: op, Message: "it is not a file"}
	case err == nil && !force:
		return &belay.Error{
			Code: belay.CodeConflict, Op: op,
			Message: "there is such a file; name another, or overwrite it with --force",
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", op, err)
	}
	folder, err := os.Stat(filepath.Dir(to))
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if data, err := os.Stat(dir); err == nil && os.SameFile(folder, data) {
		return &belay.Error{
			Code: belay.CodeInvalid, Op: op,
			Message: "that is in the data directory: what takes the one takes the other; name a place elsewhere",
		}
	}
	return nil
}

// unique is a name beside another that nothing has.
func unique(to string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*.part")
	if err != nil {
		return "", fmt.Errorf("back up to %s: %w", to, err)
	}
	made := f.Name()
	return made, errors.Join(f.Close(), os.Remove(made))
}

// name gives a finished file its name and makes that last. Without force it
// takes nobody's.
func name(made, to string, force bool) error {
	if !force {
		err := os.Link(made, to)
		switch {
		case err == nil:
			return errors.Join(os.Remove(made), syncDir(filepath.Dir(to)))
		case errors.Is(err, fs.ErrExist):
			return err
		}
		if _, err := os.Lstat(to); err == nil { // a file system without links
			return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
		}
	}
	if err := os.Rename(made, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// syncDir makes the names in a directory survive power loss.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
