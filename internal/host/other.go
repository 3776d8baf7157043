//go:build !linux

package host

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Self returns the host and number of the calling process. Systems other than Linux cannot prove
// anything about a process: the error is [ErrUnsupported], and [Process.State] with this identity
// is always Unknown.
func Self() (Process, error) {
	return Identify(os.Getpid())
}

// Identify returns only the host and the number, with the error [ErrUnsupported].
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

// Boottime reads the monotonic clock. On macOS this clock continues during sleep, like Linux's
// CLOCK_BOOTTIME; on other systems it may stop.
func Boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("read the monotonic clock: %v", err))
	}
	return time.Duration(ts.Nano())
}

// Handle returns [ErrUnsupported].
func (p Process) Handle(Process) (*os.File, error) { return nil, ErrUnsupported }

// Ended returns [ErrUnsupported].
func Ended([]*os.File) ([]bool, error) { return nil, ErrUnsupported }

func readable() error { return ErrUnsupported }

func probe(int, uint64) Liveness { return Unknown }

func signal(int, uint64, syscall.Signal) error { return ErrUnsupported }
