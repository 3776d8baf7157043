package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/host"
)

// lock is the right to run an engine on a data directory: a lock of the kernel (flock) on
// belay.lock, which the kernel releases when the process ends.
type lock struct{ file *os.File }

// holder is the content of the lock file. It describes, for people, the process that has the lock.
type holder struct {
	host.Process
	Purpose string    `json:"purpose"`
	Since   time.Time `json:"since"`
}

// inherited is how long the lock may outlive the process that took it. If that process is killed
// between fork and exec of another program, the child keeps the lock until exec closes the file.
const inherited = 2 * time.Second

// acquire takes the lock of a data directory. If another process has the lock, acquire returns
// CodeConflict with a description of that process.
func acquire(ctx context.Context, dir, purpose string) (*lock, error) {
	path := filepath.Join(dir, "belay.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the data directory: %w", err)
	}
	for began := time.Now(); ; {
		err := flock(f)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock the data directory %s: %w", dir, err)
		}
		if time.Since(began) > inherited || ctx.Err() != nil || !read(f).died() {
			err := inUse(dir, f)
			_ = f.Close()
			return nil, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	self, err := host.Self()
	if err != nil {
		self.PID = os.Getpid()
	}
	text, err := json.Marshal(holder{Process: self, Purpose: purpose, Since: time.Now().UTC()})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(text, '\n'), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("write the lock of the data directory: %w", err)
	}
	return &lock{f}, nil
}

func flock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// read reads the lock file, and returns the zero holder if it cannot.
func read(f *os.File) holder {
	var h holder
	_ = json.NewDecoder(io.NewSectionReader(f, 0, 1<<16)).Decode(&h)
	return h
}

// died reports whether it is proven that the process that took the lock has ended.
func (h holder) died() bool {
	self, err := host.Self()
	return err == nil && h.State(self) == host.Dead
}

func inUse(dir string, f *os.File) error {
	h := read(f)
	e := &belay.Error{Code: belay.CodeConflict, Op: "open " + dir, RetryAfter: time.Second}
	if h.PID == 0 {
		e.Message = "another Belay engine uses this data directory"
		return e
	}
	e.Message = fmt.Sprintf("process %d (%s) has this data directory since %s; wait for it, or use another with --data",
		h.PID, h.Purpose, h.Since.Local().Format("15:04:05"))
	return e
}

func (l *lock) release() { _ = l.file.Close() }

// acquireExisting takes the lock of a data directory without writing to the lock file. It returns
// nil if there is no lock file.
func acquireExisting(dir string) (*lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, "belay.lock"), os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil
	}
	if err := flock(f); err != nil {
		defer f.Close()
		return nil, inUse(dir, f)
	}
	return &lock{f}, nil
}
