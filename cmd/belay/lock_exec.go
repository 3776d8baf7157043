package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/screen"
)

// execFlags are the flags of belay lock exec.
type execFlags struct {
	owner      string
	ttl, grace time.Duration
	reopen     bool
}

func (a *app) lockExecCommand() *cobra.Command {
	var f execFlags
	c := &cobra.Command{
		Use:   "exec ID [flags] -- COMMAND [ARG…]",
		Short: "Lock an execution while a command runs",
		Long: `Lock an execution, run a command, and end the execution when the command ends. The
execution succeeds if the exit code of the command is 0, and fails otherwise. belay
lock exec renews the lock while the command runs. If the lock is lost, the command and
all processes that it has started are killed. If the server cannot be reached, these
processes are frozen before another owner could take the execution. Ctrl-C ends the
command and releases the execution for the next owner.

The command runs in this directory and environment, gets the execution's input on
standard input, and has these variables:

  BELAY_EXECUTION   the execution's id
  BELAY_TOKEN       the fencing token, which grows with every owner: send it with each
                    write to systems that can refuse an older token
  BELAY_LOCK_ID     the secret id of the lock, for checkpoints over HTTP
  BELAY_CHECKPOINT  the data of the last checkpoint, as JSON, if there is one

belay lock exec exits with the exit code of the command, or with 75 if another owner has
the execution or the lock was lost.`,
		ValidArgsFunction: a.completeIDs,
		RunE: func(c *cobra.Command, args []string) error {
			if c.ArgsLenAtDash() != 1 || len(args) < 2 {
				return usage("give the id of an execution, and a command after --")
			}
			ctx := named(c)
			id, err := a.executionID(ctx, args[0])
			if err != nil {
				return err
			}
			if f.owner == "" {
				f.owner = actor() + "@" + hostname()
			}
			return a.writing(ctx, func(b belay.Backend) error { return a.lockExec(ctx, b, id, &f, args[1:]) })
		},
	}
	c.Flags().StringVar(&f.owner, "owner", "",
		"a name of the owner that people can read; by default your user name and the name of this host")
	c.Flags().DurationVar(&f.ttl, "ttl", 0, "how long the lock stays valid without a heartbeat; 0 means 30s")
	c.Flags().DurationVar(&f.grace, "grace", 10*time.Second, "how long the command may take to end after SIGTERM")
	c.Flags().BoolVar(&f.reopen, "reopen", false, "reopen a failed or cancelled execution, as belay retry does")
	return c
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// lockExec locks the execution, runs the command and settles the execution.
func (a *app) lockExec(ctx context.Context, b belay.Backend, id belay.ExecutionID, f *execFlags, argv []string) error {
	k := &keeper{b: b, say: func(format string, args ...any) {
		fmt.Fprintln(a.err, "belay: "+screen.Line(fmt.Sprintf(format, args...)))
	}}
	if err := k.lock(ctx, belay.LockRequest{Execution: id, Owner: f.owner, TTL: belay.Duration(f.ttl),
		Reopen: f.reopen}); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return errors.Join(err, k.settle(belay.Settlement{Outcome: belay.OutcomeReleased}))
	}
	within, end := context.WithCancelCause(ctx)
	defer end(nil)
	tree, err := process.Start(within, process.Command{
		ID: k.held.Lease.Run().String(), Args: argv, Dir: dir, Grace: f.grace, Env: k.environment(os.Environ()),
		Stdin: k.held.Execution.Input,
		Output: func(_ context.Context, c process.Chunk) error {
			w := a.plain().out // escape sequences are passed on, since the command is the user's own
			if c.Stream == process.Stderr {
				w = a.plain().err
			}
			_, err := w.Write(c.Data)
			return err
		},
	})
	if err != nil {
		return errors.Join(k.notStarted(err), k.settle(belay.Settlement{Outcome: belay.OutcomeReleased}))
	}
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		k.keep(tree, end)
	}()
	r, err := tree.Wait()
	<-kept
	return k.ended(ctx, r, err)
}

// notStarted returns the exit code that a shell would use if a command cannot be started.
func (k *keeper) notStarted(err error) error {
	var s *process.StartError
	if errors.As(err, &s) {
		k.say("%v", err)
		return exitCode(s.Code)
	}
	return err
}

// maxVariable is a little less than the length at which Linux refuses an environment variable.
const maxVariable = 127 << 10

// environment returns the command's environment: the environment of this process, and the variables
// that describe the lock.
func (k *keeper) environment(ours []string) map[string]string {
	env := make(map[string]string)
	for _, entry := range ours {
		name, value, ok := strings.Cut(entry, "=")
		if ok && name != "" && name != process.Marker {
			env[name] = value
		}
	}
	l := k.held.Lease
	env["BELAY_EXECUTION"] = l.Execution.String()
	env["BELAY_TOKEN"] = fmt.Sprint(uint64(l.Token))
	env["BELAY_LOCK_ID"] = "ls_" + belay.OpID(l.Worker).String() + belay.OpID(l.Secret).String()
	delete(env, "BELAY_CHECKPOINT")
	if n := len(k.held.Checkpoints); n > 0 {
		data := string(k.held.Checkpoints[n-1].Data)
		if len(data) > maxVariable {
			k.say("the last checkpoint has %d bytes, too many for a variable; it can be read over HTTP", len(data))
		} else {
			env["BELAY_CHECKPOINT"] = data
		}
	}
	return env
}

// ended settles the execution by the command's result, and returns belay's exit code as an error.
func (k *keeper) ended(ctx context.Context, r process.Result, err error) error {
	output, merr := json.Marshal(map[string]int{"exit_code": r.Code})
	s := belay.Settlement{Outcome: belay.OutcomeSucceeded, Output: output}
	switch {
	case k.lost != nil:
		return k.lost
	case k.cancelled:
		s.Outcome = belay.OutcomeCancelled
	case ctx.Err() != nil || k.released:
		s = belay.Settlement{Outcome: belay.OutcomeReleased}
	case err != nil || r.Code != 0:
		s.Outcome = belay.OutcomeFailed
		s.Failure = &belay.Failure{
			Class: belay.ClassPermanent, Message: fmt.Sprintf("the command ended with exit code %d", r.Code),
		}
	}
	if serr := k.settle(s); serr != nil {
		return serr
	}
	switch {
	case s.Outcome == belay.OutcomeCancelled || s.Outcome == belay.OutcomeReleased:
		return exitCode(130)
	case merr != nil || err != nil:
		return errors.Join(merr, err)
	case r.Code != 0:
		return exitCode(r.Code)
	}
	return nil
}

// settleTimeout is how long settle repeats its call while the store is unavailable.
const settleTimeout = 30 * time.Second

// settle ends the run. While the store is unavailable it repeats the call, up to settleTimeout.
func (k *keeper) settle(s belay.Settlement) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	s.Lease, s.Op = k.held.Lease, belay.OpID(embedded.NewID())
	for {
		err := k.b.Settle(ctx, s)
		if err == nil || belay.CodeOf(err) != belay.CodeUnavailable || ctx.Err() != nil {
			return err
		}
		s.Repeat = true
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}
