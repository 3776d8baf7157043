//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// containsWord reports whether the arguments of a process contain a word.
func containsWord(args []byte, word string) bool {
	for arg := range bytes.SplitSeq(args, []byte{0}) {
		if string(arg) == word {
			return true
		}
	}
	return false
}

// readFile tries to read a file by its own path, and through the root directories of other
// processes.
func readFile(name string) attack {
	return func(s *spec) (string, error) {
		path := s.Files[name]
		if path == "" {
			return "", errNothing
		}
		paths := []string{path}
		for _, pid := range s.belays() {
			paths = append(paths, fmt.Sprintf("/proc/%d/root%s", pid, path))
		}
		return readAny(paths)
	}
}

// readRotated tries for two seconds to read a file that is replaced all the time: by its path, through
// the root directories of all processes, by its directory that it has opened before, and by a link
// that it has made before.
func readRotated(s *spec) (string, error) {
	path := s.Files["rotated"]
	_ = os.Link(path, "linked")
	paths := []string{path, "linked"}
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		defer dir.Close()
		paths = append(paths, fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	}
	roots, _ := filepath.Glob("/proc/[0-9]*/root")
	for _, root := range roots {
		paths = append(paths, root+path)
	}
	for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(time.Millisecond) {
		if how, err := readAny(paths); err == nil {
			return how, nil
		}
	}
	return readAny(paths)
}

func readAny(paths []string) (string, error) {
	var first error
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err == nil && len(raw) > 0 {
			return fmt.Sprintf("%d bytes", len(raw)), nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = errNothing
	}
	return "", bare(first)
}

// bare returns an error's reason without paths, because the paths differ from run to run.
func bare(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}

// environ looks for a variable of the server in the environments of all Belay processes that it may
// read.
func environ(s *spec) (string, error) {
	last := errNothing
	for _, pid := range s.belays() {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && bytes.Contains(raw, []byte(canary+"=")) {
			return "a secret in it was read", nil
		}
		if err != nil {
			last = bare(err)
		}
	}
	return "", last
}

// peek tries to read a word of the memory of a Belay process.
func peek(s *spec) (string, error) {
	last := errNothing
	for _, pid := range s.belays() {
		maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
		if err != nil {
			last = bare(err)
			continue
		}
		from, _, _ := strings.Cut(string(maps), "-")
		at, err := strconv.ParseInt(from, 16, 64)
		if err != nil {
			last = errors.New("the memory map of the process is empty")
			continue
		}
		if err := read(pid, at); err != nil {
			last = bare(err)
			continue
		}
		return "a word of the memory was read", nil
	}
	return "", last
}

func read(pid int, at int64) error {
	word := make([]byte, 8)
	f, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err == nil {
		defer f.Close()
		if _, err = f.ReadAt(word, at); err == nil {
			return nil
		}
	}
	local := []unix.Iovec{{Base: &word[0]}}
	local[0].SetLen(len(word))
	_, verr := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(at), Len: len(word)}}, 0)
	if verr == nil {
		return nil
	}
	return err
}

// descriptors tries to take an open file of a Belay process.
func descriptors(s *spec) (string, error) {
	last := errNothing
	for _, pid := range s.belays() {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if err != nil {
			last = bare(err)
		}
		for _, e := range entries {
			if path, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && strings.HasPrefix(path, "/") &&
				path != os.DevNull {
				return "the descriptors are listed", nil
			}
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		for n := range 32 {
			if got, err := unix.PidfdGetfd(fd, n, 0); err == nil {
				_, _ = unix.Close(got), unix.Close(fd)
				return "a descriptor was taken", nil
			} else if !errors.Is(err, unix.EBADF) {
				last = bare(err)
			}
		}
		_ = unix.Close(fd)
	}
	return "", last
}

// ptrace tries to become the tracer of a Belay process. The trace ends together with the thread
// that began it.
func ptrace(s *spec) (string, error) {
	last := errNothing
	for _, pid := range s.belays() {
		result := make(chan error)
		go func() {
			runtime.LockOSThread()
			_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
			if errno == 0 {
				result <- nil
				return
			}
			result <- errno
		}()
		if err := <-result; err == nil {
			return "the process can be traced", nil
		} else {
			last = err
		}
	}
	return "", last
}

// harmless is a signal that Go programs ignore and that hardly affects other programs. A process
// that may send this signal may send any signal.
const harmless = syscall.SIGURG

func signalBelay(s *spec) (string, error) {
	last := errNothing
	for _, pid := range s.Belay {
		if err := syscall.Kill(pid, 0); err == nil && !isBelay(pid) && seesProc() {
			continue // in this PID namespace, another process has this pid
		}
		if err := syscall.Kill(pid, harmless); err == nil {
			return "the process can be killed", nil
		} else {
			last = err
		}
	}
	return "", last
}

// seesProc reports whether /proc shows this process. If so, /proc shows all processes of this PID
// namespace.
func seesProc() bool {
	_, err := os.Stat("/proc/self/cmdline")
	return err == nil
}

// victimProcess tries to read from, and to signal, a process of another job.
func victimProcess(s *spec) (string, error) {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.VictimPID))
	if err == nil && !containsWord(args, s.Token) {
		return "", errNothing
	}
	if err := syscall.Kill(s.VictimPID, harmless); err == nil {
		return "the process can be killed", nil
	}
	if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", s.VictimPID)); err == nil && len(raw) > 0 {
		return "its environment was read", nil
	}
	if err == nil {
		return "its arguments were read", nil
	}
	return "", bare(err)
}

func victimFiles(s *spec) (string, error) {
	if how, err := readAny([]string{s.VictimDir + "/mine.txt", fmt.Sprintf("/proc/%d/cwd/mine.txt",
		s.VictimPID)}); err == nil {
		return how, nil
	}
	f, err := os.OpenFile(s.VictimDir+"/yours.txt", os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return "", bare(err)
	}
	return "a file was written", errors.Join(f.Close(), os.Remove(f.Name()))
}

func victimTmp(s *spec) (string, error) {
	return readAny([]string{
		s.VictimTmp + "/mine.txt", "/tmp/mine.txt", fmt.Sprintf("/proc/%d/root/tmp/mine.txt", s.VictimPID),
	})
}
