// Command bench measures Belay on this machine and sets it beside what the same
// disk does alone in the same run. Only the ratios mean anything elsewhere.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"
)

// report is what a run of bench found.
type report struct {
	Machine    string    `json:"machine"`
	At         time.Time `json:"at"`
	Commits    []float64 `json:"single_commits_per_s"`
	Executions measured  `json:"executions_per_s"`
	Steps      measured  `json:"steps_per_s"`
	Latency    []latency `json:"submit_to_start"`
	Heartbeat  heartbeat `json:"writes_per_heartbeat_interval"`
}

// measured is a rate and what it is worth against single fsynced commits.
type measured struct {
	Runs   []float64 `json:"runs"`
	Median float64   `json:"median"`
	CPU    []float64 `json:"cpu_us_each"`
	Ratio  float64   `json:"ratio_to_single_commits"`
	Floor  float64   `json:"floor"`
	Held   string    `json:"counted_in_the_store"`
}

func main() {
	log.SetFlags(0)
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	n := flag.Int("n", 40_000, "executions of one run")
	runs := flag.Int("runs", 3, "runs of each measure; the median counts")
	seconds := flag.Int("seconds", 10, "seconds of each latency measure")
	dir := flag.String("dir", "", "where to keep the data; a temporary directory by default")
	asJSON := flag.Bool("json", false, "print JSON")
	only := flag.String("only", "", "executions, steps or http: measure nothing else, as for a profile")
	profile := flag.String("cpuprofile", "", "write a CPU profile of the executions and steps to this file")
	flag.Parse()
	if err := run(context.Background(), *dir, *n, *runs, *seconds, *only, *asJSON, *profile); err != nil {
		log.Fatal("bench: ", err)
	}
}

func run(ctx context.Context, dir string, n, runs, seconds int, only string, asJSON bool, profile string) error {
	if dir == "" {
		tmp, err := os.MkdirTemp("", "belay-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(tmp) //nolint:errcheck // a temporary directory
		dir = tmp
	}
	r := &report{Machine: fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version()), At: time.Now().UTC()}
	next := 0
	fresh := func() string { next++; return filepath.Join(dir, fmt.Sprint(next)) }
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	say("measuring on %s; data in %s", r.Machine, dir)
	if only == "http" {
		return measureHTTP(ctx, fresh, n, runs)
	}
	r.Executions.Floor, r.Steps.Floor = 1.5, 5
	for i := range runs {
		say("run %d of %d", i+1, runs)
		if err := r.round(ctx, fresh, n, only); err != nil {
			return err
		}
	}
	r.settle()
	if profile != "" {
		pprof.StopCPUProfile()
	}
	if only != "" {
		r.print()
		return nil
	}
	for _, rate := range []int{20, 500} {
		l, err := measureLatency(ctx, fresh(), rate, time.Duration(seconds)*time.Second)
		if err != nil {
			return err
		}
		r.Latency = append(r.Latency, l)
	}
	h, err := measureHeartbeat(ctx, fresh())
	if err != nil {
		return err
	}
	r.Heartbeat = h
	if asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	r.print()
	return nil
}

// round measures each rate once, with single commits before and after, so that
// they all see the same minutes.
func (r *report) round(ctx context.Context, fresh func() string, n int, only string) error {
	for _, m := range []struct {
		name string
		into *measured
		f    func(context.Context, string, int) (sample, error)
		n    int
	}{{"executions", &r.Executions, measureExecutions, n}, {"steps", &r.Steps, measureSteps, n / 5}} {
		if only != "" && only != m.name {
			continue
		}
		c, err := measureCommits(ctx, fresh())
		if err != nil {
			return err
		}
		r.Commits = append(r.Commits, c)
		s, err := m.f(ctx, fresh(), m.n)
		if err != nil {
			return err
		}
		m.into.Runs, m.into.CPU = append(m.into.Runs, s.rate), append(m.into.CPU, s.cpu)
		m.into.Held = s.held
	}
	c, err := measureCommits(ctx, fresh())
	r.Commits = append(r.Commits, c)
	return err
}

func (r *report) settle() {
	base := median(r.Commits)
	for _, m := range []*measured{&r.Executions, &r.Steps} {
		if len(m.Runs) == 0 {
			continue
		}
		m.Median = median(m.Runs)
		m.Ratio = m.Median / base
	}
}

func (r *report) print() {
	fmt.Printf("single fsynced commits      %9.0f /s\n", median(r.Commits))
	line := func(name string, m measured) {
		if len(m.Runs) == 0 {
			return
		}
		fmt.Printf("%-27s %9.0f /s   %5.1f × single commits (floor %.1f ×)   runs %.0f\n", name, m.Median, m.Ratio, m.Floor, m.Runs)
		fmt.Printf("%-27s %s; %.0f µs of processor time each\n", "", m.Held, median(m.CPU))
	}
	line("no-op executions", r.Executions)
	line("steps, 10 an execution", r.Steps)
	for _, l := range r.Latency {
		fmt.Printf("submit to start at %3d/s     p50 %.2f  p95 %.2f  p99 %.2f  max %.2f ms   (%d executions)\n", l.Rate, l.P50, l.P95, l.P99, l.Max, l.N)
	}
	h := r.Heartbeat
	if h.Workers == 0 {
		return
	}
	fmt.Printf("idle: %d running on %d workers   %.1f transactions per heartbeat interval of %s, %.1f of them marks alone; %.2f %% of a core\n",
		h.Running, h.Workers, h.Transactions, h.Interval, h.Marks, 100*h.CPU)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
