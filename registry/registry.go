package registry

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// The names of the registry's files in the data directory.
const (
	stateName   = "workflows.json"
	lockName    = ".workflows.lock"
	swapName    = ".swap.lock"
	freshName   = ".workflows.json.new"
	logName     = "swap_log.jsonl"
	oldLogName  = "swap_log.1.jsonl"
	signalsName = "signals"
)

// lockPatience is how long a call waits for the lock if its context has no deadline.
const lockPatience = 30 * time.Second

// Registry is the registry in one data directory. Its methods are safe for concurrent use, by any
// number of goroutines and processes. Between calls a Registry has no files open except handles of
// processes, which need not be closed.
type Registry struct {
	path string
	wall func() time.Time
	boot func() time.Duration
	self Process
	// owners knows which owners live.
	owners owners
	// turn has a value while a goroutine waits for the lock.
	turn chan struct{}

	// maxLog is the size in bytes from which swap_log.jsonl is renamed before the next event.
	maxLog int64
	// step is called before each system call that changes a file; an error is returned in place of
	// the call. It is nil except in tests of crashes and full disks.
	step func(call, file string) error
}

// Open returns the registry of a data directory, and makes the directory if it does not exist. The
// error is [belay.CodeForbidden] if every user of the machine may write to the directory.
//
// If the group of the directory may write to it, the members of the group share the registry.
// Otherwise the registry belongs to the owner of the directory.
func Open(dir string) (*Registry, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the registry: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("open the registry: %w", err)
	}
	r := at(path)
	d, err := openFolder(path)
	if err != nil {
		return nil, fmt.Errorf("open the registry: %w", err)
	}
	return r, d.close()
}

// at returns the registry of a directory that may not exist.
func at(path string) *Registry {
	self, _ := host.Self() // without /proc no death can be proven, and only TTLs and locks count
	return &Registry{
		path: path, wall: time.Now, boot: host.Boottime, self: processOf(self), turn: make(chan struct{}, 1),
		maxLog: 1 << 20,
	}
}

// Dir returns the absolute path of the data directory.
func (r *Registry) Dir() string { return r.path }

// change is one change of the registry, from the moment at which this process has the lock.
type change struct {
	r    *Registry
	dir  folder
	doc  document
	wall time.Time
	boot time.Duration
	// dirty says that doc differs from the file.
	dirty bool
}

// locked runs f while this process has the lock .workflows.lock, and saves the document if f has
// changed it. Before f, locked removes an orphaned marker and dead workflows. If f returns an
// error, nothing is saved.
func (r *Registry) locked(ctx context.Context, f func(c *change) error) error {
	return r.withLock(ctx, func(c *change) error {
		if err := c.reconcile(); err != nil {
			return err
		}
		if err := c.sweep(); err != nil {
			return err
		}
		if err := f(c); err != nil || !c.dirty {
			return err
		}
		return c.save()
	})
}

// withLock runs f while this process has the lock .workflows.lock.
func (r *Registry) withLock(ctx context.Context, f func(c *change) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		within, cancel := context.WithTimeout(ctx, lockPatience)
		defer cancel()
		ctx = within
	}
	dir, err := openFolder(r.path)
	if err != nil {
		return err
	}
	dir.step = r.step
	return dir.underLock(ctx, r.turn, lockName, func() error {
		c := &change{r: r, dir: dir, wall: r.wall(), boot: r.boot()}
		if err := c.load(); err != nil {
			return err
		}
		return f(c)
	})
}
