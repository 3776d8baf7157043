package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/store/sqlite"
)

// restoring is a restore in progress. Its process has the lock of the directory.
type restoring struct {
	file, dir string
	staging   string // the directory in which the new database is built; it remains only after a crash
	at        time.Time
	entries   []os.DirEntry
	replaces  bool // the data directory already has a database
}

// generation is the suffix of the name of a file that the SQLite store creates beside the database
// when the write-ahead log may have writes that the database file does not have.
const generation = "-generation"

// trace reports whether a file of this name is only a trace of earlier use: even a data directory without a database
// may contain the file, so the file does not prevent a restore.
func trace(name string) bool {
	return slices.Contains([]string{
		"belay.lock", "belay.sock", ".gitignore", database + ".migrate", database + generation, "restoring",
	}, name)
}

// look lists the files of the directory. It returns an error if the directory is not empty and
// force is not set.
func (r *restoring) look(force bool) error {
	var err error
	if r.entries, err = os.ReadDir(r.dir); err != nil {
		return fmt.Errorf("look into the data directory: %w", err)
	}
	for _, e := range r.entries {
		if trace(e.Name()) {
			continue
		}
		if !force {
			return &belay.Error{Code: belay.CodeConflict, Op: "restore to " + r.dir, Message: fmt.Sprintf(
				"the directory is not empty, it has %s; restore to another, or use --force, which moves a "+
					"database aside and keeps it", e.Name())}
		}
		r.replaces = r.replaces || e.Name() == database
	}
	return nil
}

func (r *restoring) run(ctx context.Context, o CopyOptions) (Restored, error) {
	if err := errors.Join(os.RemoveAll(r.staging), os.Mkdir(r.staging, 0o700)); err != nil {
		return Restored{}, fmt.Errorf("make room for the restore: %w", err)
	}
	made := filepath.Join(r.staging, database)
	s, err := sqlite.Restore(ctx, r.file, made, r.known(ctx), r.at, o.Progress)
	if err != nil {
		return Restored{}, err
	}
	done := Restored{Snapshot: snapshot(r.file, s)}
	if done.Ended, err = r.settle(ctx, made, s.Mark.Time()); err != nil {
		return Restored{}, err
	}
	if r.replaces {
		if done.Aside, err = r.moveAside(); err != nil {
			return Restored{}, err
		}
	}
	if err := os.Remove(filepath.Join(r.dir, database+generation)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Restored{}, fmt.Errorf("remove the generation file of the old database: %w", err)
	}
	if err := errors.Join(os.Rename(made, filepath.Join(r.dir, database)), syncDir(r.dir)); err != nil {
		return Restored{}, fmt.Errorf("put the restored database in its place: %w", err)
	}
	return done, nil
}

// known returns the highest epoch of the databases that the directory has: the present database and
// those that earlier restores have replaced and kept. It ignores databases that it cannot read.
func (r *restoring) known(ctx context.Context) belay.Token {
	folders := []string{"."}
	for _, e := range r.entries {
		if strings.HasPrefix(e.Name(), setAside) {
			folders = append(folders, e.Name())
		}
	}
	highest := belay.Token(0)
	for _, f := range folders {
		if epoch, err := sqlite.Epoch(ctx, filepath.Join(r.dir, f, database)); err == nil {
			highest = max(highest, epoch)
		}
	}
	return highest
}

// setAside is the prefix of the name of a directory that contains a replaced database.
const setAside = "before-restore-"

// settle opens the restored database, which migrates its schema, and ends its sessions. It returns
// the number of sessions that it ended.
func (r *restoring) settle(ctx context.Context, path string, mark time.Time) (int, error) {
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return 0, err
	}
	n, err := endSessions(ctx, s, "the store was restored from a backup of "+mark.UTC().Format(time.DateTime)+" UTC")
	if err = errors.Join(err, s.Close()); err != nil {
		return n, err
	}
	if info, err := os.Stat(path + "-wal"); err == nil && info.Size() > 0 {
		return n, &belay.Error{
			Code: belay.CodeInternal, Op: "restore",
			Message: "the restored database could not be closed: its log file is left",
		}
	}
	return n, nil
}

// handOver gives the files that root has created to the owner of the directory, who could not use
// the files otherwise.
func (r *restoring) handOver(aside string) error {
	info, err := os.Stat(r.dir)
	if err != nil {
		return fmt.Errorf("find the owner of the data directory: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 || owner.Uid == 0 {
		return nil
	}
	names := []string{
		filepath.Join(r.dir, database), filepath.Join(r.dir, "belay.lock"), filepath.Join(r.dir, ".gitignore"),
	}
	if aside != "" {
		names = append(names, aside)
	}
	for _, name := range names {
		if err := os.Lchown(name, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("give the restored data to the directory's owner: %w", err)
		}
	}
	return nil
}

// moveAside links the files of the existing database into a new directory and returns that
// directory. The database file itself stays until the new file replaces it in one step, because an
// engine would create an empty database if the file were missing for a moment. moveAside then
// removes the log of the old database, because SQLite would apply that log to the new database and
// so destroy the new database.
func (r *restoring) moveAside() (string, error) {
	aside := filepath.Join(r.dir, setAside+r.at.Format("20060102T150405.000Z"))
	if err := os.Mkdir(aside, 0o700); err != nil {
		return "", fmt.Errorf("keep the old database: %w", err)
	}
	parts := []string{database, database + "-wal", database + "-journal"}
	for _, name := range parts {
		err := os.Link(filepath.Join(r.dir, name), filepath.Join(aside, name))
		if err != nil && (name == database || !errors.Is(err, os.ErrNotExist)) {
			return "", fmt.Errorf("keep the old database: %w", err)
		}
	}
	if err := errors.Join(syncDir(aside), syncDir(r.dir)); err != nil {
		return "", fmt.Errorf("keep the old database: %w", err)
	}
	for _, name := range append(parts[1:], database+"-shm") {
		if err := os.Remove(filepath.Join(r.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("keep the old database: %w", err)
		}
	}
	return aside, syncDir(r.dir)
}
