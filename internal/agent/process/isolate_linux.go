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

	"github.com/belaydev/belay/internal/host"
)

// isolate ensures that the supervisor (the calling process) stays the ancestor of all processes
// that it will start. isolate also completes the namespaces in which the supervisor was started.
func isolate(o *order) error {
	switch o.Isolation {
	case Subreaper:
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("become a subreaper: %w", err)
		}
	case UserNamespace:
		if err := mapUser(o.Owner); err != nil {
			return fmt.Errorf("take over the user namespace: %w", err)
		}
	}
	// A command of the same user must not be able to rewrite its supervisor's memory.
	if err := Undumpable(); err != nil {
		return err
	}
	if o.Isolation == Subreaper {
		return nil
	}
	if err := enclose(); err != nil {
		return err
	}
	if o.Network == HostNetwork {
		return nil
	}
	socket := -1
	if o.Network == ProxiedNetwork {
		socket = socketFD + 1 + len(o.Files)
	}
	return connect(socket)
}

// Undumpable prevents other processes of the same user from reading the memory, the environment and
// the descriptors of this process, and prevents core dumps and debugging of this process. Programs
// that this process starts are dumpable again. If this process is not root, most of its files in
// /proc then belong to root, so this process cannot open, for example, /proc/self/environ.
func Undumpable() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("close this process to debuggers: %w", err)
	}
	return nil
}

// mapUser maps the user id and the group id of owner into the user namespace, and no other ids.
func mapUser(owner host.User) error {
	for _, f := range []struct{ name, text string }{
		{"uid_map", fmt.Sprintf("%[1]d %[1]d 1", owner.UID)},
		{"setgroups", "deny"},
		{"gid_map", fmt.Sprintf("%[1]d %[1]d 1", owner.GID)},
	} {
		if err := os.WriteFile("/proc/self/"+f.name, []byte(f.text), 0); err != nil {
			return err
		}
	}
	return nil
}

// enclose completes a new PID namespace: it makes a mount namespace whose mounts do not appear on
// the machine, and mounts a /proc that shows the processes of the new PID namespace.
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

// lookUp finds the program of the order o as a shell would: in the PATH of the command's
// environment, and relative to the command's directory.
func lookUp(o order) (string, *report) {
	if info, err := os.Stat(o.Dir); err != nil || !info.IsDir() {
		return "", &report{
			Event: unstarted, Code: 126, Text: fmt.Sprintf("the working directory %s does not exist", o.Dir),
		}
	}
	name := o.Args[0]
	if o.Helper {
		return ownPath, nil
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
				continue // with a relative entry the working directory, such as a checkout, would choose the program
			}
			path := filepath.Join(dir, name)
			info, err := os.Stat(path)
			if err != nil || info.IsDir() {
				continue
			}
			if info.Mode()&0o111 != 0 && mayRun(o.User, path) {
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

// mayRun reports whether the command's user may execute the program at path. lookUp skips other
// programs, as a shell of that user would.
func mayRun(user *host.User, path string) bool {
	if user == nil || user.UID == 0 {
		return true
	}
	path, err := filepath.EvalSymlinks(path)
	return err == nil && closedTo(*user, path) == ""
}

// execFailure returns the report that says why path could not be executed.
func execFailure(path string, err error) *report {
	why := err.Error()
	switch {
	case errors.Is(err, syscall.ENOENT):
		why = path + " names an interpreter that does not exist"
	case errors.Is(err, syscall.ENOEXEC):
		why = path + " is neither a program nor a script that names its interpreter"
	case errors.Is(err, syscall.EACCES):
		why = path + " is not executable"
	}
	return &report{Event: unstarted, Code: 126, Text: why}
}
