package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// newTablespace moves the database to a separate small disk that a test can fill; the server's own
// log stays on its old disk. It needs root and loop devices.
func (w *world) newTablespace() *disk {
	w.t.Helper()
	if !canLoop() {
		return nil
	}
	d := newDisk(w.t, w.openPlace("disk-"), "tablespace", 2<<30)
	dir, who := filepath.Join(d.dir, "database"), w.unprivileged()
	if err := errors.Join(os.Chmod(d.dir, 0o755), os.Mkdir(dir, 0o700), os.Chown(dir, int(who.Uid),
		int(who.Gid))); err != nil {
		w.t.Fatal(err)
	}
	for _, text := range []string{"CREATE TABLESPACE small LOCATION '" + dir + "'", "ALTER DATABASE " + w.name() +
		" SET TABLESPACE small"} {
		if _, err := w.database.Query("postgres", text); err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Cleanup(func() { // closes the files that PostgreSQL has open on the disk
		if err := w.database.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return d
}

// noRoom is the text that PostgreSQL logs for each write that fails because the disk is full.
const noRoom = "No space left on device"

// unnoticed is how long the disk stays full beyond its time if no write has failed.
const unnoticed = 6 * time.Second

// fillDisk fills the database's disk for a while. The fault counts only if a write failed because
// the disk was full.
func (w *world) fillDisk(ctx context.Context, f fault) {
	if w.disk == nil {
		return
	}
	defer w.troubled("full disk", time.Now())
	before := strings.Count(w.database.Log(), noRoom)
	ballast := filepath.Join(w.disk.dir, "ballast")
	if err := fill(ballast); err != nil {
		w.t.Errorf("fill the disk: %v", err)
	}
	// PostgreSQL writes into the space of former files for a while, so the disk stays full until
	// PostgreSQL has noticed.
	full := func() bool { return strings.Count(w.database.Log(), noRoom) > before }
	for began := time.Now(); ctx.Err() == nil; _ = pause(ctx, 50*time.Millisecond) {
		if took := time.Since(began); took > f.For && (full() || took > f.For+unnoticed) {
			break
		}
		if err := fill(ballast); err != nil { // fills the space that PostgreSQL has freed since the last fill
			w.t.Errorf("fill the disk: %v", err)
		}
	}
	if full() {
		w.fault("database's disk full")
	}
	if err := os.Remove(ballast); err != nil {
		w.t.Error(err)
	}
}

// fill writes a file until the disk is full.
func fill(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	at := info.Size()
	for size := int64(64 << 20); size >= 4096; {
		if err := syscall.Fallocate(int(f.Fd()), 0, at, size); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			return err
		} else {
			at += size
		}
	}
	return nil
}
