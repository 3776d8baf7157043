package pgtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// CPU is the processor time that the server and its backends have used, those that
// have ended included. It says more than the clock where others use the processors
// too. It is zero where the system does not tell, and for a server from outside.
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

// used is the time in a line of /proc if it is of the postmaster or of one of its
// processes.
func used(stat, postmaster string) time.Duration {
	pid, rest, _ := strings.Cut(stat, " (")
	fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
	first := 11 // utime and stime
	switch postmaster {
	case pid:
		first = 13 // those of its processes that ended
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
