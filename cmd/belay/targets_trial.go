package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/screen"
)

// maxTrial is the longest time for which belay notify test waits.
const maxTrial = time.Hour

// retryReason is the code of the reason for which an execution waits after an attempt has failed.
const retryReason = "retry"

func (a *app) trialCommand() *cobra.Command {
	wait := 20 * time.Second
	c := &cobra.Command{
		Use: "test NAME", Short: "Send a test, and say whether the target has received it",
		Long: `Send a test to a target of notifications, also while the target is paused, and say whether
it has received the test. The exit code is 1 if it has not: because the delivery failed,
or because it had not ended after the time of --wait. Such a delivery goes on: Belay tries
it ten times within about 20 minutes.

  belay notify test ops
  belay notify test ops --wait 2m
  belay notify test ops --wait 0           only send; the output names the delivery`,
		Args: exactly("the name of a target"), ValidArgsFunction: a.completeTargets(),
		RunE: func(c *cobra.Command, args []string) error {
			if wait < 0 || wait > maxTrial {
				return usage("--wait is %s; it can be 0s to %s", wait, maxTrial)
			}
			ctx, t := named(c), trial{a: a, name: args[0], idle: a.noEngine() != ""}
			return a.writing(ctx, func(b belay.Backend) error {
				var err error
				t.delivery, err = b.TestNotificationTarget(ctx, belay.NotificationTargetTest{
					Name: t.name, Actor: actor(), Op: belay.OpID(embedded.NewID()),
				})
				if err != nil {
					return err
				}
				return t.follow(ctx, b, wait)
			})
		},
	}
	c.Flags().DurationVar(&wait, "wait", wait, "how long to wait for the end of the delivery; 0 means not at all")
	return c
}

// trial is a test of a target of notifications.
type trial struct {
	a        *app
	name     string
	delivery belay.ExecutionID
	// idle means that no process sends the test before another one runs an engine: this process ends first.
	idle bool
}

// follow waits for the end of the delivery, and prints what has happened. It returns exit code 1 if it has waited and
// the target has not received the test.
func (t *trial) follow(ctx context.Context, b belay.Backend, wait time.Duration) error {
	x, err := t.await(ctx, b, wait)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(t.a.err, "belay: the delivery goes on; see: belay get %s\n", t.delivery)
		return exitCode(130)
	case err != nil:
		return err
	}
	why := ""
	if x.State != belay.Succeeded && (wait > 0 || x.State.Terminal() || t.idle) {
		why = t.why(ctx, b, &x)
	}
	if err := t.print(&x, why); err != nil {
		return err
	}
	if x.State != belay.Succeeded && wait > 0 {
		return exitCode(1)
	}
	return nil
}

// await returns the delivery as soon as it has ended, or as it is after the time. It prints the error of each attempt
// that is followed by another one.
func (t *trial) await(ctx context.Context, b belay.Backend, wait time.Duration) (belay.Execution, error) {
	const look = 2 * time.Second
	if t.idle {
		wait = 0
	}
	var away outage
	said := ""
	for end := time.Now().Add(wait); ; {
		x, err := b.Await(ctx, t.delivery, min(look, max(0, time.Until(end))))
		over := !time.Now().Before(end)
		switch {
		case err != nil && !over && t.a.retryLater(ctx, &away, err):
			continue
		case err != nil:
			return x, err
		case x.State.Terminal() || over:
			return b.Execution(ctx, t.delivery) // Await leaves out parts
		case x.Reason != nil && x.Reason.Code == retryReason && x.Reason.Text != said:
			said = x.Reason.Text
			fmt.Fprintf(t.a.err, "belay: %s; Belay tries again\n", screen.Line(said))
		}
		away = outage{}
	}
}

// why says why the target has not received the test.
func (t *trial) why(ctx context.Context, b belay.Backend, x *belay.Execution) string {
	switch {
	case x.Error != nil:
		return x.Error.Message
	case x.State.Terminal():
		return "the delivery was cancelled"
	case t.idle:
		return "no server runs on this data directory, so the test waits until one does: belay serve"
	case x.Reason != nil && x.Reason.Code == retryReason:
		return x.Reason.Text
	}
	e, err := b.Explain(ctx, t.delivery)
	if err != nil {
		return "the delivery has not ended yet"
	}
	return e.Summary
}

// tested is the result of a test as JSON.
type tested struct {
	Target    string            `json:"target"`
	Execution belay.ExecutionID `json:"execution"`
	State     belay.State       `json:"state"`
	Received  bool              `json:"received"`
	Why       string            `json:"why,omitempty"` // it was not received
}

func (t *trial) print(x *belay.Execution, why string) error {
	received := x.State == belay.Succeeded
	if t.a.output == "json" {
		return screen.PrintJSON(t.a.out, tested{t.name, t.delivery, x.State, received, why})
	}
	if received {
		fmt.Fprintf(t.a.out, "%s has received the test\n", t.name)
	}
	fmt.Fprintf(t.a.out, "delivery   %s\nstate      %s\n", t.delivery, stateWord(x))
	if why == "" {
		return nil
	}
	fmt.Fprintf(t.a.err, "belay: %s has not received the test: %s\n", t.name, screen.Line(why))
	if !x.State.Terminal() && !t.idle {
		fmt.Fprintf(t.a.err, "belay: the delivery goes on; see: belay explain %s\n", t.delivery)
	}
	return nil
}
