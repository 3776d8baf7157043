package belay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/jobs"
	"github.com/belaydev/belay/bench/trial"
)

// agents runs jobs of coding agents in the agent service of a server.
type agents struct {
	trial.Request
	server *server
	log    bytes.Buffer
	jobs   []belay.ExecutionID
	http   http.Client
}

// many measures many jobs of coding agents on one repository.
func many(ctx context.Context, r trial.Request) (trial.Sample, error) {
	if r.Variant == trial.Single {
		r.AtOnce = 1
	}
	a := &agents{Request: r, jobs: make([]belay.ExecutionID, r.N)}
	command, err := json.Marshal(jobs.Agent(r.Think))
	if err != nil {
		return trial.Sample{}, err
	}
	a.server, err = start(ctx, r, func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, "--log-level", "info", "--agent-repo", r.Repo, "--agent-max-concurrency",
			fmt.Sprint(r.AtOnce))
		cmd.Env = append(os.Environ(), "BELAY_AGENT_COMMAND="+string(command))
		cmd.Stderr, cmd.WaitDelay = &a.log, 5*time.Second
	})
	if err != nil {
		return trial.Sample{}, fmt.Errorf("%w\n%s", err, a.log.String())
	}
	if _, err := a.job(ctx, jobs.None); err != nil { // the first job makes the base clone
		return trial.Sample{}, errors.Join(err, a.end(ctx))
	}
	s, err := jobs.Measure(ctx, r, a)
	s.Settings = fmt.Sprintf("the agent service, %d at a time, %s; %s", r.AtOnce, jobUsers(), s.Settings)
	if err == nil {
		s.Counts, err = countJobs(ctx, r)
	}
	return s, err
}

// jobUsers says for the report which system users run the jobs, because jobs of the same user share
// git objects between their workspaces.
func jobUsers() string {
	if os.Geteuid() == 0 {
		return "each job as its own user"
	}
	return "all jobs as one user, because this is not root"
}

// countJobs counts the executions in the store: one for each job, and one for the first job, which
// made the base clone.
func countJobs(ctx context.Context, r trial.Request) ([]trial.Count, error) {
	n := int64(r.N) + 1
	all, err := counts(ctx, r.URL, tally{succeeded: n, runs: n})
	return slices.DeleteFunc(all, func(c trial.Count) bool { return c.What == "checkpoints" }), err
}

// job is the agent service's answer about a job.
type job struct {
	ID      belay.ExecutionID `json:"job_id"`
	Status  string            `json:"status"`
	Output  string            `json:"output"`
	Error   string            `json:"error"`
	Changes struct {
		Patch string `json:"patch"`
		Lost  string `json:"lost"`
	} `json:"changes"`
}

// job submits a prompt and waits until the job ends.
func (a *agents) job(ctx context.Context, prompt string) (j job, err error) {
	body, err := json.Marshal(map[string]string{"prompt": prompt})
	if err != nil {
		return j, err
	}
	if err := a.call(ctx, http.MethodPost, "/execute", bytes.NewReader(body), &j); err != nil {
		return j, err
	}
	for j.Status == "queued" || j.Status == "running" {
		if err := a.call(ctx, http.MethodGet, "/jobs/"+j.ID.String()+"?wait=30", nil, &j); err != nil {
			return j, err
		}
	}
	if j.Status != "completed" {
		return j, fmt.Errorf("job %s: %s: %s\n%s", j.ID, j.Status, j.Error, j.Output)
	}
	return j, nil
}

func (a *agents) call(ctx context.Context, method, path string, body io.Reader, into any) error {
	q, err := http.NewRequestWithContext(ctx, method, a.server.url+path, body)
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	answer, err := a.http.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// Run carries out the i-th job.
func (a *agents) Run(ctx context.Context, i int) (string, error) {
	j, err := a.job(ctx, fmt.Sprint(i))
	if err == nil && j.Changes.Patch+j.Changes.Lost != "" {
		err = fmt.Errorf("job %s left %s behind, and lost: %s", j.ID, j.Changes.Patch, j.Changes.Lost)
	}
	a.jobs[i] = j.ID
	return j.Output, err
}

var lock = regexp.MustCompile(`setup_lock_p50=(\S+) setup_lock_p99=(\S+)`)

// Stop stops the server, which then prints for how long each job had the set-up lock (under which
// workspaces are made one at a time).
func (a *agents) Stop(ctx context.Context) (*trial.Times, error) {
	if err := a.end(ctx); err != nil {
		return nil, err
	}
	said := lock.FindStringSubmatch(a.log.String())
	if said == nil {
		return nil, fmt.Errorf("the server does not report how long its lock was kept\n%s", a.log.String())
	}
	half, err := time.ParseDuration(said[1])
	if err != nil {
		return nil, err
	}
	most, err := time.ParseDuration(said[2])
	if err != nil {
		return nil, err
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	// of fewer than a hundred values, the 99th percentile is the largest
	return &trial.Times{P50: ms(half), P99: ms(most), Max: ms(most)}, nil
}

// end stops the server gracefully. If ctx has ended, it stops the server without waiting for
// running jobs.
func (a *agents) end(ctx context.Context) error {
	if ctx.Err() != nil {
		again := time.AfterFunc(time.Second, func() { _ = syscall.Kill(a.server.PID(), syscall.SIGTERM) })
		defer again.Stop()
	}
	return a.server.stop()
}

// Fetch fetches the commits of each job, which the server has stored as an artifact, into a clone.
func (a *agents) Fetch(ctx context.Context, clone string) error {
	b, err := openLocal(ctx, a.URL)
	if err != nil {
		return err
	}
	for i, id := range a.jobs {
		if err = a.unbundle(ctx, b, clone, i, id); err != nil {
			break
		}
	}
	return errors.Join(err, b.Close())
}

func (a *agents) unbundle(ctx context.Context, b local, clone string, i int, id belay.ExecutionID) error {
	var bundle []byte
	for from := int64(0); ; {
		chunks, err := b.Chunks(ctx, belay.ChunkQuery{Execution: id, Name: "step-1.bundle", From: from})
		if err != nil {
			return err
		}
		if len(chunks) == 0 {
			break
		}
		for _, c := range chunks {
			bundle = append(bundle, c.Data...)
			from = c.N + 1
		}
	}
	file := filepath.Join(a.Dir, "job.bundle")
	if err := os.WriteFile(file, bundle, 0o600); err != nil {
		return err
	}
	branch := fmt.Sprintf("refs/heads/job-%d", i)
	cmd := jobs.Command(ctx, "git", "fetch", "--quiet", file, branch+":"+branch)
	cmd.Dir, cmd.Env = clone, jobs.Environment(os.DevNull)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch the changes of job %d: %w: %s", i, err, strings.TrimSpace(string(out)))
	}
	return nil
}
