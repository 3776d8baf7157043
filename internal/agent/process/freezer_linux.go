package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/belaydev/belay/internal/host"
)

var errStillRunning = errors.New("some process did not stop")

// freezer can stop and continue all processes of a tree. It never stops the supervisor, which must
// be able to act while the tree is frozen.
type freezer interface {
	// describe writes the means of freezing into a report.
	describe(r *report)
	// freeze returns when no process of the tree runs any more, or with an error if it could not
	// stop all of them in time.
	freeze(within time.Duration) error
	thaw() error
	// kill kills all processes that the freezer can find, frozen or not.
	kill()
	close()
}

// newFreezer returns the best means of freezing that works: the cgroup freezer of the kernel or, if
// no cgroup can be made, SIGSTOP. The cgroup freezer is better, because processes cannot notice the
// freeze and the kernel also freezes new processes. If name is not "", newFreezer tries only the
// cgroup freezer with that name.
func newFreezer(id, name string, tree func() []host.Status) freezer {
	for _, h := range hierarchies("/proc/self") {
		if name != "" && name != h.String() {
			continue
		}
		if c, err := newCgroup(h, id); err == nil {
			return c
		}
	}
	return &signals{tree: tree, stopped: make(map[int]uint64)}
}

// signals freezes a tree by sending SIGSTOP to each process.
type signals struct {
	tree    func() []host.Status
	stopped map[int]uint64 // start times of the processes that freeze has stopped, by pid
}

func (s *signals) describe(r *report) { r.Freezer = "signals" }
func (s *signals) kill()              {}
func (s *signals) close()             {}

// freeze stops processes until a pass over the whole tree finds no running process: if a process is
// started during one pass, the next pass finds it. A process that was stopped before the freeze is
// not recorded, and stays stopped after the thaw.
func (s *signals) freeze(within time.Duration) error {
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		settled := true
		for _, p := range s.tree() {
			ours := s.stopped[p.PID] == p.Start
			switch {
			case p.Ended() || p.State == 'T' || p.State == 't':
				continue
			case ours && p.State == 'D':
				// The process waits in the kernel, for example for a child that it started with
				// vfork. It will stop before it runs another instruction of its own.
				continue
			}
			settled = false
			if err := p.Signal(syscall.SIGSTOP); err == nil {
				s.stopped[p.PID] = p.Start
			} else if !errors.Is(err, os.ErrProcessDone) {
				return err
			}
		}
		if settled {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("freeze within %s: %w", within, errStillRunning)
		}
	}
}

func (s *signals) thaw() error {
	var failed error
	for pid, start := range s.stopped {
		err := host.Status{PID: pid, Start: start}.Signal(syscall.SIGCONT)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			failed = err
		}
	}
	clear(s.stopped)
	return failed
}
