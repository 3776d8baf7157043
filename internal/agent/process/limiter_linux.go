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

// limiterName is the argv[0] of a limiter: a process that restricts itself and then executes the
// command. It sets resource limits, which the supervisor does not set, because they would also apply
// to the supervisor, and the supervisor would run out of address space. And it enters a Landlock
// domain of its own if Landlock alone protects the supervisor.
//
// The arguments after argv[0] are the number of the descriptor for the report of the limiter,
// "nest" or "", the limits, the path of the program, and the arguments of the program.
const limiterName = "belay-limits"

// limiting is the work of a limiter.
type limiting struct {
	report int // the descriptor for an error
	nest   bool
	limits []rlimit
	path   string
	args   []string
}

// command returns the arguments of the limiter.
func (l *limiting) command() []string {
	nest, limits := "", make([]string, 0, len(l.limits))
	if l.nest {
		nest = "nest"
	}
	for _, r := range l.limits {
		limits = append(limits, fmt.Sprintf("%d=%d", r.resource, r.value))
	}
	return append([]string{limiterName, strconv.Itoa(l.report), nest, strings.Join(limits, ","), l.path}, l.args...)
}

// forkLimiter starts a limiter for a command, and returns after the limiter has executed the
// command. It starts the command directly if the command needs no limiter.
func (s *supervisor) forkLimiter(path string) (pid int, err error) {
	attr := s.attributes()
	if len(s.bounds.rlimits) == 0 && !s.nest {
		return syscall.ForkExec(path, s.order.Args, attr)
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	l := limiting{len(attr.Files), s.nest, s.bounds.rlimits, path, s.order.Args}
	attr.Files = append(attr.Files, theirs.Fd())
	pid, err = syscall.ForkExec(ownPath, l.command(), attr)
	_ = theirs.Close()
	if err != nil {
		return 0, fmt.Errorf("start the process that restricts itself: %w", err)
	}
	var errno [4]byte
	switch n, _ := io.ReadFull(ours, errno[:]); n {
	case 0: // an end of file: the limiter has executed the program, so the kernel has closed its end of the pipe
		return pid, nil
	case len(errno):
		err = syscall.Errno(binary.LittleEndian.Uint32(errno[:]))
	default:
		err = errors.New("the process that restricts itself has ended")
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	return 0, err
}

// runLimiter is the main function of a limiter. It executes the command and then does not return.
// If the command is a helper (a function of this program) with limits, runLimiter returns, and this
// process runs the helper.
func runLimiter(helpers []Helper) {
	// The kernel sends the death signal to a thread's children when that thread ends, and Landlock
	// restricts a thread, so the same thread must do both and execute the program.
	runtime.LockOSThread()
	release := reserveAddressSpace()
	l, err := readLimiting(os.Args)
	switch {
	case err != nil:
	case l.nest:
		err = l.nested()
	default:
		if err = l.setLimits(); err == nil {
			for _, h := range helpers {
				if l.path == ownPath && l.args[0] == h.Name {
					_ = unix.Close(l.report)
					os.Args = l.args
					release()
					runtime.UnlockOSThread()
					return
				}
			}
			err = syscall.Exec(l.path, l.args, os.Environ())
		}
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.EINVAL
	}
	_, _ = unix.Write(l.report, binary.LittleEndian.AppendUint32(nil, uint32(errno)))
	unix.Exit(126)
}

// readLimiting reads the arguments of a limiter.
func readLimiting(args []string) (l limiting, err error) {
	l.report = -1
	if len(args) < 6 {
		return l, errors.New("this program is started by belay, not by hand")
	}
	if l.report, err = strconv.Atoi(args[1]); err != nil {
		return l, err
	}
	l.nest, l.path, l.args = args[2] != "", args[4], args[5:]
	for text := range strings.SplitSeq(args[3], ",") {
		if text == "" {
			continue
		}
		var r rlimit
		if _, err := fmt.Sscanf(text, "%d=%d", &r.resource, &r.value); err != nil {
			return l, err
		}
		l.limits = append(l.limits, r)
	}
	return l, nil
}

// nested enters a Landlock domain inside the domain that the supervisor has given to the run, and
// executes the command, or a limiter that sets the limits.
//
// The thread of the supervisor that started this process is in the domain of the run, because
// processes inherit their domain. Landlock allows a process to send a signal to all threads of its
// own domain, so the run could kill its supervisor by a signal to that thread. From an inner domain
// it cannot.
func (l *limiting) nested() error {
	if err := l.inheritDeath(); err != nil {
		return err
	}
	if err := enterInner(); err != nil {
		return err
	}
	if len(l.limits) == 0 {
		unix.CloseOnExec(l.report)
		return syscall.Exec(l.path, l.args, os.Environ())
	}
	l.nest = false
	return syscall.Exec(ownPath, l.command(), os.Environ())
}

// inheritDeath makes the kernel kill this process when the supervisor ends.
func (l *limiting) inheritDeath() error {
	return unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
}

// setLimits sets the limits of this process. The process cannot raise these limits later.
func (l *limiting) setLimits() error {
	unix.CloseOnExec(l.report)
	if err := l.inheritDeath(); err != nil {
		return err
	}
	for _, r := range l.limits {
		var had unix.Rlimit
		if err := unix.Getrlimit(r.resource, &had); err != nil {
			return err
		}
		value := min(r.value, had.Max)
		if err := unix.Prlimit(0, r.resource, &unix.Rlimit{Cur: value, Max: value}, nil); err != nil {
			return err
		}
	}
	return nil
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
