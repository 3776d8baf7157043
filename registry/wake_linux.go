package registry

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// wake reports changes of the registry: inotify reports a new state file, and a handle of each
// process (pidfd) reports its end. Where the kernel has neither, only the time ends a wait.
type wake struct {
	file    *os.File // nil without inotify
	changed chan struct{}
	done    chan struct{}
}

func newWake(dir string) (*wake, error) {
	w := &wake{changed: make(chan struct{}, 1), done: make(chan struct{})}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		if _, err = unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_ONLYDIR); err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		close(w.done)
		return w, nil
	}
	w.file = os.NewFile(uintptr(fd), "inotify")
	go func() {
		defer close(w.done)
		for buffer := make([]byte, 4096); ; {
			if _, err := w.file.Read(buffer); err != nil {
				return
			}
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}()
	return w, nil
}

func (w *wake) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
	<-w.done
}

// wait waits until the registry changes, until one of the processes with these
// numbers ends, or for the duration most.
// It returns false if ctx ends.
func (w *wake) wait(ctx context.Context, most time.Duration, pids []int) bool {
	within, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	ended := make(chan struct{}, len(pids))
	for _, pid := range pids {
		go func() {
			if host.AwaitEnd(within, pid) == nil {
				ended <- struct{}{}
			}
		}()
	}
	select {
	case <-w.changed:
	case <-ended:
	case <-within.Done():
	}
	return ctx.Err() == nil
}
