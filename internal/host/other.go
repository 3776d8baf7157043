//go:build !linux

package host

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Self returns the host and number of the calling process. Elsewhere than on
// Linux nothing can be proven about a process: the error is [ErrUnsupported], and
// every question asked with this identity is answered Unknown.
func Self() (Process, error) {
	return Identify(os.Getpid())
}

// Identify returns host and number only, with [ErrUnsupported].
func Identify(pid int) (Process, error) {
	name, _ := os.Hostname()
	return Process{Host: name, PID: pid}, fmt.Errorf("identify process %d: %w", pid, ErrUnsupported)
}

// Lookup returns [ErrUnsupported].
func Lookup(int) (Status, error) { return Status{}, ErrUnsupported }

// Processes returns [ErrUnsupported].
func Processes() ([]Status, error) { return nil, ErrUnsupported }

// FindEnv returns [ErrUnsupported].
func FindEnv(string, func(value string) bool) ([]Found, error) { return nil, ErrUnsupported }

// Boottime reads the monotonic clock. On macOS it counts sleep, as the clock of
// that name on Linux does; on other systems it may not.
func Boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("read the monotonic clock: %v", err))
	}
	return time.Duration(ts.Nano())
}

func probe(int, uint64) Liveness { return Unknown }

func signal(int, uint64, syscall.Signal) error { return ErrUnsupported }
