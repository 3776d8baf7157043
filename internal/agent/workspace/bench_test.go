package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// large makes a repository of at least 5,000 files out of Go's own source tree.
func large(b *testing.B) string {
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

// BenchmarkFiftyWorkspaces sets up and takes down fifty workspaces of a large
// repository, ten at a time; each commits. It tells for how long the set-up lock was
// held and waited for.
func BenchmarkFiftyWorkspaces(b *testing.B) {
	source := large(b)
	for b.Loop() {
		m, err := Open(filepath.Join(b.TempDir(), "workspaces"))
		if err != nil {
			b.Fatal(err)
		}
		if os.Geteuid() == 0 {
			lent(&testing.T{}, m)
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
	cmd := exec.Command("sh", "-ec", "echo job >> src/job.txt; git add -A; git commit -q -m job; git status --porcelain | wc -l")
	cmd.Dir, cmd.Env = w.Dir, environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return w.Remove(context.Background())
}

// BenchmarkSalvage reads the work of a job on a large repository: with what is known
// of the files that nobody has touched, as while the job runs, and without, as after
// the death of its server.
func BenchmarkSalvage(b *testing.B) {
	source := large(b)
	m, err := Open(filepath.Join(b.TempDir(), "workspaces"))
	if err != nil {
		b.Fatal(err)
	}
	if os.Geteuid() == 0 {
		lent(&testing.T{}, m)
	}
	w, err := m.Prepare(context.Background(), Spec{ID: "run", Repo: source})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = w.Remove(context.Background()) }()
	cmd := exec.Command("sh", "-ec", "echo job >> src/job.txt; git add -A; git commit -q -m job; for f in src/fmt/*.go; do echo // >>$f; done; echo new >src/new.txt")
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
			for b.Loop() {
				if s, err := m.Salvage(context.Background(), w); err != nil || s.Commits != 1 || s.Patch == nil {
					b.Fatalf("%+v, %v", s, err)
				}
			}
		})
	}
}
