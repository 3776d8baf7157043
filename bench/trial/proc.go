package trial

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks is the number of the kernel's clock ticks in a second, on every platform that Linux runs
// on.
const ticks = 100

// cpuTime returns the processor time of this process and of its children, both running children,
// such as a server, and children that have ended.
func cpuTime() time.Duration {
	all := childrenCPU(os.Getpid())
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err == nil {
			all += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return all
}

// process is the kernel's data about a process.
type process struct {
	parent          int
	own, descendant time.Duration // processor time of the process itself, and of its ended children
}

func processOf(pid int) (p process, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var state string
	var skip, user, system, cuser, csystem int64
	_, err = fmt.Sscan(rest, &state, &p.parent, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &user,
		&system, &cuser, &csystem)
	p.own, p.descendant = time.Duration(user+system)*time.Second/ticks, time.Duration(cuser+csystem)*time.Second/ticks
	return p, err
}

// ProcessCPU returns the processor time that a process has used.
func ProcessCPU(pid int) (time.Duration, error) {
	p, err := processOf(pid)
	return p.own, err
}

// ServerCPU returns the processor time that a server of Belay and the database of a trial have used.
func ServerCPU(r Request, server int) time.Duration {
	own, err := ProcessCPU(server)
	if err != nil {
		return 0
	}
	return own + databaseCPU(r.Database)
}

// databaseCPU returns the processor time of a PostgreSQL server: that of its postmaster, whose
// process id is pid, and that of the postmaster's children, ended or not. It returns 0 for pid 0.
func databaseCPU(pid int) time.Duration {
	if pid == 0 {
		return 0
	}
	p, err := processOf(pid)
	if err != nil {
		return 0
	}
	return p.own + p.descendant + childrenCPU(pid)
}

// childrenCPU returns the processor time of the running children of a process.
func childrenCPU(pid int) (all time.Duration) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if child, err := strconv.Atoi(e.Name()); err == nil {
			if c, err := processOf(child); err == nil && c.parent == pid {
				all += c.own
			}
		}
	}
	return all
}

// ProcessMemory returns the resident memory of a process in MB.
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
