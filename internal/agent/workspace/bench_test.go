package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// largeRepository makes a repository of at least 5,000 files from Go's own source tree.
func largeRepository(b *testing.B) string {
	b.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Fatal(err)
	}
	dir := filepath.Join(b.TempDir(), "large")
	cmd := exec.Command("sh", "-ec", `mkdir "$1"; cp -r "$0/src" "$1/src"; cd "$1"; git init -q -b main .; git add -A; git commit -q -m all; git ls-files | wc -l`,
		string(out[:len(out)-1]), dir)
	cmd.Env = environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	} else {
		b.Logf("%s files, %d processors", out[:len(out)-1], runtime.NumCPU())
	}
	return dir
}

// BenchmarkFiftyWorkspaces makes and removes fifty workspaces of a large repository, ten at a time,
// with a commit in each workspace. It reports how long a lock on the base (the cached clone) was
// kept, and how long processes waited for a lock.
func BenchmarkFiftyWorkspaces(b *testing.B) {
	source := largeRepository(b)
	for b.Loop() {
		m, err := Open(filepath.Join(b.TempDir(), "workspaces"))
		if err != nil {
			b.Fatal(err)
		}
		if os.Geteuid() == 0 {
			giveUsers(&testing.T{}, m)
		}
		began := time.Now()
		var all sync.WaitGroup
		slots := make(chan struct{}, 10)
		for i := range 50 {
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				if err := oneJob(m, source, i); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
		l := m.Locks()
		b.ReportMetric(float64(l.Held50.Milliseconds()), "held-p50-ms")
		b.ReportMetric(float64(l.Held99.Milliseconds()), "held-p99-ms")
		b.ReportMetric(float64(l.Waited99.Milliseconds()), "waited-p99-ms")
		b.ReportMetric(time.Since(began).Seconds()/50, "s/job")
	}
}

func oneJob(m *Manager, source string, i int) error {
	w, err := m.Prepare(context.Background(), Spec{ID: fmt.Sprintf("run-%d", i), Repo: source})
	if err != nil {
		return err
	}
	cmd := exec.Command("sh", "-ec", "echo job >> src/job.txt; git add -A; git commit -q -m job; git status "+
		"--porcelain | wc -l")
	cmd.Dir, cmd.Env = w.Dir, environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return w.Remove(context.Background())
}

// BenchmarkSalvage saves the changes of a job on a large repository. In the benchmark "known",
// Salvage learns from the saved state of the checkout which files are untouched; that is the case
// while the server of the job runs. In the benchmark "unknown", Salvage must read all files, as
// after the death of that server.
func BenchmarkSalvage(b *testing.B) {
	source := largeRepository(b)
	m, err := Open(filepath.Join(b.TempDir(), "workspaces"))
	if err != nil {
		b.Fatal(err)
	}
	if os.Geteuid() == 0 {
		giveUsers(&testing.T{}, m)
	}
	w, err := m.Prepare(context.Background(), Spec{ID: "run", Repo: source})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = w.Remove(context.Background()) }()
	cmd := exec.Command("sh", "-ec", "echo job >> src/job.txt; git add -A; git commit -q -m job; for f in "+
		"src/fmt/*.go; do echo // >>$f; done; echo new >src/new.txt")
	cmd.Dir, cmd.Env = w.Dir, environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	noted := w.noted
	for name, known := range map[string]bool{"known": true, "unknown": false} {
		b.Run(name, func(b *testing.B) {
			w.noted = noted
			if !known {
				w.noted = [len(noted)]byte{}
			}
			began := processorTime(b)
			for b.Loop() {
				if s, err := m.Salvage(context.Background(), w); err != nil || s.Commits != 1 || s.Patch == nil {
					b.Fatalf("%+v, %v", s, err)
				}
			}
			b.ReportMetric(float64((processorTime(b)-began).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

// grownRepository makes a repository of 1,000 files and 800 commits.
func grownRepository(b *testing.B) string {
	b.Helper()
	var in strings.Builder
	for i := range 800 {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter T <t@example.com> %d +0000\ndata 6\ncommit\n",
			1_700_000_000+i)
		for f := range 1000 {
			if i > 0 && f%400 != i%400 {
				continue
			}
			text := fmt.Sprintf("file %d, changed %d\n%s", f, i, strings.Repeat("some text in it\n", 40))
			fmt.Fprintf(&in, "M 100644 inline dir%d/file%d\ndata %d\n%s\n", f%30, f, len(text), text)
		}
	}
	dir := filepath.Join(b.TempDir(), "grown")
	cmd := exec.Command("sh", "-ec", `git init -q -b main "$0"; cd "$0"; git fast-import --quiet; git reset -q --hard; git rev-list --count HEAD`, dir)
	cmd.Env, cmd.Stdin = environ(), strings.NewReader(in.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return dir
}

// BenchmarkPrepare measures how long Prepare takes if the base (the cached clone) already exists and
// has 1,000 files and 800 commits. It also reports how long Salvage takes for each workspace.
func BenchmarkPrepare(b *testing.B) {
	source := grownRepository(b)
	m, err := Open(filepath.Join(b.TempDir(), "workspaces"))
	if err != nil {
		b.Fatal(err)
	}
	if os.Geteuid() == 0 {
		giveUsers(&testing.T{}, m)
	}
	n := 0
	var saving time.Duration
	made := func() *Workspace {
		n++
		w, err := m.Prepare(context.Background(), Spec{ID: fmt.Sprintf("run-%d", n), Repo: source})
		if err != nil {
			b.Fatal(err)
		}
		return w
	}
	_ = made().Remove(context.Background())
	for b.Loop() {
		w := made()
		b.StopTimer()
		cmd := exec.Command("sh", "-ec", "echo job >> job.txt; git add -A; git commit -q -m job; echo more >dir1/file1")
		cmd.Dir, cmd.Env = w.Dir, environ()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		began := time.Now()
		if s, err := m.Salvage(context.Background(), w); err != nil || s.Commits != 1 {
			b.Fatalf("%+v, %v", s, err)
		}
		saving += time.Since(began)
		if err := w.Remove(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(saving.Milliseconds())/float64(n-1), "salvage-ms")
}

// processorTime returns the processor time of this process and of the child processes that it
// waited for.
func processorTime(b *testing.B) (sum time.Duration) {
	b.Helper()
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
