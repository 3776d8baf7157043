package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/registry"
)

// swapFlags are the flags of belay swap.
type swapFlags struct {
	to          string
	wait, grace time.Duration
}

// defaultSwapWait is how long a swap waits for workflows if --wait is not given.
const defaultSwapWait = time.Minute

func (a *app) swapCommand() *cobra.Command {
	var f swapFlags
	c := &cobra.Command{
		Use:   "swap --to RECIPE [flags] -- COMMAND [ARG…]",
		Short: "Change the mode of a shared resource of this machine",
		Long: `Change the mode of a shared resource of this machine, for example load another model
into a GPU. A swap

  1. keeps workflows of other recipes from registering (belay registry exec, register),
  2. asks the preemptible workflows of other recipes to yield,
  3. waits, at most for --wait, until no workflow of another recipe is left,
  4. runs the command, which changes the mode, and ends.

  belay swap --to mistral --wait 10m -- ./load-model.sh mistral

While the command runs, workflows of the target recipe can register, so the command can
also start the first one. Processes that the command leaves behind, such as a model
server, go on after the swap.

belay swap exits with the exit code of the command. It exits with 75 if another swap is
in progress, or if workflows are left at the end of --wait; the message names them. With
--wait 0 the swap does not wait. The command has the variable BELAY_DATA, the absolute
path of the data directory.

If belay swap is interrupted (SIGINT, SIGTERM, SIGHUP), the command and all processes that
it has started get SIGTERM, and SIGKILL after --grace. If belay swap is killed, they are
killed too. In both cases no workflow registers and no other swap begins before all of
them have ended.`,
		PersistentPreRunE: func(c *cobra.Command, args []string) error { return a.local(c, args) },
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case c.ArgsLenAtDash() != 0 || len(args) < 1:
				return usage("give a command after --")
			case f.to == "":
				return usage("give the target recipe with --to")
			case f.wait < 0:
				return usage("--wait is %s; it must not be negative", f.wait)
			}
			return a.swap(c.Context(), &f, args)
		},
	}
	c.Flags().StringVar(&f.to, "to", "", "the target `recipe` (required)")
	c.Flags().DurationVar(&f.wait, "wait", defaultSwapWait,
		"how long to wait for another swap and for workflows of other recipes")
	c.Flags().DurationVar(&f.grace, "grace", 10*time.Second, "how long the command may take to end after SIGTERM")
	a.completeRegistry(c, "to", recipeOf)
	return c
}

// swapReport is what a swap did, for -o json.
type swapReport struct {
	Swap         string `json:"swap"`
	TargetRecipe string `json:"target_recipe"`
	// Outcome is done, failed (the command failed), or refused (the command did not run).
	Outcome   string   `json:"outcome"`
	Reason    string   `json:"reason,omitempty"`
	WaitedFor []string `json:"waited_for"`
	WaitedMS  int64    `json:"waited_ms"`
	CommandMS int64    `json:"command_ms"`
	ExitCode  *int     `json:"exit_code,omitempty"`
}

func (a *app) swap(ctx context.Context, f *swapFlags, argv []string) error {
	r, err := registry.Open(a.data)
	if err != nil {
		return err
	}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		hup, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
		ctx = hup
	}
	began := time.Now()
	report := swapReport{TargetRecipe: f.to, Outcome: "refused", WaitedFor: []string{}}
	say := func(format string, args ...any) {
		fmt.Fprintln(a.err, "belay: "+screen.Line(fmt.Sprintf(format, args...)))
	}
	var s *registry.Swap
	err = tryWithin(ctx, f.wait, func() error {
		s, err = r.Begin(ctx, f.to)
		return err
	})
	if err != nil {
		return a.swapped(&report, began, err)
	}
	report.Swap = s.Marker().ID
	within, cancel := context.WithDeadline(ctx, began.Add(f.wait))
	defer cancel()
	err = s.Await(within, func(left []registry.Workflow) {
		say("the swap to %s waits for %s", f.to, waitedFor(left, &report))
	})
	report.WaitedMS = time.Since(began).Milliseconds()
	if err != nil {
		return a.swapped(&report, began, errors.Join(err, s.End(context.WithoutCancel(ctx), err)))
	}
	say("the swap to %s is granted after %s", f.to, screen.Short(time.Since(began)))
	started := time.Now()
	code, err := a.runAttached(ctx, r, s, f.grace, argv)
	report.CommandMS, report.ExitCode, report.Outcome = time.Since(started).Milliseconds(), &code, "done"
	if err != nil {
		report.Outcome = "failed"
	}
	if ended := s.End(context.WithoutCancel(ctx), err); ended != nil {
		return a.swapped(&report, began, ended)
	}
	var exit *exec.ExitError
	if err == nil || code != 0 && errors.As(err, &exit) {
		if err != nil {
			report.Reason = err.Error()
		}
		return errors.Join(a.swapped(&report, began, nil), exitOf(code))
	}
	report.Reason = err.Error()
	say("%v", err)
	return errors.Join(a.swapped(&report, began, nil), exitOf(code))
}

func exitOf(code int) error {
	if code == 0 {
		return nil
	}
	return exitCode(code)
}

// waitedFor lists workflows for people, and adds their names to the report.
func waitedFor(left []registry.Workflow, report *swapReport) string {
	var parts []string
	for _, w := range left {
		if !slices.Contains(report.WaitedFor, w.Name) {
			report.WaitedFor = append(report.WaitedFor, w.Name)
		}
		text := fmt.Sprintf("%s (recipe %s, %s)", w.Name, w.Recipe, w.Owner)
		if w.Preemptible {
			text = fmt.Sprintf("%s (recipe %s, %s, asked to yield)", w.Name, w.Recipe, w.Owner)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// swapped prints the report of a swap, and returns err.
func (a *app) swapped(report *swapReport, began time.Time, err error) error {
	if err != nil {
		report.Reason = err.Error()
	}
	if a.output == "json" {
		return errors.Join(err, screen.PrintJSON(a.out, report))
	}
	if err == nil {
		fmt.Fprintf(a.err, "belay: the swap to %s is %s: waited %s, the command took %s, exit code %d\n",
			report.TargetRecipe, report.Outcome, screen.Short(time.Duration(report.WaitedMS)*time.Millisecond),
			screen.Short(time.Since(began)-time.Duration(report.WaitedMS)*time.Millisecond), *report.ExitCode)
	}
	return err
}

// runAttached runs the command of a swap with the standard streams of this process. With -o json,
// its standard output goes to standard error. Processes that the command leaves behind at its own end
// go on. If ctx ends, or this process is killed, the command and all its descendants are ended before
// the swap is over. The code is the exit code that a shell would return.
func (a *app) runAttached(ctx context.Context, r *registry.Registry, s *registry.Swap, grace time.Duration,
	argv []string) (code int, err error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return exitOfCommand(err), err
	}
	cmd := exec.CommandContext(ctx, path, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, a.plain().out, a.plain().err
	if a.output == "json" {
		cmd.Stdout = a.plain().err
	}
	cmd.Env = append(os.Environ(), "BELAY_DATA="+r.Dir())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err = runGuarded(cmd, s.Lock(), grace)
	if code = exitOfCommand(err); err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		code = 130
	}
	return code, err
}

// exitOfCommand returns the exit code that a shell would return for a command, from the error of its
// start or end.
func exitOfCommand(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}
		return exit.ExitCode()
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return 127
	}
	return 126
}
