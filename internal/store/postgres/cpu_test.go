package postgres_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// cpu is the processor time that a benchmark has used, in this process and in the database server.
// On a busy machine it is a better measure than the elapsed time.
type cpu struct{ here, there time.Duration }

// spent returns the time used until now, zero where the system does not report it.
func spent(tb testing.TB) (c cpu) {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	c.here = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	dir, err := pgtest.Shared(tb).Query("postgres", "SHOW data_directory")
	if err != nil {
		tb.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return c // the server runs on another machine, whose /proc this process cannot read
	}
	postmaster, _, _ := strings.Cut(string(text), "\n")
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range stats {
		if b, err := os.ReadFile(path); err == nil {
			c.there += ofServer(string(b), postmaster)
		}
	}
	return c
}

// ofServer returns the time in a line of /proc if the line is about the postmaster or one of its
// child processes.
func ofServer(stat, postmaster string) time.Duration {
	pid, rest, _ := strings.Cut(stat, " (")
	fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
	ticks := func(i int) time.Duration {
		n, _ := strconv.Atoi(fields[i])
		return time.Duration(n) * time.Second / 100
	}
	switch {
	case pid == postmaster:
		return ticks(13) + ticks(14) // the processor time of child processes that have ended
	case fields[1] == postmaster:
		return ticks(11) + ticks(12)
	}
	return 0
}

// report adds the processor time for each of n operations, in microseconds.
func (c cpu) report(b *testing.B, n int64) {
	b.Helper()
	now := spent(b)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(max(1, n)) }
	b.ReportMetric(each(now.here-c.here), "µs-here")
	b.ReportMetric(each(now.there-c.there), "µs-there")
}
