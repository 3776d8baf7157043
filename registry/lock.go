package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// openLock opens a lock file. On a read-only file system, or without the right to write, an
// existing file is enough: the kernel locks files that are open for reading too.
func (d folder) openLock(name string) (*os.File, error) {
	return d.open(name, unix.O_RDONLY|unix.O_CREAT)
}

// lock acquires a lock file and waits for it until ctx ends. Closing the file frees the lock; the
// death of the process does that too.
func (d folder) lock(ctx context.Context, name string) (*os.File, error) {
	began := time.Now()
	for {
		f, err := d.openLock(name)
		if err != nil {
			return nil, err
		}
		if err := flock(ctx, f); err != nil {
			if ctx.Err() != nil {
				err = d.busy(name, began, ctx)
			}
			return nil, err
		}
		if d.same(f, name) {
			return f, nil
		}
		_ = unlock(f) // somebody has removed the lock file meanwhile: lock its successor
	}
}

// flock locks f, or closes f and returns an error.
func flock(ctx context.Context, f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) || ctx.Err() != nil {
		_ = f.Close()
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	got := make(chan error, 1)
	go func() { got <- waitFor(f) }()
	select {
	case err := <-got:
		if err != nil {
			_ = f.Close()
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		return nil
	case <-ctx.Done():
		go func() { // a waiting flock cannot be interrupted; it frees the lock when it gets the lock
			if <-got == nil {
				_ = unlock(f)
			}
		}()
		return context.Cause(ctx)
	}
}

func waitFor(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// tryLock acquires a lock file if it is free. ok is false if another open file has it.
func (d folder) tryLock(name string) (f *os.File, ok bool, err error) {
	f, err = d.openLock(name)
	if err != nil {
		return nil, false, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, true, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, d.failed("lock", name, err)
}

// unlock frees a lock and closes its file. Closing alone would free the lock only when a process
// that this program is just starting has closed its copy of the descriptor.
func unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

// same reports whether the folder still has the open file under the name.
func (d folder) same(f *os.File, name string) bool {
	var a, b unix.Stat_t
	return unix.Fstat(int(f.Fd()), &a) == nil && unix.Fstatat(d.fd, name, &b, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		a.Dev == b.Dev && a.Ino == b.Ino
}

// busy is the error for a lock that another process keeps for too long, for example because that
// process is stopped.
func (d folder) busy(name string, began time.Time, ctx context.Context) error { //nolint:revive // ctx has ended
	message := fmt.Sprintf("another process has had the lock %s/%s for at least %s", d.path, name,
		time.Since(began).Round(time.Millisecond))
	if pid := d.lockedBy(name); pid != "" {
		message += ": process " + pid + ". If it is stopped, continue it or kill it"
	}
	return &belay.Error{Code: belay.CodeUnavailable, Message: message, RetryAfter: time.Second, Err: context.Cause(ctx)}
}

// lockedBy returns the number of the process that has a lock, as the kernel reports it, or "".
func (d folder) lockedBy(name string) string {
	var s unix.Stat_t
	if unix.Fstatat(d.fd, name, &s, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return ""
	}
	table, err := os.ReadFile("/proc/locks")
	if err != nil {
		return ""
	}
	device := uint64(s.Dev) //nolint:unconvert // Dev has another type on macOS
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(device), unix.Minor(device), s.Ino)
	for line := range strings.Lines(string(table)) {
		// "7: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"; a process that waits has "->" after the number
		if f := strings.Fields(line); len(f) == 8 && f[1] == "FLOCK" && f[5] == file {
			return f[4]
		}
	}
	return ""
}
