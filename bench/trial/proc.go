package trial

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks is how many of the kernel's clock ticks a second has, on every platform
// that Linux runs on.
const ticks = 100

// ProcessCPU is the processor time that a process has used.
func ProcessCPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 13 {
		return 0, fmt.Errorf("process %d: what its stat says is not understood", pid)
	}
	user, uerr := strconv.ParseInt(f[11], 10, 64)
	system, serr := strconv.ParseInt(f[12], 10, 64)
	if uerr != nil || serr != nil {
		return 0, fmt.Errorf("process %d: what its stat says is not understood", pid)
	}
	return time.Duration(user+system) * time.Second / ticks, nil
}

// ProcessMemory is the resident memory of a process in MB.
func ProcessMemory(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1000, err
		}
	}
	return 0, fmt.Errorf("process %d: no resident memory", pid)
}
