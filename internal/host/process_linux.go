package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Self returns the identity of the calling process. An error means that this process cannot prove
// anything about other processes, because there is no /proc, or /proc belongs to another PID
// namespace. The Process that comes with the error has only the host and the number, and
// [Process.State] with it is always Unknown.
func Self() (Process, error) {
	return Identify(os.Getpid())
}

// Identify returns the identity of the process pid, or an error wrapping [os.ErrProcessDone] if
// there is no such process. The process may end at any time; [Process.State] reports that.
func Identify(pid int) (Process, error) {
	name, _ := os.Hostname()
	p := Process{Host: name, PID: pid}
	namespace, err := namespace()
	if err != nil {
		return p, fmt.Errorf("identify process %d: %w", pid, err)
	}
	boot, err := bootID()
	if err != nil {
		return p, fmt.Errorf("identify process %d: %w", pid, err)
	}
	s, err := Lookup(pid)
	if err != nil {
		return p, fmt.Errorf("identify process %d: %w", pid, err)
	}
	p.BootID, p.PIDNamespace, p.Start = boot, namespace, s.Start
	return p, nil
}

// namespace returns the inode of this process's PID namespace, after checking that /proc belongs to
// the same namespace.
func namespace() (uint64, error) {
	self, err := os.Readlink("/proc/self")
	if err != nil {
		return 0, err
	}
	if self != strconv.Itoa(os.Getpid()) {
		return 0, errors.New("/proc belongs to another PID namespace")
	}
	link, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return 0, err
	}
	inode, ok := strings.CutPrefix(link, "pid:[")
	if !ok {
		return 0, fmt.Errorf("/proc/self/ns/pid is %q", link)
	}
	return strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 64)
}

// bootID returns the id of the boot. In a time namespace a process sees start times with an offset,
// so the offset becomes part of the id: two processes that would read different start times of a
// third process have different boot ids.
func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(raw))
	if id == "" {
		return "", errors.New("the kernel has no boot id")
	}
	offsets, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without time namespaces has no such file
		return "", err
	}
	for line := range strings.Lines(string(offsets)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "boottime" && (f[1] != "0" || f[2] != "0") {
			id += "+" + f[1] + "." + f[2]
		}
	}
	return id, nil
}

// readable returns an error if /proc does not show the processes of this namespace.
func readable() error {
	_, err := namespace()
	return err
}

// probe compares the process table with a process of this boot and namespace. The caller has called
// readable.
func probe(pid int, start uint64) Liveness {
	s, err := Lookup(pid)
	switch {
	case errors.Is(err, os.ErrProcessDone):
		return Dead
	case err != nil:
		return Unknown
	case s.Start != start || s.Ended():
		return Dead
	}
	return Alive
}

// Lookup reads the status of one process. It returns [os.ErrProcessDone] only if the kernel itself
// says that the number is free, because in a /proc that hides other users' processes a hidden
// number looks free.
func Lookup(pid int) (Status, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err == nil {
		return parseStat(string(raw))
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		if kill := syscall.Kill(pid, 0); errors.Is(kill, syscall.ESRCH) {
			return Status{}, os.ErrProcessDone
		}
	}
	return Status{}, err
}

// parseStat reads a line of /proc/PID/stat. The command is in parentheses and may contain any text,
// also parentheses and newlines, so the fields are counted from the last closing parenthesis.
func parseStat(line string) (Status, error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return Status{}, fmt.Errorf("unreadable process status %q", line)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line[:open]))
	if err != nil {
		return Status{}, fmt.Errorf("unreadable process status %q", line)
	}
	// The first field after the command is the third of the line.
	f := strings.Fields(line[end+1:])
	if len(f) < 20 || len(f[0]) != 1 || f[0] < "A" || f[0] > "z" { // f[0] is the state, which must be a letter
		return Status{}, fmt.Errorf("unreadable process status %q", line)
	}
	s := Status{PID: pid, State: f[0][0]}
	var bad [3]error
	s.Parent, bad[0] = strconv.Atoi(f[4-3])
	s.Threads, bad[1] = strconv.Atoi(f[20-3])
	s.Start, bad[2] = strconv.ParseUint(f[22-3], 10, 64)
	if err := errors.Join(bad[:]...); err != nil {
		return Status{}, fmt.Errorf("unreadable process status %q: %w", line, err)
	}
	return s, nil
}

// signal sends sig to the process pid that started at start. It first opens a process handle and
// then compares the start time: if the start time is right, the handle belongs to that process,
// even if the number is reused later.
func signal(pid int, start uint64, sig syscall.Signal) error {
	fd, handle := unix.PidfdOpen(pid, 0)
	if handle == nil {
		defer unix.Close(fd)
	} else if errors.Is(handle, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	s, err := Lookup(pid)
	if err != nil {
		return err
	}
	if s.Start != start || s.Ended() {
		return os.ErrProcessDone
	}
	if handle == nil {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	} else {
		err = syscall.Kill(pid, sig) // kernel before 5.3, or a system call filter that does not allow handles
	}
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}
