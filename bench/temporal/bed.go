package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	tlog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belaydev/belay/bench/trial"
)

const queue = "queue"

// bed is a Temporal server with a client.
type bed struct {
	settings
	store  string
	server *server
	client client.Client

	begin func(i int)
	meter trial.Meter
}

func open(ctx context.Context, r trial.Request) (*bed, error) {
	b := &bed{settings: settingsOf(r.Variant), store: r.URL, begin: func(int) {}}
	var err error
	if b.server, err = serve(ctx, r, b.settings); err != nil {
		return nil, err
	}
	if err = b.ready(ctx); err != nil {
		b.close()
		return nil, fmt.Errorf("temporal-server: %w\n%s", err, b.server.log.String())
	}
	return b, nil
}

func (b *bed) close() {
	if b.client != nil {
		b.client.Close()
	}
	b.server.stop(context.Background())
}

func options(address string) client.Options {
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1}))
	return client.Options{HostPort: address, Namespace: "bench", Logger: tlog.NewStructuredLogger(quiet)}
}

// ready waits until the server answers, makes the namespace, and waits until all services see the
// namespace, which takes some seconds.
func (b *bed) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	n, err := client.NewNamespaceClient(options(b.server.Address))
	if err != nil {
		return err
	}
	defer n.Close()
	err = b.until(ctx, func() error {
		err := n.Register(ctx, &workflowservice.RegisterNamespaceRequest{
			Namespace: "bench", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
		})
		var there *serviceerror.NamespaceAlreadyExists
		if errors.As(err, &there) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if b.client, err = client.NewLazyClient(options(b.server.Address)); err != nil {
		return err
	}
	w := b.worker(b.client)
	if err := b.until(ctx, w.Start); err != nil {
		return err
	}
	defer w.Stop()
	return b.until(ctx, func() error { return b.call(ctx, input{}) })
}

// until repeats f until it succeeds.
func (b *bed) until(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-b.server.Ended():
			return fmt.Errorf("the server ended: %w", err)
		case <-ctx.Done():
			return err
		}
	}
}

// input is the input of a workflow.
type input struct {
	trial.Payload
	Steps int `json:"steps"`
}

// worker returns a worker that is not started.
func (b *bed) worker(c client.Client) worker.Worker {
	w := worker.New(c, queue, worker.Options{
		MaxConcurrentWorkflowTaskPollers: b.pollers, MaxConcurrentActivityTaskPollers: b.pollers,
	})
	w.RegisterWorkflowWithOptions(b.noop, workflow.RegisterOptions{Name: "noop"})
	w.RegisterWorkflowWithOptions(b.endless, workflow.RegisterOptions{Name: "endless"})
	w.RegisterActivityWithOptions(step, activity.RegisterOptions{Name: "step"})
	w.RegisterActivityWithOptions(linger, activity.RegisterOptions{Name: "linger"})
	return w
}

func step(_ context.Context, p trial.Payload) (trial.Payload, error) { return p, nil }

// noop is a workflow with as many activities as its input says.
func (b *bed) noop(ctx workflow.Context, in input) (string, error) {
	if !workflow.IsReplaying(ctx) {
		b.begin(in.I)
	}
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	for range in.Steps {
		if err := workflow.ExecuteActivity(ctx, "step", in.Payload).Get(ctx, nil); err != nil {
			return "", err
		}
		if !workflow.IsReplaying(ctx) {
			b.meter.Add(1)
		}
	}
	return "", nil
}

// endless is a workflow of one activity that prints when it runs and never ends.
func (b *bed) endless(ctx workflow.Context, heartbeat time.Duration) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: heartbeat,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: max(b.retry, time.Millisecond), BackoffCoefficient: 1},
	})
	return workflow.ExecuteActivity(ctx, "linger", heartbeat).Get(ctx, nil)
}

func linger(ctx context.Context, heartbeat time.Duration) error {
	fmt.Printf("runs %d\n", time.Now().UnixNano())
	beat := time.NewTicker(heartbeat / 3)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			activity.RecordHeartbeat(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// start starts a workflow.
func (b *bed) start(ctx context.Context, name string, in any) (client.WorkflowRun, error) {
	return b.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: queue, EnableEagerStart: b.eager}, name,
		in)
}

// call starts a noop and waits for its end.
func (b *bed) call(ctx context.Context, in input) error {
	run, err := b.start(ctx, "noop", in)
	if err == nil {
		err = run.Get(ctx, nil)
	}
	return err
}

// counts waits until the store shows n workflows as completed, which happens with a delay. It also
// counts the events of their history: 5 events of a workflow without activities and at least 4 more
// for each activity.
func (b *bed) counts(ctx context.Context, n int64, steps int) ([]trial.Count, error) {
	u, err := url.Parse(b.store)
	if err != nil {
		return nil, err
	}
	u.Path += "_visibility"
	c, err := pgx.Connect(ctx, u.String())
	if err != nil {
		return nil, err
	}
	defer c.Close(context.WithoutCancel(ctx))                      //nolint:errcheck // the connection only read
	flows := trial.Count{What: "workflows completed", Want: n + 1} // the method ready has run one further workflow
	events := trial.Count{What: "events of their history", Want: n*int64(5+4*steps) + 5, More: true}
	late := time.After(30 * time.Second)
	for {
		err := c.QueryRow(ctx, "SELECT count(*), coalesce(sum(history_length), 0) FROM executions_visibility "+
			"WHERE status = 2 AND workflow_type_name = 'noop'").Scan(&flows.Got, &events.Got)
		if err != nil || flows.Got >= flows.Want {
			return []trial.Count{flows, events}, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-late:
			return []trial.Count{flows, events}, nil
		}
	}
}

// work is a worker in its own process. It ends when its standard input ends.
func work(ctx context.Context, r trial.Request) error {
	b := &bed{settings: settingsOf(r.Variant), begin: func(int) {}}
	c, err := client.DialContext(ctx, options(r.URL))
	if err != nil {
		return err
	}
	defer c.Close()
	w := b.worker(c)
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	fmt.Println("works")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}
