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

// Self returns the identity of the calling process. Its error means that this
// process cannot prove anything about others (no /proc, or the /proc of another
// PID namespace); the Process that comes with it still has the host and the
// number, and every question asked with it is answered Unknown.
func Self() (Process, error) {
	return Identify(os.Getpid())
}

// Identify returns the identity of the process pid, or an error wrapping
// [os.ErrProcessDone] if there is none. It tells nothing about how long that
// identity holds: ask [Process.State].
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

// namespace returns the inode of the PID namespace in which this process counts,
// having checked that /proc counts the same way.
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

// bootID names the boot. In a time namespace of its own a process sees start
// times shifted, so the shift becomes part of the name: two processes that would
// read different start times for a third never compare.
func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(raw))
	if id == "" {
		return "", errors.New("the kernel tells no boot id")
	}
	offsets, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without time namespaces has none
		return "", err
	}
	for line := range strings.Lines(string(offsets)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "boottime" && (f[1] != "0" || f[2] != "0") {
			id += "+" + f[1] + "." + f[2]
		}
	}
	return id, nil
}

func probe(pid int, start uint64) Liveness {
	if _, err := namespace(); err != nil {
		return Unknown
	}
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

// Lookup reads the table's line of one process. It answers [os.ErrProcessDone]
// only when the kernel itself says that the number is free: a /proc that hides
// other users' processes looks the same as a free number.
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

// parseStat reads a line of /proc/PID/stat. The command stands in parentheses and
// may hold anything, parentheses and newlines too, so fields count from the last
// closing one.
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
	if len(f) < 20 || len(f[0]) != 1 || f[0] < "A" || f[0] > "z" { // the state is a letter
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

// signal sends sig to the process pid that started at start. The handle is opened
// first and the start time compared afterwards: if it still fits, the handle is
// that process's, and it stays so however often the number is given out again.
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
		err = syscall.Kill(pid, sig) // kernel before 5.3, or a filter that knows no handles
	}
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	if err != nil {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}
