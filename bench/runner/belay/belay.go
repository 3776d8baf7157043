// Package belay measures Belay, in the caller's own process and through a server. Belay always has
// its default settings, except for the store's address and the number of executions that a worker
// runs at a time.
package belay

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// Run carries out a trial. If r.Role is set, this process was started by a trial, and Run carries
// out only the task of this role, such as running a worker.
func Run(ctx context.Context, r trial.Request) (trial.Sample, error) {
	if role := roles[r.Role]; role != nil {
		return trial.Sample{}, role(ctx, r)
	}
	measure := measures[r.Measure]
	if measure == nil {
		return trial.Sample{}, trial.ErrNone
	}
	s, err := measure(ctx, r)
	s.Settings = strings.TrimSuffix("Belay's defaults; "+s.Settings, "; ")
	return s, err
}

var measures = map[trial.Measure]trial.Func{
	trial.Drain: drain, trial.Flow: flow, trial.Steps: flow, trial.Submit: submit, trial.Bulk: bulk,
	trial.Latency: latency,
	trial.Loaded:  loaded, trial.Takeover: takeover, trial.Hold: hold, trial.Idle: idle, trial.Lease: lease,
	trial.Overload: overload, trial.Jobs: many, trial.Gates: gates, trial.Parked: parked,
	trial.Documents: documents, trial.Pages: pages,
}

var roles = map[string]func(context.Context, trial.Request) error{"work": work, "crew": workApart}

// bed is a Belay on an empty store, with one connection for submissions and one for workers.
type bed struct {
	url    string // the address of the store
	calls  belay.Backend
	works  belay.Backend
	server *server // nil if the engine is in this process
	post   *posted // nil if workers claim
}

// open opens the store of a trial: in this process, or behind a server with one connection for
// submissions and one for workers.
func open(ctx context.Context, r trial.Request) (*bed, error) {
	if r.Variant == trial.Rabbit {
		return openPosted(ctx, r)
	}
	if r.Variant != trial.HTTP {
		b, err := openLocal(ctx, r.URL)
		if err != nil {
			return nil, err
		}
		return &bed{url: r.URL, calls: b, works: b}, nil
	}
	s, err := start(ctx, r)
	if err != nil {
		return nil, err
	}
	b := &bed{url: r.URL, server: s}
	if b.calls, err = dial(ctx, s.url); err == nil {
		b.works, err = dial(ctx, s.url)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return b, nil
}

// dial connects to a store or to a server.
func dial(ctx context.Context, url string) (belay.Backend, error) {
	if strings.HasPrefix(url, "http:") {
		return client.Dial(ctx, url, client.Logger(quiet()))
	}
	return openLocal(ctx, url)
}

func (b *bed) close() error {
	err := b.calls.Close()
	if b.server != nil {
		err = errors.Join(err, b.works.Close(), b.server.stop())
	}
	if b.post != nil {
		err = errors.Join(err, b.post.close())
	}
	return err
}

// settle closes Belay and checks the store: all n executions have succeeded, each with one run and
// the given number of checkpoints.
func (b *bed) settle(ctx context.Context, s trial.Sample, n int64, steps int) (trial.Sample, error) {
	if err := b.close(); err != nil {
		return s, err
	}
	var err error
	if b.post != nil {
		s.Settings = b.post.settings()
	}
	s.Counts, err = counts(ctx, b.url, tally{succeeded: n, runs: n, checkpoints: n * int64(steps)})
	return s, err
}

// tally is the expected content of a store.
type tally struct {
	succeeded, pending, runs, checkpoints int64
	moreRuns                              bool // there may be more runs: a worker that stops releases executions
}

func counts(ctx context.Context, url string, want tally) ([]trial.Count, error) {
	b, err := openLocal(ctx, url)
	if err != nil {
		return nil, err
	}
	c, err := b.Counts(ctx)
	if cerr := b.Close(); err == nil {
		err = cerr
	}
	return []trial.Count{
		{What: "executions succeeded", Want: want.succeeded, Got: c.Executions[belay.Succeeded]},
		{What: "executions pending", Want: want.pending, Got: c.Executions[belay.Pending]},
		{What: "runs", Want: want.runs, Got: c.Runs, More: want.moreRuns},
		{What: "checkpoints", Want: want.checkpoints, Got: c.Checkpoints},
	}, err
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// crew is a worker that runs in this process and can be stopped.
type crew struct {
	stop  context.CancelFunc
	ended chan error
}

// startWorker starts a worker for the workflow noop, which calls begin, and the workflow steps, which
// calls step after each saved step.
func startWorker(ctx context.Context, b belay.Backend, begin func(i int), step func()) *crew {
	return startPosted(ctx, "", b, begin, step)
}

// startPosted is startWorker for a worker that gets messages of the RabbitMQ with this URL, unless it is empty.
func startPosted(ctx context.Context, url string, b belay.Backend, begin func(i int), step func()) *crew {
	w := worker.New(b, worker.Options{Concurrency: trial.InFlight, Log: quiet(), Broker: url})
	worker.Register(w, "noop", func(_ context.Context, in trial.Payload) (string, error) {
		begin(in.I)
		return "", nil
	})
	worker.Register(w, "steps", func(ctx context.Context, in trial.Payload) (string, error) {
		for i := range trial.StepsEach {
			_, err := workflow.Step(ctx, "step", func(context.Context) (trial.Payload, error) {
				return in, nil
			}, workflow.Key(i))
			if err != nil {
				return "", err
			}
			step()
		}
		return "", nil
	})
	return run(ctx, w)
}

func run(ctx context.Context, w *worker.Worker) *crew {
	c := &crew{ended: make(chan error, 1)}
	ctx, c.stop = context.WithCancel(ctx)
	go func() { c.ended <- w.Run(ctx) }()
	return c
}

// stopWorking stops the worker. When it returns, the store has acknowledged the end of every
// execution that the worker ran.
func (c *crew) stopWorking() error {
	c.stop()
	return <-c.ended
}

// fill submits n executions of the workflow noop, a thousand in a call.
func fill(ctx context.Context, r trial.Request, b belay.Backend, callers, first, n int) (trial.Done, error) {
	return fillWith(ctx, r, b, callers, n, func(i int) belay.Submission {
		return belay.Submission{Workflow: "noop", Input: input(first + i)}
	})
}

// fillWith submits n executions, a thousand in a call. The function each returns the i-th submission.
func fillWith(
	ctx context.Context, r trial.Request, b belay.Backend, callers, n int, each func(i int) belay.Submission,
) (trial.Done, error) {
	return trial.Bursts(ctx, r, callers, n, func(ctx context.Context, from, rows int) error {
		s := make([]belay.Submission, rows)
		for i := range s {
			s[i] = each(from + i)
		}
		out, err := b.Submit(ctx, s...)
		for _, o := range out {
			err = errors.Join(err, o.Err)
		}
		return err
	})
}

// patience is how long a trial waits for something that should happen at once.
const patience = 30 * time.Second
