package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/host"
	runs "github.com/belaydev/belay/internal/run"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/registry"
	"github.com/belaydev/belay/worker"
)

// execTTL is the default TTL of belay registry exec, which renews its entry itself.
const execTTL = time.Minute

func (a *app) registryExecCommand() *cobra.Command {
	var f registerFlags
	var grace time.Duration
	c := &cobra.Command{
		Use:   "exec --name NAME --recipe RECIPE [flags] -- COMMAND [ARG…]",
		Short: "Register a workflow while a command runs",
		Long: `Register a workflow, run a command, renew the entry while the command runs, and release
the entry when the command has ended. If belay registry exec ends, even by kill -9, the
command and all processes that it has started are killed, and the entry stays until they
have ended. If the entry is lost, the command is killed too.

  belay registry exec --name nightly --recipe llama --preemptible -- ./agent.sh

The command runs in this directory, with this standard input and environment, and has
these variables:

  BELAY_REGISTRY_NAME    the name of the workflow, for belay registry preempted and yield
  BELAY_PREEMPT_SIGNAL   the signal file, if the workflow is preemptible: while this file
                         exists, a swap asks the workflow to yield
  BELAY_DATA             the absolute path of the data directory

A command that yields (belay registry yield) must not use the resource any more; it is
ended if it still runs after --grace.

belay registry exec exits with the exit code of the command, and with 75 if a swap to
another recipe is in progress, another process has the name, or the entry was lost.`,
		RunE: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 0 || len(args) < 1 {
				return usage("give a command after --")
			}
			if err := f.check(); err != nil {
				return err
			}
			return a.registryExec(c.Context(), &f, grace, args)
		},
	}
	f.add(a, c, execTTL)
	c.Flags().DurationVar(&grace, "grace", 10*time.Second,
		"how long the command may take to end after SIGTERM, and after it has yielded")
	return c
}

// registerWithin registers a workflow. While a swap to another recipe is in progress, it tries
// again until the time of --wait is over.
func registerWithin(ctx context.Context, r *registry.Registry, f *registerFlags) (w registry.Workflow, err error) {
	err = tryWithin(ctx, f.wait, func() error {
		w, err = r.Register(ctx, f.Registration)
		return err
	})
	return w, err
}

// tryWithin calls f until f returns another error than EAGAIN, at most for the duration wait.
func tryWithin(ctx context.Context, wait time.Duration, f func() error) error {
	const pause = 100 * time.Millisecond
	for end := time.Now().Add(wait); ; {
		err := f()
		left := time.Until(end)
		if !errors.Is(err, syscall.EAGAIN) || left <= 0 {
			return err
		}
		timer := time.NewTimer(min(pause, left))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// registrar keeps the entry of a command.
type registrar struct {
	r     *registry.Registry
	entry registry.Workflow
	sent  time.Duration // the time, by host.Boottime, before the last renewal
	// started is when this process has started.
	started uint64
	grace   time.Duration
	say     func(format string, args ...any)

	yielded bool
	lost    error
}

func (a *app) registryExec(ctx context.Context, f *registerFlags, grace time.Duration, argv []string) error {
	r, err := registry.Open(a.data)
	if err != nil {
		return err
	}
	k := &registrar{r: r, grace: grace, say: func(format string, args ...any) {
		fmt.Fprintln(a.err, "belay: "+screen.Line(fmt.Sprintf(format, args...)))
	}}
	k.sent = host.Boottime()
	if k.entry, err = registerWithin(ctx, r, f); err != nil {
		return err
	}
	k.started = k.entry.Owner.StartNS
	within, end := context.WithCancelCause(ctx)
	defer end(nil)
	tree, err := a.start(within, k, argv)
	if err != nil {
		return errors.Join(k.notStarted(err), k.release())
	}
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		k.keep(tree, end)
	}()
	result, err := tree.Wait()
	<-kept
	return k.outcome(ctx, result, err)
}

// outcome releases the entry after the end of the command, and returns the error of belay registry
// exec. If processes of the command have survived, the entry stays.
func (k *registrar) outcome(ctx context.Context, result process.Result, err error) error {
	if errors.Is(err, process.ErrSurvived) {
		return &belay.Error{Code: belay.CodeUnavailable, Message: k.leaveTo(process.Members(k.run(), nil)), Err: err}
	}
	released := k.release()
	switch {
	case k.lost != nil:
		return k.lost
	case ctx.Err() != nil && result.Code < 0:
		return errors.Join(exitCode(130), released)
	case err != nil && result.Code < 0:
		return errors.Join(err, released)
	case released != nil:
		return released
	case result.Code != 0:
		return exitCode(result.Code)
	}
	return nil
}

// run is the id of the command's run.
func (k *registrar) run() string { return fmt.Sprintf("registry-%d-%d", os.Getpid(), k.started) }

// leaveTo makes a process that could not be killed the owner of the entry, and says what follows.
func (k *registrar) leaveTo(survivors []int, _ error) string {
	for _, pid := range survivors {
		owner, err := registry.Identify(pid)
		if err == nil {
			_, err = k.r.Transfer(context.Background(), k.entry, owner)
		}
		if err == nil {
			return fmt.Sprintf("process %d of the command could not be killed, so the entry is not released: that "+
				"process is its owner now, and it stays until that process has ended, at most for its TTL of %s", pid,
				screen.Short(k.entry.TTL))
		}
	}
	return "processes of the command could not be killed, so the entry is not released"
}

// start starts the command, without the walls of a sandbox: it is the user's own.
func (a *app) start(ctx context.Context, k *registrar, argv []string) (*process.Tree, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	input, _ := a.raw.in.(*os.File)
	return process.Start(ctx, process.Command{
		ID: k.run(), Args: argv, Dir: dir, Grace: k.grace,
		Env: k.environment(os.Environ()), Input: input, Isolation: process.Subreaper,
		Output: func(_ context.Context, c process.Chunk) error {
			w := a.plain().out // the output is not screened, since the command is the user's own
			if c.Stream == process.Stderr {
				w = a.plain().err
			}
			_, err := w.Write(c.Data)
			return err
		},
	})
}

func (k *registrar) environment(ours []string) map[string]string {
	env := make(map[string]string)
	for _, entry := range ours {
		name, value, ok := strings.Cut(entry, "=")
		if ok && name != "" && name != process.Marker {
			env[name] = value
		}
	}
	delete(env, "BELAY_PREEMPT_SIGNAL")
	env["BELAY_REGISTRY_NAME"], env["BELAY_DATA"] = k.entry.Name, k.r.Dir()
	if k.entry.Preemptible {
		env["BELAY_PREEMPT_SIGNAL"] = k.entry.PreemptSignalPath
	}
	return env
}

func (k *registrar) notStarted(err error) error {
	var s *process.StartError
	if errors.As(err, &s) {
		k.say("%v", err)
		return exitCode(s.Code)
	}
	return err
}

// handOver makes the supervisor of the command the owner of the entry. If this process is killed,
// the supervisor kills the command's processes and ends after them; so no swap begins before they
// have ended.
func (k *registrar) handOver(supervisor int) error {
	owner, err := registry.Identify(supervisor)
	if err == nil {
		sent := host.Boottime()
		var entry registry.Workflow
		if entry, err = k.r.Transfer(context.Background(), k.entry, owner); err == nil {
			k.entry, k.sent = entry, sent
		}
	}
	if errors.Is(err, os.ErrProcessDone) || belay.CodeOf(err) == belay.CodeNotFound {
		return nil // the command has ended already
	}
	return err
}

// keep renews the entry until the command has ended. When two thirds of the TTL have passed since
// the last renewal, a timer (the fence) freezes the command; keep kills the command when the entry
// is lost.
func (k *registrar) keep(tree *process.Tree, end context.CancelCauseFunc) {
	gaveUp := make(chan error, 1)
	giveUp := func(why error) {
		select {
		case gaveUp <- why:
		default:
		}
	}
	fence := runs.NewFence(host.Boottime, newAlarm, k.sent, k.entry.TTL, worker.DefaultMaxFreeze, func() {
		giveUp(errors.New("frozen for too long"))
	})
	defer fence.Close()
	k.freezing(fence, tree, giveUp)
	if err := k.handOver(tree.Supervisor()); err != nil {
		k.refused(tree, fence, end, err)
	}
	fence.Renew(k.sent, k.entry.TTL)
	due := make(chan struct{}, 1)
	beat := host.NewAlarm(host.Boottime, func() { due <- struct{}{} })
	defer beat.Stop()
	beat.Reset(k.entry.TTL / 3)
	for {
		select {
		case <-tree.Done():
			return
		case <-due:
			if !k.yielded && k.renew(tree, fence, end) {
				beat.Reset(k.entry.TTL / 3)
			}
		case why := <-gaveUp:
			k.kill(tree, &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired,
				Message: "the entry could not be renewed", Err: why})
		}
	}
}

// freezing connects the fence with the command.
func (k *registrar) freezing(fence *runs.Fence, tree *process.Tree, giveUp func(error)) {
	failed := func(err error) {
		if err != nil && !errors.Is(err, os.ErrProcessDone) { // tree.Done reports the end of the command
			giveUp(err)
		}
	}
	fence.OnFreeze(func() {
		k.say("the entry could not be renewed for long, so the command is frozen")
		failed(tree.Freeze(context.Background()))
	}, func() {
		k.say("the entry is renewed: the command goes on")
		failed(tree.Thaw(context.Background()))
	})
}

// renew renews the entry once. It returns false if the entry is gone.
func (k *registrar) renew(tree *process.Tree, fence *runs.Fence, end context.CancelCauseFunc) bool {
	ctx, cancel := context.WithTimeout(context.Background(), k.entry.TTL/3)
	defer cancel()
	sent := host.Boottime()
	_, err := k.r.Renew(ctx, k.entry)
	switch {
	case err == nil:
		k.sent = sent
		fence.Renew(sent, k.entry.TTL)
		return true
	case belay.CodeOf(err) != belay.CodeLeaseLost:
		k.say("%v", err)
		return true
	}
	k.refused(tree, fence, end, err)
	return false
}

// refused ends the command after the registry has refused its entry.
//
// If the entry is gone although its TTL is not over and its owner lives, and the state file is still
// the one in which the entry was, the command itself has released the entry. It then has the grace
// period to end. In all other cases the entry is lost, and the command is killed.
func (k *registrar) refused(tree *process.Tree, fence *runs.Fence, end context.CancelCauseFunc, why error) {
	gone := errors.Is(why, &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired})
	if !gone || errors.Is(why, registry.ErrStateLost) || host.Boottime()-k.sent >= k.entry.TTL {
		k.kill(tree, why)
		return
	}
	k.yielded = true
	fence.Close()
	k.say("the command has left the resource; it has %s to end", screen.Short(k.grace))
	time.AfterFunc(k.grace, func() { end(errors.New("the command has yielded")) })
}

// kill kills the command because the entry was lost; why is the reason.
func (k *registrar) kill(tree *process.Tree, why error) {
	k.lost = cmp.Or(k.lost, why)
	tree.Kill(k.lost)
}

// release removes the entry. It is no error if the entry is gone.
func (k *registrar) release() error {
	err := k.r.Release(context.Background(), k.entry)
	if belay.CodeOf(err) == belay.CodeLeaseLost {
		return nil
	}
	return err
}
