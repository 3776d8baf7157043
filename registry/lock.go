package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// openLock opens a lock file. On a read-only file system, or without the right to write, an
// existing file is enough: the kernel locks files that are open for reading too.
func (d folder) openLock(name string) (*os.File, error) {
	return d.open(name, unix.O_RDONLY|unix.O_CREAT)
}

// underLock runs f while this process has a lock file, and closes the folder. It waits for the lock
// until ctx ends; f always runs to its end.
//
// If the lock is not free, the goroutine that waits for it also runs f: the goroutine of the caller
// would have to wake up first, and all other processes would wait for that. A flock that waits cannot
// be interrupted, so the goroutine of a caller that gives up waits on. The channel turn, which has
// room for one value, allows one such goroutine.
func (d folder) underLock(ctx context.Context, turn chan struct{}, name string, f func() error) error {
	began := time.Now()
	lock, err := d.openLock(name)
	if err != nil {
		return errors.Join(err, d.close())
	}
	free, err := tryFlock(lock)
	switch {
	case err != nil:
		return errors.Join(d.failed("lock", name, err), lock.Close(), d.close())
	case free && d.same(lock, name):
		return d.within(lock, f)
	case ctx.Err() != nil:
		return errors.Join(d.busy(ctx, name, began), lock.Close(), d.close())
	}
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return errors.Join(d.busy(ctx, name, began), lock.Close(), d.close())
	}
	var gaveUp atomic.Bool
	over := make(chan error, 1)
	go func() { over <- d.await(lock, turn, name, &gaveUp, f) }()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
	}
	if gaveUp.CompareAndSwap(false, true) {
		return d.busy(ctx, name, began)
	}
	return <-over // f runs already
}

// await waits for a lock, gives the turn to the next goroutine, and runs f unless the caller has given
// up. It sets gaveUp before f, so that the caller cannot give up any more.
func (d folder) await(lock *os.File, turn <-chan struct{}, name string, gaveUp *atomic.Bool, f func() error) error {
	lock, err := d.lockSame(lock, name)
	<-turn
	if err != nil {
		return errors.Join(err, d.close())
	}
	if !gaveUp.CompareAndSwap(false, true) {
		return errors.Join(unlock(lock), d.close())
	}
	return d.within(lock, f)
}

// lockSame waits for the lock of an open file. If another program has removed the file meanwhile, it
// waits for the lock of the file's successor, which it returns. After an error no file is open.
func (d folder) lockSame(lock *os.File, name string) (*os.File, error) {
	for {
		if err := waitFor(lock); err != nil {
			return nil, errors.Join(d.failed("lock", name, err), lock.Close())
		}
		if d.same(lock, name) {
			return lock, nil
		}
		err := unlock(lock)
		if err == nil {
			lock, err = d.openLock(name)
		}
		if err != nil {
			return nil, err
		}
	}
}

// within runs f, frees the lock and closes the folder.
func (d folder) within(lock *os.File, f func() error) error {
	defer func() { _ = errors.Join(unlock(lock), d.close()) }() // both were only read
	return f()
}

// tryFlock locks f if the lock is free.
func tryFlock(f *os.File) (free bool, err error) {
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
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
	if ok, err = tryFlock(f); ok {
		return f, true, nil
	}
	_ = f.Close()
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
func (d folder) busy(ctx context.Context, name string, began time.Time) error {
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
