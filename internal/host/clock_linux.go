package host

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Boottime reads CLOCK_BOOTTIME: the time since boot, time spent suspended
// included. It is the clock from which a worker fences itself; time.Now would
// stand still while the machine sleeps.
func Boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Linux has had this clock since 2.6.39, and reading it cannot fail otherwise.
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err))
	}
	return time.Duration(ts.Nano())
}
