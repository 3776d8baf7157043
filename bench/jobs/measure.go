package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/belaydev/belay/bench/trial"
)

// Runner carries out jobs of coding agents. Before the first call of Run it has cloned the
// repository.
type Runner interface {
	// Run carries out the i-th job when it is the job's turn. It returns the agent's output. If the
	// Runner itself runs git before and after the agent, its failed git commands are reported in
	// this output too, in the same form. Run is called for all jobs at once, and the Runner decides
	// how many of them work at a time.
	Run(ctx context.Context, i int) (said string, err error)
	// Stop waits until no job runs; when ctx ends, it ends the running jobs. It returns for how
	// long each job had the set-up lock (under which workspaces are made one at a time), or nil if
	// the Runner does not measure these times.
	Stop(ctx context.Context) (*trial.Times, error)
	// Fetch fetches the branch of each job into the clone that is checked.
	Fetch(ctx context.Context, clone string) error
}

// Measure lets a Runner carry out the jobs of a trial and checks their results.
func Measure(ctx context.Context, r trial.Request, run Runner) (trial.Sample, error) {
	before := usage(r.Dir)
	cpu := ended()
	neighbour := Move(ctx, r.Repo)
	began := time.Now()
	said, peak, err := all(ctx, r, run)
	took := time.Since(began)
	locks, serr := stop(ctx, run, err != nil)
	if err = errors.Join(err, serr, neighbour.Stop()); err != nil {
		return trial.Sample{}, err
	}
	cpu = ended() - cpu
	n := float64(r.N)
	s := trial.Sample{Rate: n / took.Seconds(), Settings: Settings(r.Think), Values: map[string]float64{
		"wall_s": took.Seconds(), "cpu_s_each": cpu.Seconds() / n,
		"disk_peak_mb": peak - before, "disk_left_mb": usage(r.Dir) - before,
	}}
	if locks != nil {
		s.Values["lock_p50_ms"], s.Values["lock_p99_ms"], s.Values["lock_max_ms"] = locks.P50, locks.P99, locks.Max
	}
	err = check(ctx, r, run, said, &s)
	return s, err
}

// stop stops a Runner. If useless is set, the results of the jobs do not matter, so stop ends
// running jobs instead of waiting for them.
func stop(ctx context.Context, run Runner, useless bool) (*trial.Times, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if useless {
		cancel()
	}
	return run.Stop(ctx)
}

// all runs all jobs and returns the outputs of their agents and the peak of disk space.
func all(ctx context.Context, r trial.Request, run Runner) ([]string, float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	said := make([]string, r.N)
	most := watch(r.Dir)
	var wg sync.WaitGroup
	for i := range said {
		wg.Go(func() {
			var err error
			if said[i], err = run.Run(ctx, i); err != nil {
				cancel(fmt.Errorf("job %d: %w", i, err))
			}
		})
	}
	wg.Wait()
	return said, most(), context.Cause(ctx)
}

// check adds the results of checking the jobs' branches and outputs to the sample.
func check(ctx context.Context, r trial.Request, run Runner, said []string, s *trial.Sample) error {
	clone := place{dir: filepath.Join(r.Dir, "check")}
	if _, err := clone.git(ctx, "clone", "--quiet", "--bare", "--shared", r.Repo, clone.dir); err != nil {
		return err
	}
	if err := run.Fetch(ctx, clone.dir); err != nil {
		return err
	}
	v := s.Values
	for _, name := range []string{"commits", "wrong_jobs", "cross_talk", "git_failures", "lock_errors"} {
		v[name] = 0
	}
	for i, text := range said {
		heard := parseOutput(text)
		v["git_failures"] += float64(heard.failed)
		v["lock_errors"] += float64(heard.locked)
		found := clone.check(ctx, i, heard.rest)
		v["commits"] += float64(found.commits)
		if found.foreign {
			v["cross_talk"]++
		}
		if found.wrong != "" {
			v["wrong_jobs"]++
		}
		if found.wrong != "" || heard.failed > 0 {
			fmt.Fprintf(os.Stderr, "%s/%s: job %d: %d gits failed, at first %q; wrong: %q\n", r.Contender, r.Variant, i,
				heard.failed, heard.first, found.wrong)
		}
	}
	return context.Cause(ctx)
}

// ended returns the processor time of all ended descendants of this process.
func ended() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
