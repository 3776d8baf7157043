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

// limiterName is the argv[0] of a process that puts itself within resource limits and
// then becomes the command. The supervisor cannot do it for the command: limits belong
// to a whole process, and its own other threads would run out of address space.
//
// The arguments that follow are the number of the descriptor at which it reports, the
// limits, the path of the program, and the program's own arguments.
const limiterName = "belay-limits"

// within gives the arguments of a limiter for a command.
func within(limits []rlimit, report int, path string, args []string) []string {
	var text []string
	for _, l := range limits {
		text = append(text, fmt.Sprintf("%d=%d", l.resource, l.value))
	}
	return append([]string{limiterName, strconv.Itoa(report), strings.Join(text, ","), path}, args...)
}

// forkWithin starts a command within the limits, and answers once it has taken the
// limiter's place.
func (s *supervisor) forkWithin(path string) (pid int, err error) {
	attr := s.attributes()
	if len(s.bounds.rlimits) == 0 {
		return syscall.ForkExec(path, s.order.Args, attr)
	}
	ours, theirs, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer ours.Close()
	args := within(s.bounds.rlimits, len(attr.Files), path, s.order.Args)
	attr.Files = append(attr.Files, theirs.Fd())
	pid, err = syscall.ForkExec(ownPath, args, attr)
	_ = theirs.Close()
	if err != nil {
		return 0, fmt.Errorf("start what sets the limits: %w", err)
	}
	var errno [4]byte
	switch n, _ := io.ReadFull(ours, errno[:]); n {
	case 0: // the program runs, and the kernel has closed the other end
		return pid, nil
	case len(errno):
		err = syscall.Errno(binary.LittleEndian.Uint32(errno[:]))
	default:
		err = errors.New("what sets the limits is gone")
	}
	_, _ = syscall.Wait4(pid, nil, 0, nil)
	return 0, err
}

// keepWithin is the life of a limiter. It returns in a helper, which is this very
// program under another name.
func keepWithin(helpers []Helper) {
	// The signal on the supervisor's end belongs to a thread, and the thread that becomes
	// the program has to have it.
	runtime.LockOSThread()
	release := alone()
	report, path, args, err := stayWithin()
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

// stayWithin sets the limits of this process, for good.
func stayWithin() (report int, path string, args []string, err error) {
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

// alone sees to it that this program needs no more address space to become another: it
// has free memory for the other's arguments, collects no garbage, and runs nothing but
// the calling goroutine. The function that it returns ends that.
func alone() (release func()) {
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
