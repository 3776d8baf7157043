package process

import (
	"os"
	"syscall"
	"time"

	"github.com/belaydev/belay/internal/host"
)

const (
	// lingerMost is how long descendants may run after the command has ended, before they get
	// SIGTERM; the last process of a pipeline may still be writing.
	lingerMost = 250 * time.Millisecond
	// freezeMost is the time limit for a freeze that the caller requested. settleMost is the time
	// limit for a freeze whose only purpose is that SIGTERM reaches every process.
	freezeMost = 2 * time.Second
	settleMost = 250 * time.Millisecond
	// killEvery is the interval at which the supervisor sends SIGKILL again to the processes of a
	// tree, until all have ended.
	killEvery = 20 * time.Millisecond
)

// supervisor is the state of a supervisor; only one goroutine uses it.
type supervisor struct {
	order   order
	parent  *wire
	asked   chan os.Signal
	freezer freezer
	bounds  *bounds
	walls   Walls
	alarm   *time.Timer
	nest    bool // the limiter enters a Landlock domain of its own

	pid        int // the pid of the command
	began      time.Time
	phase      phase
	ended      bool // the command has ended
	stopped    bool // the parent or a signal requested the end of the command before the command ended
	frozen     bool
	orphaned   bool // the parent has ended
	stragglers int
}

// phase is the progress of a run towards its end; it never goes back.
type phase int

const (
	running phase = iota
	lingering
	terminating
	killing
	over
)

// obey executes a request of the parent.
func (s *supervisor) obey(do verb) {
	switch do {
	case stop:
		s.stopped = s.stopped || !s.ended
		s.escalate(terminating)
	case kill:
		s.stopped = s.stopped || !s.ended
		s.escalate(killing)
	case freeze:
		err := s.freezer.freeze(freezeMost)
		s.frozen = err == nil
		if err != nil {
			_ = s.freezer.thaw()
		}
		_ = s.tell(report{Event: froze, Text: text(err)})
	case thaw:
		err := s.freezer.thaw()
		s.frozen = s.frozen && err != nil
		_ = s.tell(report{Event: thawed, Text: text(err)})
	}
}

// escalate moves the run to the given phase, unless the run is already in that phase or in a later
// phase.
func (s *supervisor) escalate(to phase) {
	if to == terminating && (s.frozen || s.order.Grace <= 0) {
		to = killing
	}
	if to <= s.phase {
		return
	}
	s.phase = to
	switch to {
	case lingering:
		s.alarm.Reset(min(lingerMost, s.order.Grace/2))
	case terminating:
		s.terminateAll()
		s.alarm.Reset(s.order.Grace)
	case killing:
		s.killAll()
		s.alarm.Reset(killEvery)
	}
}

// overdue is called when the time limit of the current phase has passed. It starts the next phase.
func (s *supervisor) overdue() {
	switch s.phase {
	case lingering:
		s.escalate(terminating)
	case terminating:
		s.escalate(killing)
	case killing:
		s.killAll()
		s.alarm.Reset(killEvery)
	}
}

// noteDeath is called when a child process of the supervisor has ended. If that process was the
// command, noteDeath reports the end.
func (s *supervisor) noteDeath(d death) {
	if d.pid != s.pid || s.ended {
		return
	}
	s.ended = true
	elapsed := time.Since(s.began)
	for _, p := range s.tree() {
		if !p.Ended() {
			s.stragglers++
		}
	}
	_ = s.tell(report{Event: exited, Status: uint32(d.status), Stopped: s.stopped, Elapsed: elapsed})
	s.escalate(lingering)
}

// contained reports whether the tree has its own PID namespace.
func (s *supervisor) contained() bool { return s.order.Isolation != Subreaper }

// tree lists all descendants of the supervisor. These are the processes of the run.
func (s *supervisor) tree() []host.Status {
	table, err := host.Processes()
	if err != nil {
		return nil
	}
	if !s.contained() {
		return host.Descendants(table, os.Getpid())
	}
	all := table[:0]
	for _, p := range table {
		if p.PID != os.Getpid() {
			all = append(all, p)
		}
	}
	return all
}

// terminateAll sends SIGTERM to every process that exists now. Processes that start later, for
// example in a signal handler, do not get SIGTERM.
func (s *supervisor) terminateAll() {
	if s.contained() {
		// the pid -1 means every process of the namespace except process 1; the kernel signals them all
		// at once, so no new process escapes
		_ = syscall.Kill(-1, syscall.SIGTERM)
		_ = syscall.Kill(-1, syscall.SIGCONT) // a stopped process handles SIGTERM only after it continues
		return
	}
	// After a failed freeze, a new process may miss the SIGTERM. It then gets SIGKILL at the end of
	// the grace period.
	_ = s.freezer.freeze(settleMost)
	tree := s.tree()
	for _, p := range tree {
		_ = p.Signal(syscall.SIGTERM)
	}
	for _, p := range tree {
		_ = p.Signal(syscall.SIGCONT)
	}
	_ = s.freezer.thaw()
}

// killAll kills every process of the tree that exists now. It is called repeatedly, because a
// process may be started during a call; the next call kills that process.
func (s *supervisor) killAll() {
	if s.contained() {
		_ = syscall.Kill(-1, syscall.SIGKILL)
		s.freezer.kill()
		return
	}
	s.freezer.kill()
	s.stopAll() // a stopped process cannot start another process
	for _, p := range s.tree() {
		_ = p.Signal(syscall.SIGKILL)
	}
}

// stopAll sends SIGSTOP to processes until a pass over the tree finds no new process. It ends after
// ten passes, because a tree may grow faster than stopAll can stop it.
func (s *supervisor) stopAll() {
	stopped := make(map[int]uint64)
	for range 10 {
		news := false
		for _, p := range s.tree() {
			if start, ok := stopped[p.PID]; (!ok || start != p.Start) && !p.Ended() {
				stopped[p.PID] = p.Start
				news = p.Signal(syscall.SIGSTOP) == nil || news
			}
		}
		if !news {
			return
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
