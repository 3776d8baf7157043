package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// limiterName is the argv[0] of a limiter: a process that sets resource limits on itself and then
// executes the command. The supervisor does not set the limits, because they would also apply to
// the supervisor, and the supervisor would run out of address space.
//
// The arguments after argv[0] are the number of the descriptor for the report of the limiter, the
// limits, the path of the program, and the arguments of the program.
const limiterName = "belay-limits"

// limiterArgs returns the arguments of the limiter for a command.
func limiterArgs(limits []rlimit, report int, path string, args []string) []string {
	var text []string
	for _, l := range limits {
		text = append(text, fmt.Sprintf("%d=%d", l.resource, l.value))
	}
	return append([]string{limiterName, strconv.Itoa(report), strings.Join(text, ","), path}, args...)
}

// forkLimiter starts a limiter for a command, and returns after the limiter has executed the
// command. Without resource limits it starts the command directly.
func (s *supervisor) forkLimiter(path string) (pid int, err error) {
	attr := s.attributes()
	if len(s.bounds.rlimits) == 0 {
		return syscall.ForkExec(path, s.order.Args, attr)
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	args := limiterArgs(s.bounds.rlimits, len(attr.Files), path, s.order.Args)
	attr.Files = append(attr.Files, theirs.Fd())
	pid, err = syscall.ForkExec(ownPath, args, attr)
	_ = theirs.Close()
	if err != nil {
		return 0, fmt.Errorf("start the process that sets the limits: %w", err)
	}
	var errno [4]byte
	switch n, _ := io.ReadFull(ours, errno[:]); n {
	case 0: // an end of file: the limiter has executed the program, so the kernel has closed its end of the pipe
		return pid, nil
	case len(errno):
		err = syscall.Errno(binary.LittleEndian.Uint32(errno[:]))
	default:
		err = errors.New("the process that sets the limits has ended")
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	return 0, err
}

// runLimiter is the main function of a limiter. It executes the command and then does not return.
// If the command is a helper (a function of this program), runLimiter returns, and this process
// runs the helper.
func runLimiter(helpers []Helper) {
	// The kernel sends the death signal to a thread's children when that thread ends, so the same
	// thread must set this signal and execute the program.
	runtime.LockOSThread()
	release := reserveAddressSpace()
	report, path, args, err := setLimits()
	if err == nil {
		for _, h := range helpers {
			if path == ownPath && args[0] == h.Name {
				_ = unix.Close(report)
				os.Args = args
				release()
				runtime.UnlockOSThread()
				return
			}
		}
		err = syscall.Exec(path, args, os.Environ())
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.EINVAL
	}
	_, _ = unix.Write(report, binary.LittleEndian.AppendUint32(nil, uint32(errno)))
	unix.Exit(126)
}

// setLimits sets the limits of this process. The process cannot raise these limits later.
func setLimits() (report int, path string, args []string, err error) {
	if len(os.Args) < 5 {
		return -1, "", nil, errors.New("this program is started by belay, not by hand")
	}
	path, args = os.Args[3], os.Args[4:]
	if report, err = strconv.Atoi(os.Args[1]); err != nil {
		return -1, "", nil, err
	}
	unix.CloseOnExec(report)
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return report, "", nil, err
	}
	var limits []rlimit
	for text := range strings.SplitSeq(os.Args[2], ",") {
		var l rlimit
		if _, err := fmt.Sscanf(text, "%d=%d", &l.resource, &l.value); err != nil {
			return report, "", nil, err
		}
		limits = append(limits, l)
	}
	for _, l := range limits {
		var had unix.Rlimit
		if err := unix.Getrlimit(l.resource, &had); err != nil {
			return report, "", nil, err
		}
		value := min(l.value, had.Max)
		if err := unix.Prlimit(0, l.resource, &unix.Rlimit{Cur: value, Max: value}, nil); err != nil {
			return report, "", nil, err
		}
	}
	return report, path, args, nil
}

// reserveAddressSpace prevents this program from needing more address space until it executes
// another program. It reserves memory for the arguments, stops garbage collection, and runs only
// the calling goroutine. The returned function ends this state.
func reserveAddressSpace() (release func()) {
	size := 1 << 20
	for _, text := range append(os.Environ(), os.Args...) {
		size += 4 * len(text)
	}
	runtime.KeepAlive(make([]byte, size))
	runtime.GC()
	collect, threads := debug.SetGCPercent(-1), runtime.GOMAXPROCS(1)
	return func() {
		runtime.GOMAXPROCS(threads)
		debug.SetGCPercent(collect)
	}
}
