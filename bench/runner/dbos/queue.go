package dbos

import (
	"context"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"

	"github.com/belaydev/belay/bench/trial"
)

// register makes the queue and starts DBOS. DBOS finds the queue within a second.
func (b *bed) register(ctx context.Context) error {
	var opts []dbos.QueueOption
	if b.poll > 0 {
		opts = append(opts, dbos.WithQueueBasePollingInterval(b.poll))
	}
	q, err := dbos.RegisterQueue(b.dbos, "queue", opts...)
	if err != nil {
		return err
	}
	b.queue = q
	if err := dbos.Launch(b.dbos); err != nil {
		return err
	}
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

func (b *bed) enqueue(i int) error {
	_, err := dbos.RunWorkflow(b.dbos, b.workflow, input{Payload: trial.Input(i)}, dbos.WithQueue(b.queue))
	return err
}

// submit enqueues workflows while no process runs them.
func (b *bed) submit(ctx context.Context, r trial.Request) (trial.Sample, error) {
	dbos.ListenQueues(b.dbos, "another")
	if err := b.register(ctx); err != nil {
		return trial.Sample{}, err
	}
	done, err := trial.Loop(ctx, r, trial.Submitters, &b.meter, func(_ context.Context, i int) error {
		err := b.enqueue(i)
		b.waiting.Add(1)
		b.meter.Add(1)
		return err
	})
	return done.Sample(), err
}

// latency enqueues r.Rate workflows a second, while this process runs them, and measures the time
// until each workflow starts.
func (b *bed) latency(ctx context.Context, r trial.Request) (trial.Sample, error) {
	warm := r.Rate // the workflows of the first second, which are not measured
	starts := trial.NewStarts(int(r.For.Seconds() * float64(r.Rate)))
	b.begin = func(i int) {
		if i >= warm {
			starts.Start(i)
		}
	}
	if err := b.register(ctx); err != nil {
		return trial.Sample{}, err
	}
	n, err := trial.Pace(ctx, r.Rate, r.For+time.Second, func(_ context.Context, i int) error {
		if i >= warm {
			starts.Submit(i)
		}
		return b.enqueue(i)
	})
	if err != nil {
		return trial.Sample{}, err
	}
	var s trial.Sample
	if s.Times, err = starts.Times(10 * time.Second); err != nil {
		return s, err
	}
	b.flows.Store(int64(n))
	return s, nil
}
