package process

import (
	"os"
	"syscall"
	"time"

	"github.com/belaydev/belay/internal/host"
)

const (
	// lingerMost is the most that descendants get to end on their own once the command
	// has ended: the far end of a pipeline is still writing then.
	lingerMost = 250 * time.Millisecond
	// freezeMost bounds how long a freeze that was asked for may take, and
	// settleMost one that only makes sure that SIGTERM reaches everybody.
	freezeMost = 2 * time.Second
	settleMost = 250 * time.Millisecond
	// killEvery is how often a tree that is being killed is looked at again.
	killEvery = 20 * time.Millisecond
)

// supervisor is the state of a supervisor; one goroutine owns it.
type supervisor struct {
	order   order
	parent  *wire
	asked   chan os.Signal
	freezer freezer
	bounds  *bounds
	walls   Walls
	alarm   *time.Timer

	pid        int // the command's
	began      time.Time
	phase      phase
	ended      bool // the command has
	stopped    bool // somebody asked for its end before it ended
	frozen     bool
	orphaned   bool // the parent is gone
	stragglers int
}

// phase only moves forward.
type phase int

const (
	running phase = iota
	lingering
	terminating
	killing
	over
)

// obey does what the parent asks.
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

// escalate moves on to the phase to, unless it is behind us.
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

// overdue is called when the current phase has lasted long enough.
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

// buried takes note of a process that was waited for.
func (s *supervisor) buried(d death) {
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

// contained reports whether the tree is the whole of a PID namespace.
func (s *supervisor) contained() bool { return s.order.Isolation != Subreaper }

// tree lists every process that comes from the command.
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

// terminateAll asks every process that is there now to end, and none that a handler
// of that request starts to clean up.
func (s *supervisor) terminateAll() {
	if s.contained() {
		// Everybody in the namespace but its process 1, and no fork slips through.
		_ = syscall.Kill(-1, syscall.SIGTERM)
		_ = syscall.Kill(-1, syscall.SIGCONT) // the stopped take no other signal
		return
	}
	// Whoever slips through a freeze that did not work ends with the grace.
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

// killAll kills every process that is there now. Those that were starting meanwhile
// are met by the next call.
func (s *supervisor) killAll() {
	if s.contained() {
		_ = syscall.Kill(-1, syscall.SIGKILL)
		s.freezer.kill()
		return
	}
	s.freezer.kill()
	s.stopAll() // so that there are few
	for _, p := range s.tree() {
		_ = p.Signal(syscall.SIGKILL)
	}
}

// stopAll stops processes until a look at the tree finds nobody new, or the tree
// grows faster than one can look.
func (s *supervisor) stopAll() {
	told := make(map[int]uint64)
	for range 10 {
		news := false
		for _, p := range s.tree() {
			if start, ok := told[p.PID]; (!ok || start != p.Start) && !p.Ended() {
				told[p.PID] = p.Start
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
