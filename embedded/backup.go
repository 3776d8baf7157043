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

// Snapshot describes the contents of a backup of a data directory.
type Snapshot struct {
	File       string `json:"file"`
	Bytes      int64  `json:"bytes"`
	Executions int64  `json:"executions"`
	// Events is the number of transitions in the histories of all executions.
	Events int64 `json:"events"`
	// Owned is how many executions were owned by a worker or another owner, and Sessions is how
	// many sessions of workers and other owners were open.
	Owned    int64 `json:"owned"`
	Sessions int64 `json:"sessions"`
	Schema   int64 `json:"schema"`
	// Epoch is a lower bound of later tokens: each claim after the backup gets a larger token.
	Epoch belay.Token `json:"epoch"`
	// Mark is the time at which an engine last wrote to the store, by the engine's clock. It is
	// zero if no engine ever wrote.
	Mark time.Time `json:"mark,omitzero"`
}

func snapshot(file string, s sqlite.Snapshot) Snapshot {
	return Snapshot{
		File: file, Bytes: s.Bytes, Executions: s.Executions, Events: s.Events, Owned: s.Owned, Sessions: s.Sessions,
		Schema: s.Schema, Epoch: s.Epoch, Mark: s.Mark.Time(),
	}
}

// CopyOptions are options of Backup and Restore. The zero value has good defaults.
type CopyOptions struct {
	// Force lets a backup replace an existing file, and a restore replace an existing database. The
	// restore moves the replaced database aside and keeps it.
	Force bool
	// Progress, if set, is called from time to time with the number of database pages that were
	// copied and with the number of all pages.
	Progress func(done, total int)
}

// Backup writes a copy of the database of sqlite:DIR, in its current state, to a file. The
// parameter to is the path of this file, or a directory in which Backup chooses the file's name.
// Backup may run while an engine of this or another process uses the data directory, and does not
// block that engine. The backup has all writes that were acknowledged before Backup was called.
//
// The copy gets its final name only after Backup has checked it for damage and synced it to the
// disk. If Backup returns an error, an existing file of that name is unchanged. Only the owner of
// the copy may read it.
//
// Backup returns CodeConflict if a file of that name exists and Force is not set, and CodeNotFound
// if there is no database.
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
	if err := checkTarget(to, dir, o.Force); err != nil {
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

// database is the name of the database file in a data directory.
const database = "belay.db"

// directory returns the data directory that the URL of a store names.
func directory(op, url string) (string, error) {
	kind, dir, _ := strings.Cut(url, ":")
	switch {
	case kind == "sqlite" && dir != "":
		return strings.TrimPrefix(dir, "//"), nil
	case onPostgres(url):
		return "", &belay.Error{
			Code: belay.CodeInvalid, Op: op,
			Message: "use the tools of PostgreSQL for that, pg_dump and pg_basebackup; see docs/operations.md",
		}
	}
	return "", &belay.Error{Code: belay.CodeInvalid, Op: op, Message: "the store must be sqlite:DIR"}
}

// present returns the path of the database in a data directory, or CodeNotFound if there is none.
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

// checkTarget refuses the name of a backup if the file exists and force is not set, or if the name
// lies in the data directory itself.
func checkTarget(to, dir string, force bool) error {
	op := "back up to " + to
	info, err := os.Lstat(to)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return &belay.Error{Code: belay.CodeInvalid, Op: op, Message: "the path exists and is not a regular file"}
	case err == nil && !force:
		return &belay.Error{
			Code: belay.CodeConflict, Op: op,
			Message: "the file exists; name another, or overwrite it with --force",
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
			Message: "the file would be in the data directory and would be lost together with it; name a place elsewhere",
		}
	}
	return nil
}

// unique returns the name of an unused temporary file in the same directory as the path to.
func unique(to string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*.part")
	if err != nil {
		return "", fmt.Errorf("back up to %s: %w", to, err)
	}
	made := f.Name()
	return made, errors.Join(f.Close(), os.Remove(made))
}

// name moves the finished file from the path made to its final path, the parameter to, and syncs the directory. Unless
// force is set, it replaces no existing file.
func name(made, to string, force bool) error {
	if !force {
		err := os.Link(made, to)
		switch {
		case err == nil:
			return errors.Join(os.Remove(made), syncDir(filepath.Dir(to)))
		case errors.Is(err, fs.ErrExist):
			return err
		}
		if _, err := os.Lstat(to); err == nil { // the file system may not support hard links
			return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
		}
	}
	if err := os.Rename(made, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// syncDir syncs a directory, so that its file names survive a power loss.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
