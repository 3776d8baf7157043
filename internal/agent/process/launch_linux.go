package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// start starts the command and returns the report on it.
//
// The command inherits its walls from the thread that starts it: its mount namespace, Landlock, the
// filter, the lack of capabilities. So a thread of its own starts the command, and the supervisor's
// other threads stay unrestricted. That thread lives as long as the supervisor does, since the
// command gets its death signal when the thread ends.
func (s *supervisor) start() *report {
	// The thread that launches the command also enters the cgroups. By then that thread could not
	// open the cgroups' files any more, so they are opened here.
	gates, err := s.gates()
	if err != nil {
		return &report{Event: unstarted, Code: 126, Text: err.Error()}
	}
	defer gates.close()
	launched := make(chan *report)
	go func() {
		runtime.LockOSThread()
		launched <- s.launch(gates)
		select {}
	}()
	if failure := <-launched; failure != nil {
		return failure
	}
	for i := range s.order.Files { // only the command keeps them open: when it closes one, the other end notices
		_ = unix.Close(socketFD + 1 + i)
	}
	// Only the command reads its input: when it closes its input, the parent notices.
	if null, err := os.Open(os.DevNull); err == nil {
		_ = unix.Dup3(int(null.Fd()), 0, 0)
		_ = null.Close()
	}
	r := report{Event: started, Walls: s.walls}
	s.freezer.describe(&r)
	if err := s.parent.send(r, time.Second); err != nil {
		s.killAll() // the parent is gone, and no process waits for the command; run notices the end of the socket
	}
	return nil
}

// launch applies the walls of the run to the calling thread and starts the command from it.
func (s *supervisor) launch(gates *gates) *report {
	o := &s.order
	unstartable := func(err error) *report { return &report{Event: unstarted, Code: 126, Text: err.Error()} }
	// A set-user-id program could escape our signals, and undo the walls.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return &report{Event: unable, Text: "give up new privileges: " + err.Error()}
	}
	sealed, failure := s.arrange()
	if failure != nil {
		return failure
	}
	path, failure := lookUp(*o)
	if failure != nil {
		return failure
	}
	if u := o.User; u != nil && u.UID != 0 {
		if closed := closedTo(*u, o.Dir); closed != "" {
			return unstartable(fmt.Errorf("user %d cannot get to %s: %s is closed to it", u.UID, o.Dir, closed))
		}
	}
	program := filterFor(o)
	if slices.Contains(o.Without, byFilter) {
		program = nil
	}
	lock := landlockFor(o, s.contained())
	lock.itself = o.Helper || len(s.bounds.rlimits) > 0
	ruleset, err := lock.ruleset(o)
	if err != nil {
		return unstartable(err)
	}
	if ruleset >= 0 {
		defer unix.Close(ruleset)
	}
	if err := errors.Join(dropCapabilities(o), restrict(ruleset)); err != nil {
		return unstartable(err)
	}
	filtered := install(program)
	var missing *report
	if s.walls, missing = survey(o, facts{sealed: sealed, landlock: lock, filtered: len(program) > 0 && filtered == nil,
		unfiltered: filtered, limits: s.bounds.enforced}); missing != nil {
		return missing
	}
	if err := gates.enter(); err != nil {
		return unstartable(err)
	}
	defer gates.leave()
	if s.pid, err = s.forkLimiter(path); err != nil {
		return execFailure(path, err)
	}
	s.began = time.Now()
	return nil
}

// arrange makes the command's view of the file system, and reopens in it the directories that are
// passed to the command.
func (s *supervisor) arrange() (sealed bool, failure *report) {
	o := &s.order
	var err error
	if o.Hidden, err = resolve(o.Hidden); err != nil {
		return false, &report{Event: unstarted, Code: 126, Text: err.Error()}
	}
	apart := s.contained() && (len(o.Writable) > 0 || len(o.Hidden) > 0)
	if apart {
		// The supervisor's other threads keep their own view, which has the cgroup files that they
		// need.
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return false, &report{Event: unable, Text: "make a mount namespace: " + err.Error()}
		}
	}
	for i, at := range o.Files { // also those that are hidden by the mounts below
		if err := reopen(socketFD+1+i, at); err != nil {
			return false, &report{Event: unstarted, Code: 126, Text: fmt.Sprintf("hand on descriptor %d: %v", i+3, err)}
		}
	}
	if !apart {
		return false, nil
	}
	sealed, err = view(o)
	switch {
	case errors.Is(err, errAbsent):
		return false, &report{Event: unstarted, Code: 126, Text: err.Error()}
	case err != nil:
		return false, &report{Event: unable, Text: err.Error()}
	}
	for i, at := range o.Files {
		_ = reopen(socketFD+1+i, at) // a directory below a writable one is writable through its descriptor too
	}
	return sealed, nil
}

// resolve returns the hidden paths that exist, without symbolic links.
func resolve(paths []string) (there []string, err error) {
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		switch {
		case err == nil:
			there = append(there, real)
		case errors.Is(err, os.ErrPermission):
			there = append(there, path)
		case !errors.Is(err, os.ErrNotExist):
			return nil, fmt.Errorf("hide %s: %w", path, err)
		}
	}
	return there, nil
}

func (s *supervisor) attributes() *syscall.ProcAttr {
	attr := &syscall.ProcAttr{
		Dir:   s.order.Dir,
		Env:   s.order.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	for i := range s.order.Files {
		attr.Files = append(attr.Files, uintptr(socketFD+1+i))
	}
	if u := s.order.User; u != nil {
		attr.Sys.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	return attr
}
