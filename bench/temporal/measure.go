package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay/bench/trial"
)

// flow starts workflows and waits for the end of each, without activities or with ten.
func (b *bed) flow(ctx context.Context, r trial.Request) (trial.Sample, error) {
	steps := 0
	if r.Measure == trial.Steps {
		steps = trial.StepsEach
	}
	w := b.worker(b.client)
	if err := w.Start(); err != nil {
		return trial.Sample{}, err
	}
	defer w.Stop()
	done, err := trial.Loop(ctx, r, b.flight, &b.meter, func(ctx context.Context, i int) error {
		err := b.call(ctx, input{Payload: trial.Input(i), Steps: steps})
		if steps == 0 {
			b.meter.Add(1)
		}
		return err
	})
	if err != nil {
		return trial.Sample{}, err
	}
	s := done.Sample()
	if s.Values, err = b.memory(); err != nil {
		return s, err
	}
	s.Counts, err = b.counts(ctx, done.N, steps)
	return s, err
}

// memory returns the server's current memory.
func (b *bed) memory() (map[string]float64, error) {
	mb, err := trial.ProcessMemory(b.server.PID())
	return map[string]float64{"server_mb": mb}, err
}

// latency starts r.Rate workflows a second, and measures the time until each workflow begins.
func (b *bed) latency(ctx context.Context, r trial.Request) (trial.Sample, error) {
	warm := r.Rate // the workflows of the first second, which are not measured
	starts := trial.NewStarts(int(r.For.Seconds() * float64(r.Rate)))
	b.begin = func(i int) {
		if i >= warm {
			starts.Start(i)
		}
	}
	w := b.worker(b.client)
	if err := w.Start(); err != nil {
		return trial.Sample{}, err
	}
	defer w.Stop()
	n, err := trial.Pace(ctx, r.Rate, r.For+time.Second, func(ctx context.Context, i int) error {
		if i >= warm {
			starts.Submit(i)
		}
		_, err := b.start(ctx, "noop", input{Payload: trial.Input(i)})
		return err
	})
	if err != nil {
		return trial.Sample{}, err
	}
	var s trial.Sample
	if s.Times, err = starts.Times(30 * time.Second); err != nil {
		return s, err
	}
	s.Counts, err = b.counts(ctx, int64(n), 0)
	return s, err
}

// takeover kills a worker and measures the time until its activity runs on another worker. The
// activity's heartbeat timeout corresponds to the TTL of a session.
func (b *bed) takeover(ctx context.Context, r trial.Request) (trial.Sample, error) {
	r.Role, r.URL = "work", b.server.Address
	var took []time.Duration
	for range r.N {
		d, err := b.kill(ctx, r)
		if err != nil {
			return trial.Sample{}, err
		}
		took = append(took, d)
	}
	return trial.Sample{Times: trial.TimesOf(took)}, nil
}

func (b *bed) kill(ctx context.Context, r trial.Request) (time.Duration, error) {
	const patience = 30 * time.Second
	first, err := trial.Spawn(r)
	if err != nil {
		return 0, err
	}
	run, err := b.start(ctx, "endless", r.TTL)
	if err == nil {
		_, err = first.Await(ctx, "runs ", patience)
	}
	if err != nil {
		return 0, errors.Join(err, first.Kill())
	}
	second, err := trial.Spawn(r)
	if err == nil {
		_, err = second.Await(ctx, "works", patience)
	}
	killed := time.Now()
	err = errors.Join(err, first.Kill())
	var at string
	if err == nil {
		at, err = second.Await(ctx, "runs ", patience)
	}
	if second != nil {
		err = errors.Join(err, b.client.TerminateWorkflow(ctx, run.GetID(), run.GetRunID(), "it has run"),
			second.Kill())
	}
	if err != nil {
		return 0, err
	}
	var nano int64
	if _, err := fmt.Sscan(at, &nano); err != nil {
		return 0, err
	}
	return time.Unix(0, nano).Sub(killed), nil
}
