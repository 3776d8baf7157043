package process

import (
	"errors"
	"fmt"
	"strings"
)

// Limits are limits for all processes of a run together. 0 means no limit.
type Limits struct {
	// Pids is the maximum number of processes and threads at a time; at least 16.
	Pids int
	// Memory is the maximum memory in bytes, including swap; at least 4 MiB.
	Memory int64
	// CPU is the maximum number of cores, such as 1.5; at least 0.01.
	CPU float64
	// FileSize is the maximum size of each file, in bytes.
	FileSize int64
}

// The smallest values that a limit may have.
const (
	leastPids   = 16
	leastMemory = 4 << 20
	leastCPU    = 0.01
)

func (l Limits) validate() error {
	switch {
	case l.Pids < 0 || l.Memory < 0 || l.CPU < 0 || l.FileSize < 0:
		return errors.New("a limit must not be negative")
	case l.Pids > 0 && l.Pids < leastPids:
		return fmt.Errorf("a limit of %d processes: the minimum is %d", l.Pids, leastPids)
	case l.Memory > 0 && l.Memory < leastMemory:
		return fmt.Errorf("a limit of %d bytes of memory: the minimum is %d", l.Memory, leastMemory)
	case l.CPU > 0 && l.CPU < leastCPU:
		return fmt.Errorf("a limit of %g cores: the minimum is %g", l.CPU, leastCPU)
	}
	return nil
}

// byRlimit is the text in Enforced for a resource limit (setrlimit).
const byRlimit = "rlimit"

// Unenforced is the text in Enforced for a limit that this machine cannot enforce.
const Unenforced = "nothing"

// Enforced names the means that enforces each limit: "cgroup v1", "cgroup v2", "rlimit", or
// [Unenforced]. An rlimit for Pids counts all processes of the user, and an rlimit for Memory
// applies to each process alone. The name is empty if there is no limit.
type Enforced struct{ Pids, Memory, CPU, FileSize string }

// describe describes the limits and their means for a log.
func (e Enforced) describe(l Limits) string {
	var all []string
	add := func(by, format string, args ...any) {
		if by != "" {
			all = append(all, fmt.Sprintf(format, args...)+" by "+by)
		}
	}
	add(e.Pids, "%d processes", l.Pids)
	add(e.Memory, "%s of memory", bytesText(l.Memory))
	add(e.CPU, "%g cores", l.CPU)
	add(e.FileSize, "%s a file", bytesText(l.FileSize))
	if len(all) == 0 {
		return "no limits"
	}
	return strings.Join(all, ", ")
}

// bytesText formats a size with the largest unit that fits.
func bytesText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return strings.TrimSuffix(fmt.Sprintf("%.1f", float64(n)/float64(u.size)), ".0") + " " + u.name
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
