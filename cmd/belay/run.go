package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/screen"
)

// labelLine is the name of the label that contains a hash of the job on a belay run command line.
// belay run --resume uses this label to find the execution of an interrupted command line.
const labelLine = "line"

// runFlags are the flags of belay run.
type runFlags struct {
	repo, ref, key   string
	input            string          // of a document
	login            workspace.Login // the user name and password from the URL of the repository
	resume, isolated bool
	timeout, grace   time.Duration
	steps, env       []string
	budget           costFlag
	own              ownGates
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [flags] FILE.yaml | -- COMMAND [ARG…]",
		Short: "Run a command, or a workflow that a file describes, durably",
		Long: `Run a command in a fresh clone of a repository, as a durable execution, with
live output. At the end belay run prints a summary and exits with the command's exit
code.

After a crash of this process or of the machine, type the same line again. With --key
belay run continues the execution of that key, or prints the result if the execution has
ended. With --resume it continues the newest unfinished execution of exactly this
line, or begins a new execution. (Do not confuse --resume with the command belay resume,
which lets a paused execution continue.) Steps that have finished do not run again;
belay run restores the files that they changed.

  belay run -- make test                         the repository here, at HEAD
  belay run --repo URL --ref v1.2 -- go vet ./...
  belay run --resume --step 'build=make' --step 'test=make test'
  belay run --key nightly-2026-11-20 --timeout 1h -- ./nightly.sh

Any number of belay run processes can use one data directory at the same time, each for
its own execution. Two processes with the same key share one execution: the second
process waits for the end of the first, and takes the execution over if the first one
crashes. With --server the server stores the execution, and the command still runs on
this machine.

The clone contains only committed changes. The environment of the command contains
PATH, a new empty HOME, the locale, and the variables that --env names. The command runs
as your user, with your rights to write and without limits, so that it can use your
caches. Run a command that you do not trust with --isolated, in the same sandbox as
the jobs of belay worker: outside its workspace the machine is read-only, limits such
as BELAY_AGENT_MAX_PROCESSES apply, and, if belay runs as root, the command has a
system user of its own.

With a FILE that ends in .yaml, .yml or .json, belay run runs the workflow that the file
describes: its tasks run in this process, each as a durable execution of its own, and
belay run shows their progress. --key and --resume work as for commands; --resume
continues the newest unfinished execution of the same document with the same input.

  belay run nightly.yaml
  belay run deploy.yaml --input '{"version": "1.4"}' --resume
  belay run review.yaml --budget 20000`,
		ValidArgsFunction: completeDocuments,
		RunE: func(c *cobra.Command, args []string) error {
			if file, err := documentArg(c, args); file != "" || err != nil {
				if err != nil {
					return err
				}
				return a.runDocument(c.Context(), &f, file)
			}
			if f.input != "" {
				return usage("--input is for a document, as in: belay run deploy.yaml --input '{}'")
			}
			if len(args) > 0 && c.ArgsLenAtDash() != 0 {
				return usage("write the command after --, as in: belay run -- %s", strings.Join(args, " "))
			}
			return a.run(c.Context(), &f, args)
		},
	}
	c.Flags().StringVar(&f.repo, "repo", "",
		"the repository, a path or `URL`, or none for an empty workspace; by default the repository of the working "+
			"directory")
	c.Flags().StringVar(&f.ref, "ref", "", "the branch, tag or commit; the repository's HEAD by default")
	c.Flags().StringVar(&f.input, "input", "", "the input of a document, as `JSON`, @FILE, or - for standard input")
	c.Flags().StringVar(&f.key, "key", "",
		"an idempotency `key`: continue the execution that has this key, or print its result if it has ended")
	c.Flags().BoolVar(&f.resume, "resume", false,
		"continue the newest unfinished execution of exactly this command line, or of this document and input, if "+
			"there "+
			"is one")
	c.Flags().BoolVar(&f.isolated, "isolated", false,
		"run the command in the sandbox of belay worker; the variables BELAY_AGENT_… and the file in BELAY_CONFIG "+
			"configure the sandbox")
	c.Flags().DurationVar(&f.timeout, "timeout", 0,
		"the time limit of each step, counted from the start of the step; 0 means no limit")
	c.Flags().DurationVar(&f.grace, "grace", 10*time.Second, "how long a step may take to end after SIGTERM")
	c.Flags().StringArrayVar(&f.steps, "step", nil,
		"a durable step, as `name=command`, which sh runs; may be repeated; replaces COMMAND")
	c.Flags().StringSliceVar(&f.env, "env", nil, "pass on the environment variable `NAME`; its value is not stored")
	c.Flags().Var(&f.budget, "budget",
		"the budget of a new execution, as a number of `tokens` such as 12.5: when the agents of a document have used "+
			"it, the execution is paused until belay budget raises it")
	f.own.register(a, c)
	_ = c.MarkFlagDirname("repo")
	return c
}

// job returns the job that the command line describes.
func (f *runFlags) job(ctx context.Context, args []string) (*agent.Job, error) {
	j := &agent.Job{
		Ref: f.ref, Timeout: belay.Duration(f.timeout), Grace: belay.Duration(f.grace), Env: f.env,
	}
	switch {
	case len(f.steps) > 0 && len(args) > 0:
		return nil, usage("give --step or a COMMAND after --, not both")
	case len(args) > 0:
		j.Steps = []agent.Step{{Name: "command", Argv: args}}
	}
	for _, s := range f.steps {
		name, command, ok := strings.Cut(s, "=")
		if !ok || name == "" || strings.TrimSpace(command) == "" {
			return nil, usage("--step %s is not of the form name=command", quoted(s))
		}
		j.Steps = append(j.Steps, agent.Step{Name: name, Argv: []string{"sh", "-c", command}})
	}
	if f.key != "" && f.resume {
		return nil, usage("give --key or --resume, not both: --key alone continues the execution of the key")
	}
	repo, err := f.source(ctx)
	if err == nil {
		repo, f.login, err = workspace.Reveal(repo)
	}
	if err != nil {
		return nil, err
	}
	if repo != "" {
		if err := workspace.CheckRepo(repo); err != nil {
			return nil, err
		}
		if err := workspace.CheckRef(f.ref); err != nil {
			return nil, err
		}
	}
	j.Repo = repo
	if err := j.Check(); err != nil {
		return nil, err
	}
	return j, nil
}

// source returns the repository to clone, or "" for an empty workspace. It makes a path absolute,
// so that the job is the same from any working directory.
func (f *runFlags) source(ctx context.Context) (string, error) {
	switch {
	case f.repo == "none":
		if f.ref != "" {
			return "", usage("--ref needs a repository")
		}
		return "", nil
	case f.repo != "":
		if info, err := os.Stat(f.repo); err == nil && info.IsDir() {
			return filepath.Abs(f.repo)
		}
		return f.repo, nil
	}
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		if f.ref != "" {
			return "", usage("--ref needs a repository, and the working directory is in none; name one with --repo")
		}
		return "", nil
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// warnEmpty warns the user that the command gets an empty workspace because the working directory
// is in no repository: the user may expect the files of the working directory.
func (f *runFlags) warnEmpty(v *view, job *agent.Job) {
	if job.Repo == "" && f.repo == "" {
		v.say("the working directory is in no git repository, so the command gets an empty workspace; name a " +
			"repository with --repo, or confirm the empty workspace with --repo none")
	}
}

func (a *app) run(ctx context.Context, f *runFlags, args []string) error {
	job, err := f.job(ctx, args)
	if err != nil {
		return err
	}
	gates, err := f.own.gates()
	if err != nil {
		return err
	}
	line := commandLine(job)
	view := newView(a, job, f.isolated)
	s, err := a.openSession(ctx, "belay run -- "+line, view, f.isolated)
	if err != nil {
		return err
	}
	f.warnEmpty(view, job)
	s.runner.Workspaces.Credentials = withLogin(job.Repo, f.login, s.runner.Workspaces.Credentials)
	e, err := s.submit(ctx, f, job, line, gates)
	if err == nil {
		err = s.work(ctx, e)
	}
	return errors.Join(err, s.close())
}

// submit returns the execution that the command line continues, or submits a new execution.
func (s *session) submit(ctx context.Context, f *runFlags, job *agent.Job, line string,
	gates belay.Gates) (*belay.Execution, error) {
	input, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	return s.submitLine(ctx, f, &belay.Submission{
		Workflow: agent.Workflow, Input: input, Gates: gates,
		Labels: map[string]string{agent.LabelCommand: screen.Brief(line, 60)},
		Policy: belay.Policy{MaxAttempts: 1, NoDeadLetters: true, CancelGrace: job.Grace, MaxLosses: manyLosses},
	})
}

// manyLosses is the limit of lost runs of an execution of belay run. After each lost run the user decides whether to
// type the command line again. So a command that crashes its worker is not repeated endlessly, even if the limit is
// high.
const manyLosses = 1000

// submitLine returns the execution that the command line continues, or submits sub. It sets the id, the queue, the key
// and a label with the hash of the input.
func (s *session) submitLine(ctx context.Context, f *runFlags, sub *belay.Submission) (*belay.Execution, error) {
	hash := sha256.Sum256(sub.Input)
	digest := hex.EncodeToString(hash[:16])
	if f.resume {
		e, err := s.unfinished(ctx, sub.Workflow, digest)
		if e != nil || err != nil {
			return e, err
		}
	}
	sub.ID, sub.IdempotencyKey, sub.Actor = belay.ExecutionID(embedded.NewID()), f.key, actor()
	sub.Trace = traceOf()
	sub.Budget = f.budget.budget
	sub.Labels[labelLine] = digest
	sub.Queue = agent.RunQueue + sub.ID.String()
	if f.key != "" {
		sub.Queue = agent.RunQueue + "key:" + digest
	}
	out, err := s.backend.Submit(ctx, *sub)
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		return nil, err
	}
	e, err := s.backend.Execution(ctx, out[0].ID)
	return &e, err
}

// unfinished returns the newest execution of this command line that has not ended, or nil if there
// is none. It finds the executions of the command line by their label labelLine, whose value is
// digest.
func (s *session) unfinished(ctx context.Context, workflow, digest string) (*belay.Execution, error) {
	f := belay.Filter{
		Workflow: workflow, Labels: map[string]string{labelLine: digest}, Limit: 1,
		States: belay.ActiveStates(),
	}
	for {
		page, err := s.backend.Executions(ctx, f)
		switch {
		case err != nil:
			return nil, err
		case len(page.Executions) > 0:
			return &page.Executions[0], nil
		case page.Next == "":
			return nil, nil
		}
		f.Cursor = page.Next
	}
}

// commandLine returns the job as a user would type it.
func commandLine(j *agent.Job) string {
	if len(j.Steps) == 1 && j.Steps[0].Name == "command" {
		return screen.Words(j.Steps[0].Argv)
	}
	names := make([]string, len(j.Steps))
	for i, s := range j.Steps {
		names[i] = s.Name
	}
	return strings.Join(names, ", then ")
}

// summary prints the result of a job that has ended, and returns its exit code as an error, or nil
// for 0.
func (v *view) summary(e *belay.Execution) error {
	var r agent.Result
	if len(e.Output) > 0 {
		if err := json.Unmarshal(e.Output, &r); err != nil {
			return fmt.Errorf("read the result of %s: %w", e.ID, err)
		}
	}
	code := exitCodeOf(e, r.ExitCode)
	if v.app.output == "json" {
		if err := screen.PrintJSON(v.app.out, e); err != nil {
			return err
		}
	} else {
		v.finish(e, &r, code)
	}
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

// exitCodeOf returns the exit code for a job that has ended. code is the exit code of the job's
// last command. The result is 130 after a cancel, as in shells. After a failure without an exit
// code, the result is 124 for a timeout, as in timeout(1), and 125 for any other failure.
func exitCodeOf(e *belay.Execution, code int) int {
	switch {
	case e.State == belay.Cancelled:
		return 130
	case e.State == belay.Failed && code == 0:
		if e.Error != nil && e.Error.Class == belay.ClassTimeout {
			return 124
		}
		return 125
	}
	return code
}
