package postgres_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/pgtest"
)

// cpu is the time that processors have spent on a benchmark: on this process and
// on the server. It says more than the clock where others use them too.
type cpu struct{ here, there time.Duration }

// spent gives what was spent until now, zero where the system does not tell.
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
		return c // another machine's
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

// ofServer is the time in a line of /proc if it is of the postmaster or of one of
// its processes.
func ofServer(stat, postmaster string) time.Duration {
	pid, rest, _ := strings.Cut(stat, " (")
	fields := strings.Fields(rest[strings.LastIndexByte(rest, ')')+1:])
	ticks := func(i int) time.Duration {
		n, _ := strconv.Atoi(fields[i])
		return time.Duration(n) * time.Second / 100
	}
	switch {
	case pid == postmaster:
		return ticks(13) + ticks(14) // of those of its processes that ended
	case fields[1] == postmaster:
		return ticks(11) + ticks(12)
	}
	return 0
}

// report adds what n things cost, in microseconds each.
func (c cpu) report(b *testing.B, n int64) {
	b.Helper()
	now := spent(b)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(max(1, n)) }
	b.ReportMetric(each(now.here-c.here), "µs-here")
	b.ReportMetric(each(now.there-c.there), "µs-there")
}
