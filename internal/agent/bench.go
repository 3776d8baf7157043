package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/desk"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/secret"
	"github.com/belaydev/belay/workflow"
)

// bench is the state of one run of a job: its results so far, and its workspace, which is made when
// the first step needs the workspace.
type bench struct {
	job     *Job
	runner  *Runner
	observe Observer
	log     *workflow.Log
	name    string                  // the name of the workspace's directory; empty for the id of the execution
	allow   func(repo string) error // decides whether a repository may be used; nil allows every repository
	foreign bool                    // a person other than the operator named the repository

	// The following fields are set only for agents. stdin is the standard input of the command.
	// secrets returns variables whose values reach the environment of the command and are removed
	// from its output.
	stdin   []byte
	secrets func() (map[string]string, error)
	more    map[string]string // additional variables
	saver   *saver
	clerk   *clerk // nil if the command cannot ask

	at       checkout // the result of the step checkout
	last     *Changes // the changes after the last finished step
	place    *workspace.Workspace
	capture  *capture // the standard output of the running step; nil if it is not captured
	notes    []string // parts that the workspace lacks, and network requests that were refused
	salvaged bool     // the command ran, and its changes were saved
}

// checkout makes the first workspace and thereby decides the commit for all runs of the job.
func (b *bench) checkout(ctx context.Context) (checkout, error) {
	w, err := b.prepare(ctx)
	if err != nil {
		return checkout{}, err
	}
	b.place = w
	return checkout{Commit: w.Commit, Branch: w.Branch}, nil
}

// workspace returns the workspace of the run, and makes it in the first call. A new workspace gets
// the changes of the last finished step.
func (b *bench) workspace(ctx context.Context) (*workspace.Workspace, error) {
	if b.place != nil {
		return b.place, nil
	}
	w, err := b.prepare(ctx)
	if err != nil {
		return nil, err
	}
	b.place = w
	if b.last == nil {
		return w, nil
	}
	var s workspace.Salvage
	for _, part := range b.last.parts(&s) {
		if *part.data, err = artifact(ctx, *part.name); err != nil {
			return nil, err
		}
	}
	if err := b.runner.Workspaces.Restore(ctx, w, s); err != nil {
		return nil, fmt.Errorf("restore the changes of the last step: %w", err)
	}
	if b.saver != nil {
		b.saver.last = sumOf(&s)
	}
	return w, nil
}

// step runs one command to its end and stores its changes.
func (b *bench) step(ctx context.Context, i int, s Step) (StepResult, error) {
	w, err := b.workspace(ctx)
	if err != nil {
		return StepResult{}, err
	}
	b.observe.Started(s)
	result := StepResult{Name: s.Name}
	if b.capture = nil; i == len(b.job.Steps)-1 {
		b.capture = newCapture(b.job.Capture)
	}
	end, err := b.execute(ctx, w, s, &result)
	result.ExitCode, result.TimedOut, result.Cancelled = end.Code, end.TimedOut, end.Cancelled
	result.DurationMS, result.Isolation = end.Duration.Milliseconds(), string(end.Isolation)
	var start *process.StartError
	switch {
	case errors.As(err, &start):
		result.ExitCode = start.Code
		b.write(process.Stderr, []byte(start.Error()+"\n"))
	case end.TimedOut:
		result.ExitCode = exitTimeout
	case err != nil && context.Cause(ctx) == nil && !end.Cancelled:
		return result, err
	}
	if errors.Is(context.Cause(ctx), belay.ErrLeaseLost) {
		return result, belay.ErrLeaseLost
	}
	result.Changes = b.salvage(ctx, i, w)
	if ctx.Err() != nil {
		return result, result.stopped(context.Cause(ctx))
	}
	if result.ExitCode != 0 {
		return result, result.failed(b.job.Retry)
	}
	if result.Stdout, err = b.capture.value(); err != nil {
		return result, &stepError{result, belay.Permanent(fmt.Errorf("step %q: %w", s.Name, err))}
	}
	if b.saver != nil {
		b.saver.ended = true
	}
	return result, b.log.Flush()
}

// mostNotes is the maximum number of notes of a job.
const mostNotes = 200

// exitTimeout is the exit code of a step that exceeded its time limit, as with timeout(1).
const exitTimeout = 124

// execute starts the command and waits for its end. While the worker does not know whether it still
// owns the execution, the command is frozen.
func (b *bench) execute(ctx context.Context, w *workspace.Workspace, s Step, result *StepResult) (process.Result,
	error) {
	if err := workflow.Guard(ctx); err != nil {
		return process.Result{}, err
	}
	env, show, err := b.hidden(b.environment(ctx, w, s))
	if err != nil {
		return process.Result{}, err
	}
	within, halt, over := b.saver.command(ctx)
	defer over()
	hold := new(brake)
	if b.clerk != nil {
		d, err := b.clerk.open(w)
		if err != nil {
			return process.Result{}, err
		}
		defer d.Close()
		env[desk.Variable] = d.Path()
		b.clerk.begin(halt, func() (bool, error) {
			if b.job.Repo == "" {
				return false, nil
			}
			_, err := b.saver.storeNow(ctx, b, w, hold)
			return true, err
		})
	}
	command, refused := b.runner.around(ctx, process.Command{
		ID: workflow.RunID(ctx).String(), Args: s.Argv, Dir: w.Dir, Stdin: b.stdin,
		Inherit: append(process.Basics(), b.job.Env...), Env: env, User: w.User, Limits: b.runner.Limits,
		Writable: b.runner.writable(w), Tmp: w.Tmp,
		Timeout: b.job.Timeout.D(), Grace: b.job.Grace.D(),
		Output: func(_ context.Context, c process.Chunk) error {
			result.Bytes += int64(len(c.Data))
			b.write(c.Stream, show[c.Stream].Pass(c.Data))
			return nil
		},
	})
	tree, err := process.Start(within, command)
	if err != nil {
		return process.Result{}, err
	}
	b.clerk.accept(tree)
	defer func() {
		for _, stream := range []process.Stream{process.Stdout, process.Stderr} {
			b.write(stream, show[stream].Rest())
		}
	}()
	if h, ok := b.observe.(sandboxObserver); ok {
		h.Held(tree.Describe())
	}
	outgrown := b.watch(ctx, w, tree)
	hold.begin(tree)
	remove := workflow.OnFreeze(ctx, func() { _ = hold.hold(ctx, fenced) }, func() { hold.release(ctx, fenced) })
	defer remove()
	saved := b.saver.begin(ctx, b, w, hold)
	metered := b.saver.metered(ctx, tree.Kill)
	end, err := tree.Wait()
	saved()
	metered()
	b.notes = slices.Concat(b.notes, refused())
	b.notes = b.notes[:min(len(b.notes), mostNotes)]
	result.Exceeded = strings.Join(slices.DeleteFunc([]string{end.Exceeded, outgrown()}, func(s string) bool {
		return s == ""
	}), "; ")
	return end, err
}

// watch kills the command when its workspace exceeds its quota. The returned function ends the
// watch and returns the text of the quota error; "" if the workspace did not exceed its quota.
func (b *bench) watch(ctx context.Context, w *workspace.Workspace, tree *process.Tree) func() string {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan error, 1)
	go func() {
		err := w.Watch(ctx)
		if err != nil {
			tree.Kill(err)
		}
		over <- err
	}()
	return func() string {
		stop()
		if err := <-over; err != nil {
			return err.Error()
		}
		return ""
	}
}

// environment returns the variables with the values that Belay sets for the command. It omits the
// variables that the command inherits from the worker.
func (b *bench) environment(ctx context.Context, w *workspace.Workspace, s Step) map[string]string {
	env := map[string]string{
		"HOME": w.Home, "TMPDIR": w.Tmp,
		"BELAY_EXECUTION": workflow.Execution(ctx).String(), "BELAY_STEP": s.Name,
		"BELAY_TOKEN":           strconv.FormatInt(int64(workflow.Token(ctx)), 10),
		"BELAY_IDEMPOTENCY_KEY": workflow.IdempotencyKey(ctx),
	}
	if t := workflow.Trace(ctx); t.Parent != "" {
		env["TRACEPARENT"] = t.Parent
		if t.State != "" {
			env["TRACESTATE"] = t.State
		}
	}
	return env
}

// hidden adds the secret variables to env. For each output stream of the command it returns a
// filter that removes the values of these variables from the output.
func (b *bench) hidden(env map[string]string) (map[string]string, map[process.Stream]*secret.Hider, error) {
	var values map[string]string
	if b.secrets != nil {
		var err error
		if values, err = b.secrets(); err != nil {
			return nil, nil, err
		}
	}
	maps.Copy(env, b.more)
	maps.Copy(env, values)
	hiders := map[process.Stream]*secret.Hider{process.Stdout: newHider(values), process.Stderr: newHider(values)}
	return env, hiders, nil
}

func (b *bench) write(stream process.Stream, p []byte) {
	if len(p) == 0 {
		return
	}
	if stream == process.Stdout {
		b.capture.write(p)
	}
	b.observe.Wrote(stream == process.Stderr, p)
	_, _ = b.log.Write(p) // Flush returns the error of an earlier Write
}

// salvage stores the changes in the workspace as artifacts of the execution. The names of the
// artifacts begin with "step-" and the number i of the step. If the worker gives the execution back
// to the queue, or if the agent has asked a question, they begin with an unused name instead.
func (b *bench) salvage(ctx context.Context, i int, w *workspace.Workspace) *Changes {
	if b.job.Repo == "" {
		return nil
	}
	released := b.saver != nil && (errors.Is(context.Cause(ctx), workflow.ErrReleased) || b.clerk.question() != nil)
	ctx = context.WithoutCancel(ctx)
	s, err := b.runner.Workspaces.SalvageResult(ctx, w)
	b.salvaged = true
	if err != nil {
		return &Changes{Lost: err.Error()}
	}
	if !released && !b.saver.keepsHome() && (b.saver != nil || i == len(b.job.Steps)-1) {
		s.Home = nil // no later step, run or job needs HOME
	}
	if s.Empty() {
		return nil
	}
	name := fmt.Sprintf("step-%d", i+1)
	if released {
		name = b.saver.freeName()
	}
	c, err := b.keep(ctx, name, s)
	if err != nil {
		c.Lost = err.Error()
	}
	return c
}

// artifact reads an artifact of this execution; for an empty name it returns nil.
func artifact(ctx context.Context, name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	return workflow.ReadArtifact(ctx, name)
}

// remove removes the workspace, even if ctx has ended. An error of the removal is only printed.
func (b *bench) remove(ctx context.Context) {
	b.saver.emptyHomes(ctx)
	if b.place == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := b.place.Remove(ctx); err != nil {
		// Manager.Sweep removes the workspace when the worker starts again
		fmt.Fprintln(os.Stderr, "belay: remove the workspace:", err)
	}
}
