package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Locks has statistics of the locks on bases (cached clones) that Prepare needs while it copies
// objects: how long Prepare kept each lock, and how long it waited for each lock. The statistics
// cover the last thousand locks. They do not include the times to fetch and to write the checkout.
type Locks struct {
	Count              int           // number of locks since the start
	Held50, Held99     time.Duration // percentiles of the times for which locks were kept
	HeldMost           time.Duration
	Waited50, Waited99 time.Duration
}

// times has the durations of the most recent locks.
type times struct {
	mu           sync.Mutex
	count        int
	held, waited []time.Duration
}

// remembered is the maximum number of locks whose durations times keeps.
const remembered = 1000

func (s *times) add(waited, held time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) < remembered {
		s.held, s.waited = append(s.held, held), append(s.waited, waited)
	} else {
		s.held[s.count%remembered], s.waited[s.count%remembered] = held, waited
	}
	s.count++
}

// Locks reports how long this process kept the locks on bases (cached clones) and how long it
// waited for these locks.
func (m *Manager) Locks() Locks {
	m.times.mu.Lock()
	defer m.times.mu.Unlock()
	held, waited := slices.Clone(m.times.held), slices.Clone(m.times.waited)
	slices.Sort(held)
	slices.Sort(waited)
	return Locks{
		Count: m.times.count, Held50: rank(held, 50), Held99: rank(held, 99), HeldMost: rank(held, 100),
		Waited50: rank(waited, 50), Waited99: rank(waited, 99),
	}
}

// rank returns a percentile of sorted durations.
func rank(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

// use waits for the lock that a process needs to copy objects of the base (the cached clone) or to
// replace the base. While a process copies files under this lock, no other process can remove the
// files. A fetch does not need this lock, because it only adds files.
func (b *base) use(ctx context.Context) (release func(), err error) {
	asked := time.Now()
	f, err := waitLock(ctx, b.dir+".use")
	if err != nil {
		return nil, fmt.Errorf("wait for the base of %s: %w", b.src, err)
	}
	began := time.Now()
	_ = os.Chtimes(f.Name(), began, began) // the modification time of the lock file is the time of the last use
	return func() {
		_ = f.Close()
		b.m.times.add(began.Sub(asked), time.Since(began))
	}, nil
}

// waitLock waits for the lock on a file and makes the file if necessary.
func waitLock(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	wait := time.NewTicker(5 * time.Millisecond)
	defer wait.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-wait.C:
		}
	}
}
