// Package git runs the jobs of coding agents with git alone: in worktrees of one clone, or in the
// clone itself, one after the other.
package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay/bench/jobs"
	"github.com/belaydev/belay/bench/trial"
)

// Run carries out a trial.
func Run(ctx context.Context, r trial.Request) (trial.Sample, error) {
	if r.Measure != trial.Jobs {
		return trial.Sample{}, trial.ErrNone
	}
	c, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	var run jobs.Runner = &worktrees{clone: c, slots: make(chan struct{}, r.AtOnce)}
	how := fmt.Sprintf("git worktree add and remove, %d at a time, set up under a lock", r.AtOnce)
	if r.Variant == trial.Reset {
		run, how = &tree{clone: c}, "one tree, one at a time: fetch, checkout --force, clean"
	}
	s, err := jobs.Measure(ctx, r, run)
	s.Settings = how + "; " + s.Settings
	return s, err
}

// clone is the clone that all jobs share.
type clone struct {
	trial.Request
	dir, home string
	work      []string // the agent's command

	mu   sync.Mutex // the set-up lock: git commands that prepare and remove worktrees run one at a time
	held []time.Duration
}

// open makes the clone.
func open(ctx context.Context, r trial.Request) (*clone, error) {
	c := &clone{Request: r, dir: filepath.Join(r.Dir, "clone"), home: filepath.Join(r.Dir, "home")}
	for _, dir := range []string{c.home, filepath.Join(r.Dir, "tmp"), filepath.Join(r.Dir, "trees")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	config := "[user]\n\tname = bench\n\temail = bench@localhost\n"
	if err := os.WriteFile(filepath.Join(c.home, ".gitconfig"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	c.work = jobs.Agent(r.Think)
	out, err := c.command(ctx, r.Dir, "git", "clone", "--quiet", r.Repo, c.dir).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("git clone: %w: %s", err, out)
	}
	return c, nil
}

func (c *clone) command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := jobs.Command(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, jobs.Environment(c.home)
	return cmd
}

// git runs git in the clone, up to four times, and adds a report of each failure to said.
func (c *clone) git(ctx context.Context, said *strings.Builder, args ...string) error {
	for tries := 0; ; {
		out, err := c.command(ctx, c.dir, "git", args...).CombinedOutput()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		line, _, _ := strings.Cut(string(out), "\n")
		fmt.Fprintf(said, "failed: git %s: %s\n", strings.Join(args, " "), line)
		if tries++; tries == 4 {
			return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// agent runs the i-th job in dir. If the agent fails, the files stay as they are.
func (c *clone) agent(ctx context.Context, i int, dir string, said *strings.Builder) error {
	tmp := filepath.Join(c.Dir, "tmp", fmt.Sprint(i))
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	defer os.RemoveAll(tmp) //nolint:errcheck // the trial's directory is removed anyway
	args := slices.Clone(c.work)
	args[len(args)-1] = fmt.Sprint(i)
	cmd := c.command(ctx, dir, args[0], args[1:]...)
	cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	cmd.Stdout, cmd.Stderr = said, said
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		fmt.Fprintf(said, "failed: the agent: %v\n", err)
		return nil
	}
	return err
}

// Fetch fetches the branches of all jobs into another clone.
func (c *clone) Fetch(ctx context.Context, into string) error {
	out, err := c.command(ctx, into, "git", "fetch", "--quiet", c.dir,
		"refs/heads/job-*:refs/heads/job-*").CombinedOutput()
	if err != nil {
		return fmt.Errorf("git fetch: %w: %s", err, out)
	}
	return nil
}

// worktrees gives each job a worktree of the clone.
type worktrees struct {
	*clone
	slots chan struct{}
}

// Run carries out a job.
func (w *worktrees) Run(ctx context.Context, i int) (string, error) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	defer func() { <-w.slots }()
	var said strings.Builder
	dir := filepath.Join(w.Dir, "trees", fmt.Sprint(i))
	if err := w.add(ctx, dir, &said); err != nil {
		return said.String(), err
	}
	if err := w.agent(ctx, i, dir, &said); err != nil {
		return said.String(), err
	}
	return said.String(), w.git(ctx, &said, "worktree", "remove", "--force", dir)
}

func (w *worktrees) add(ctx context.Context, dir string, said *strings.Builder) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	began := time.Now()
	defer func() { w.held = append(w.held, time.Since(began)) }()
	if err := w.git(ctx, said, "fetch", "--quiet", "origin"); err != nil {
		return err
	}
	return w.git(ctx, said, "worktree", "add", "--quiet", "--detach", dir, "origin/main")
}

// Stop returns for how long each job had the set-up lock, under which worktrees are prepared and
// removed one at a time.
func (w *worktrees) Stop(context.Context) (*trial.Times, error) { return trial.TimesOf(w.held), nil }

// tree lets all jobs work in the clone itself, one after the other.
type tree struct{ *clone }

// Run carries out a job.
func (t tree) Run(ctx context.Context, i int) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var said strings.Builder
	for _, args := range [][]string{
		{"fetch", "--quiet", "origin"}, {"checkout", "--quiet", "--force", "--detach", "origin/main"},
		{"clean", "-dffq"},
	} {
		if err := t.git(ctx, &said, args...); err != nil {
			return said.String(), err
		}
	}
	err := t.agent(ctx, i, t.dir, &said)
	return said.String(), err
}

// Stop returns nil instead of the times for which the jobs had the set-up lock: in one tree a job
// has this lock during all of its work, so these times would only show how long the jobs take.
func (t tree) Stop(context.Context) (*trial.Times, error) { return nil, nil }
