package process

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervisorName is the argv[0] of a supervisor. The next argument is the run id, so that people
// and SweepOrphans can see to which run the supervisor belongs.
const supervisorName = "belay-init"

// ownPath is a path of this program's executable that works even if the executable was renamed or
// moved.
const ownPath = "/proc/self/exe"

// socketFD is the descriptor of a supervisor's end of the socket.
const socketFD = 3

// ready is true once Main was called. Without that call, Start would start this whole program a
// second time instead of a supervisor. ready is a package variable because it describes the
// program.
var ready atomic.Bool

// Main must be the first call in main and in TestMain. In a process that was started as a
// supervisor or as a helper, Main never returns. In any other process it returns at once, and that
// process can then start commands.
func Main(helpers ...Helper) {
	ready.Store(true)
	if os.Args[0] == limiterName {
		runLimiter(helpers)
	}
	for _, h := range helpers {
		if os.Args[0] == h.Name {
			_ = Undumpable() // the helper may have more rights than the command for which it works
			unix.Exit(h.Run())
		}
	}
	if os.Args[0] != supervisorName {
		return
	}
	// The command inherits no_new_privs, capabilities and the death signal from a thread. This
	// thread sets them, starts the command, and lives as long as the process.
	runtime.LockOSThread()
	code := 0
	if err := serve(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", supervisorName, err)
		code = 1
	}
	unix.Exit(code) // with os.Exit the race detector would wait for a second
}

// serve is the main function of a supervisor.
func serve() error {
	// SIGTERM, SIGINT, SIGHUP and SIGQUIT from a terminal or a service manager end the run with its
	// grace period. Without this handler they would end the supervisor before the processes of the
	// run.
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)

	parent, err := adopt()
	if err != nil {
		return err
	}
	var o order
	if err := parent.dec.Decode(&o); err != nil {
		return nil // the parent ended before it sent the order (the command to run)
	}
	for i := range len(o.Files) + 1 {
		unix.CloseOnExec(socketFD + 1 + i)
	}
	if err := isolate(&o); err != nil {
		return parent.send(report{Event: unable, Text: err.Error()}, time.Second)
	}
	s := &supervisor{order: o, parent: parent, asked: asked}
	s.freezer = newFreezer(o.ID, o.Freezer, s.tree)
	defer s.freezer.close()
	s.bounds = newBounds(o)
	defer s.bounds.close()
	if failure := s.start(); failure != nil {
		return parent.send(*failure, time.Second)
	}
	return s.run()
}

// adopt opens the supervisor's end of the socket and closes the inherited files, except the files
// that are meant for the command. The parent may have inherited open files itself, and the
// supervisor would pass them on to the command.
func adopt() (*wire, error) {
	unix.CloseOnExec(socketFD)
	files, err := strconv.Atoi(os.Getenv(filesVariable))
	if err != nil {
		return nil, fmt.Errorf("this program is started by belay, not by hand: %w", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= socketFD+files {
			continue
		}
		// Descriptors that this process opened itself are close-on-exec; inherited descriptors are
		// not.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	parent, err := openWire(os.NewFile(socketFD, "parent"))
	if err != nil {
		return nil, fmt.Errorf("this program is started by belay, not by hand: %w", err)
	}
	return parent, nil
}

// run supervises the tree until all processes of the tree have ended, and then reports the end.
func (s *supervisor) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	requests := make(chan request)
	go s.listen(ctx, requests)
	reaped := make(chan death)
	go reap(reaped)

	s.alarm = time.NewTimer(0)
	s.alarm.Stop()
	for s.phase != over {
		select {
		case r, open := <-requests:
			if !open {
				requests = nil
				s.orphaned = true
				s.escalate(killing)
				continue
			}
			s.obey(r.Do)
		case d, open := <-reaped:
			if !open {
				s.phase = over
				continue
			}
			s.noteDeath(d)
		case <-s.asked:
			s.stopped = s.stopped || !s.ended
			s.escalate(terminating)
		case <-s.alarm.C:
			s.overdue()
		}
	}
	var ru unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &ru)
	exceeded := s.bounds.exceeded()
	s.bounds.close()
	s.freezer.close()
	return s.tell(report{Event: gone, Stragglers: s.stragglers, Exceeded: exceeded, Usage: Usage{
		User:   time.Duration(ru.Utime.Nano()),
		System: time.Duration(ru.Stime.Nano()),
		MaxRSS: ru.Maxrss * 1024,
	}})
}

// listen passes requests of the parent to the channel, and closes the channel when the parent has
// ended.
func (s *supervisor) listen(ctx context.Context, requests chan<- request) {
	defer close(requests)
	for {
		var r request
		if err := s.parent.dec.Decode(&r); err != nil {
			return
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return
		}
	}
}

// tell sends a report to the parent. It does nothing if the parent has ended.
func (s *supervisor) tell(r report) error {
	if s.orphaned {
		return nil
	}
	return s.parent.send(r, time.Second)
}

// death is the end of one process.
type death struct {
	pid    int
	status syscall.WaitStatus
}

// reap waits for every child of the supervisor, even for a child that sends no signal when it ends,
// and closes reaped when no child is left. The tree is then empty and stays empty, because every
// descendant is a child of the supervisor or has an ancestor that is a child of the supervisor.
func reap(reaped chan<- death) {
	defer close(reaped)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return
		case status.Exited() || status.Signaled():
			reaped <- death{pid: pid, status: status}
		}
	}
}
