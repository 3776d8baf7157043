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
// filter, and the missing capabilities. So the supervisor starts the command from a separate
// thread, and its other threads stay unrestricted. The separate thread lives as long as the
// supervisor, because the kernel kills the command when that thread ends.
func (s *supervisor) start() *report {
	// The thread that starts the command must enter the cgroups. When it does so, it is already
	// inside the walls and cannot open the files of the cgroups, so this thread opens the files.
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
	// The supervisor closes its copies of the command's files, so that a reader of a pipe gets an
	// end of file as soon as the command closes the pipe.
	for i := range s.order.Files {
		_ = unix.Close(socketFD + 1 + i)
	}
	// The supervisor closes its copy of the command's input, so that the parent gets an error when
	// the command closes its input.
	if null, err := os.Open(os.DevNull); err == nil {
		_ = unix.Dup3(int(null.Fd()), 0, 0)
		_ = null.Close()
	}
	r := report{Event: started, Walls: s.walls}
	s.freezer.describe(&r)
	if err := s.parent.send(r, time.Second); err != nil {
		s.killAll() // the parent has ended, so no process waits for the command; run then sees the end of the socket
	}
	return nil
}

// launch applies the walls (the sandbox) of the run to the calling thread and starts the command
// from this thread.
func (s *supervisor) launch(gates *gates) *report {
	o := &s.order
	unstartable := func(err error) *report { return &report{Event: unstarted, Code: 126, Text: err.Error()} }
	// A set-user-id program could escape our signals and leave the sandbox, so it must get no
	// privileges.
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
	s.nest = lock.signals && !s.contained() && !o.ownUser()
	lock.itself = o.Helper || len(s.bounds.rlimits) > 0 || s.nest
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

// arrange makes the command's own view of the file system, and opens the directories of
// Command.Files again in that view.
func (s *supervisor) arrange() (sealed bool, failure *report) {
	o := &s.order
	var err error
	if o.Hidden, err = resolve(o.Hidden); err != nil {
		return false, &report{Event: unstarted, Code: 126, Text: err.Error()}
	}
	if err := o.follow(); err != nil {
		return false, &report{Event: unstarted, Code: 126, Text: err.Error()}
	}
	apart := s.contained() && (len(o.Writable) > 0 || len(o.Hidden) > 0)
	if apart {
		// The other threads of the supervisor keep the machine's view of the file system, because
		// they must write the files of the cgroups.
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return false, &report{Event: unable, Text: "make a mount namespace: " + err.Error()}
		}
	}
	for i, at := range o.Files { // before the mounts below hide some of these directories
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
		// This call opens the directory in the new view, where a directory below Writable may be
		// written. If the call fails, the descriptor from the first loop stays.
		_ = reopen(socketFD+1+i, at)
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
