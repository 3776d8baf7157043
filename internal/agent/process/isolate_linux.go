package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolate makes the calling process the root of what it will start, and gives up
// what that must not inherit.
func isolate(kind Isolation) error {
	if kind == Subreaper {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("become a subreaper: %w", err)
		}
	} else if err := enclose(); err != nil {
		return err
	}
	// A set-user-id program could leave the reach of our signals.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if kind == UserNamespace {
		if err := disinherit(); err != nil {
			return fmt.Errorf("give up capabilities: %w", err)
		}
	}
	// A command of the same user must not be able to rewrite its supervisor's memory.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("close this process to debuggers: %w", err)
	}
	return nil
}

// disinherit keeps the capability that the mounts needed from the command, on this
// thread, which will start it.
func disinherit() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return err
	}
	sets[0].Inheritable, sets[1].Inheritable = 0, 0
	return unix.Capset(&header, &sets[0])
}

// enclose completes a new PID namespace: in a mount namespace that passes nothing
// back, /proc shows the processes of this namespace.
func enclose() error {
	if os.Getpid() != 1 {
		return errors.New("this is not process 1 of a PID namespace")
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("detach the mounts: %w", err)
	}
	return mountProc()
}

func mountProc() error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	return nil
}

// lookUp finds the program of o as a shell would, in the command's own PATH and as
// seen from its directory.
func lookUp(o order) (string, *report) {
	if info, err := os.Stat(o.Dir); err != nil || !info.IsDir() {
		return "", &report{Event: unstarted, Code: 126, Text: fmt.Sprintf("the working directory %s is not there", o.Dir)}
	}
	name := o.Args[0]
	if o.Helper {
		return "/proc/self/exe", nil
	}
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(o.Dir, path)
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return "", &report{Event: unstarted, Code: 127, Text: "no such file"}
		}
		return path, nil
	}
	refused := ""
	for _, entry := range o.Env {
		list, ok := strings.CutPrefix(entry, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			if !filepath.IsAbs(dir) {
				continue // a relative entry would let the checkout choose the program
			}
			path := filepath.Join(dir, name)
			info, err := os.Stat(path)
			if err != nil || info.IsDir() {
				continue
			}
			if info.Mode()&0o111 != 0 {
				return path, nil
			}
			refused = path
		}
	}
	if refused != "" {
		return "", &report{Event: unstarted, Code: 126, Text: refused + " is not executable"}
	}
	return "", &report{Event: unstarted, Code: 127, Text: "command not found"}
}

// execFailure says why path could not be run.
func execFailure(path string, err error) *report {
	why := err.Error()
	switch {
	case errors.Is(err, syscall.ENOENT):
		why = path + " names an interpreter that is not there"
	case errors.Is(err, syscall.ENOEXEC):
		why = path + " is neither a program nor a script that names its interpreter"
	case errors.Is(err, syscall.EACCES):
		why = path + " is not executable"
	}
	return &report{Event: unstarted, Code: 126, Text: why}
}
