package pgtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU returns the processor time that the server and its backends have used, including backends
// that have ended. On a busy machine, processor time measures the work better than the elapsed
// time. CPU returns zero where the system does not report the time, and for a server that
// BELAY_TEST_POSTGRES names.
func (s *Server) CPU() time.Duration {
	s.mu.Lock()
	postmaster := strconv.Itoa(s.pid)
	s.mu.Unlock()
	if s.outside != nil || postmaster == "0" {
		return 0
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0
	}
	var all time.Duration
	for _, path := range stats {
		if text, err := os.ReadFile(path); err == nil {
			all += used(string(text), postmaster)
		}
	}
	return all
}

// used returns the processor time in the line stat of /proc if the line describes the postmaster or
// one of its child processes, and otherwise 0.
func used(stat, postmaster string) time.Duration {
	pid, rest, _ := strings.Cut(stat, " (")
	fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
	first := 11 // index of the process's own user time; its system time follows
	switch postmaster {
	case pid:
		first = 13 // index of the user time of child processes that have ended; their system time follows
	case fields[1]:
	default:
		return 0
	}
	var ticks int
	for _, text := range fields[first : first+2] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}
