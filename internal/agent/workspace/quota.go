package workspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/host"
)

// Quota limits the disk space of a workspace; in each field 0 means no limit.
type Quota struct {
	// Bytes is the maximum size of all files together, in bytes. The size includes HOME, TMPDIR,
	// and removed files that a process still has open. It does not include objects that are shared
	// with the base (the cached clone).
	Bytes int64
	// Files is the maximum number of files and directories.
	Files int64
	// Reserve is the space that must stay free on the file system, in bytes. If less space is free,
	// the largest workspace counts as over its quota.
	Reserve int64
}

// Usage is the disk space that a workspace takes.
type Usage struct {
	Bytes int64 `json:"bytes"`
	Files int64 `json:"files"`
}

// QuotaError means that a workspace has exceeded its quota.
type QuotaError struct {
	Usage
	Quota
	Free int64 // free bytes on the file system
}

func (e *QuotaError) Error() string {
	switch {
	case e.Quota.Bytes > 0 && e.Usage.Bytes > e.Quota.Bytes:
		return fmt.Sprintf("the workspace takes more than its quota of %s on disk", size(e.Quota.Bytes))
	case e.Quota.Files > 0 && e.Usage.Files > e.Quota.Files:
		return fmt.Sprintf("the workspace has more than its quota of %d files", e.Quota.Files)
	}
	return fmt.Sprintf("the disk has %s left, less than the %s that must stay free, and the workspace is the largest "+
		"with %s",
		size(e.Free), size(e.Reserve), size(e.Usage.Bytes))
}

// size formats a number of bytes for messages.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d KiB", (n+1023)>>10)
}

const (
	// spaceInterval is how often Watch reads the free space of the file system, which takes almost
	// no time.
	spaceInterval = 100 * time.Millisecond
	// walkShare limits how much time Watch uses for counting files: 1/walkShare of all time.
	walkShare    = 50
	walkInterval = time.Second
)

// Watch returns a [*QuotaError] when the workspace exceeds the quota of the Manager, and nil when
// ctx ends. Watch counts the files of the workspace at intervals. In addition, it counts the files
// at once when the free space of the file system has shrunk by half of what the workspace may still
// use.
func (w *Workspace) Watch(ctx context.Context) error {
	q := w.m.Quota
	if q == (Quota{}) {
		<-ctx.Done()
		return nil
	}
	look := time.NewTicker(spaceInterval)
	defer look.Stop()
	var next time.Time
	var enough unix.Statfs_t // while the file system has more free space than this, no count is needed
	for {
		free, ok := w.space()
		if now := time.Now(); !ok || now.After(next) || free.Bavail < enough.Bavail || free.Ffree < enough.Ffree {
			used, err := w.measure(ctx, q)
			if err == nil {
				err = w.judge(used, q, &free)
			}
			if ctx.Err() != nil {
				return nil
			}
			if over := (*QuotaError)(nil); errors.As(err, &over) {
				return over
			}
			next = time.Now().Add(max(walkInterval, walkShare*time.Since(now)))
			enough = headroom(free, used, q)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// watched calls the function do, which fills the workspace, and cancels the context of do if the
// workspace exceeds its quota.
func (w *Workspace) watched(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := w.Watch(ctx); err != nil {
			stop(beyondQuota(w.Repo, err))
		}
	}()
	err := do(ctx)
	stop(nil)
	<-over
	return err
}

// space returns the free space of the file system.
func (w *Workspace) space() (unix.Statfs_t, bool) {
	var st unix.Statfs_t
	err := unix.Statfs(w.root, &st)
	return st, err == nil
}

// headroom returns a threshold: as long as the file system has more free space than the threshold,
// the workspace cannot have exceeded its quota since the last count.
func headroom(free unix.Statfs_t, used Usage, q Quota) unix.Statfs_t {
	var least unix.Statfs_t
	block := max(int64(free.Bsize), 1) //nolint:unconvert // the field has 32 bits on other systems
	below := func(have uint64, left int64) uint64 { return have - min(have, uint64(max(left, 0))) }
	if q.Bytes > 0 {
		least.Bavail = below(free.Bavail, (q.Bytes-used.Bytes)/2/block)
	}
	if q.Reserve > 0 {
		least.Bavail = max(least.Bavail, min(free.Bavail, uint64(q.Reserve/block)))
	}
	if q.Files > 0 {
		least.Ffree = below(free.Ffree, (q.Files-used.Files)/2)
	}
	return least
}

// judge returns a [*QuotaError] if the usage of a workspace exceeds its quota.
func (w *Workspace) judge(used Usage, q Quota, free *unix.Statfs_t) error {
	left := int64(free.Bavail) * int64(free.Bsize) //nolint:unconvert // the field has 32 bits on other systems
	e := &QuotaError{Usage: used, Quota: q, Free: left}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.used = used
	if q.exceeded(used) {
		return e
	}
	if q.Reserve == 0 || e.Free >= q.Reserve || used.Bytes < smallest {
		return nil
	}
	for _, other := range w.m.live {
		if other.used.Bytes > used.Bytes {
			return nil
		}
	}
	return e
}

// smallest is a disk usage in bytes. When the file system has less free space than Quota.Reserve, a
// workspace that uses less than smallest does not count as over its quota.
const smallest = 16 << 20

// Usage counts the disk space that the workspace takes now.
func (w *Workspace) Usage(ctx context.Context) (Usage, error) {
	return w.measure(ctx, Quota{})
}

// measure counts the files of the workspace, including removed files that processes of the run
// still have open. It stops as soon as the count exceeds the quota.
func (w *Workspace) measure(ctx context.Context, q Quota) (Usage, error) {
	u, err := measure(ctx, w.root, q, w.User)
	if err != nil || q.exceeded(u) {
		return u, err
	}
	dev, err := deviceOf(w.root)
	if err != nil {
		return u, nil //nolint:nilerr // the workspace was removed
	}
	pids, err := process.Members(w.ID, w.User)
	if err != nil {
		return u, nil //nolint:nilerr // this system cannot list the processes
	}
	open := unlinked(pids, dev)
	return Usage{Bytes: u.Bytes + open.Bytes, Files: u.Files + open.Files}, nil
}

// exceeded reports whether u is more than the quota.
func (q Quota) exceeded(u Usage) bool {
	return q.Bytes > 0 && u.Bytes > q.Bytes || q.Files > 0 && u.Files > q.Files
}

// errEnough ends the measuring of the files as soon as the quota is exceeded.
var errEnough = errors.New("the quota is exceeded")

// measure counts the files below dir. It divides the size of a file by the number of its hard
// links, so that objects shared with the base (the cached clone) count little. If the workspace has
// its own user, a file of another user with several hard links counts 0 bytes. A file that is
// removed during the count does not count.
func measure(ctx context.Context, dir string, q Quota, user *host.User) (Usage, error) {
	var u Usage
	top, err := openDir(dir)
	if err != nil {
		return u, nil // the directory was removed
	}
	defer top.Close()
	err = descend(ctx, top, func(st *unix.Stat_t) error {
		u.Files++
		links := int64(1)
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			links = int64(max(st.Nlink, 1))
		}
		if user == nil || links == 1 || st.Uid == user.UID {
			u.Bytes += st.Blocks * 512 / links
		}
		if q.exceeded(u) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return u, err
}
