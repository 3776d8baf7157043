// Package dbos measures DBOS Transact for Go, on PostgreSQL and on SQLite.
//
// DBOS has no benchmark of its own and few settings (dbos.Config and dbos.Queue): the pool's size,
// and how often a queue is polled. Its fastest way to run workflows is to call them directly,
// without a queue. How many workflows are called at a time was chosen by trying several numbers.
package dbos

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // makes sqlite: URLs work

	"github.com/belaydev/belay/bench/trial"
)

// settings are the settings that affect the results.
type settings struct {
	conns  int           // pool_max_conns; 0 is DBOS's default of 20
	flight int           // how many workflows are called at a time
	poll   time.Duration // poll interval of the queue; 0 is DBOS's default of a second
}

func of(r trial.Request) (settings, string) {
	lite := strings.HasPrefix(r.URL, "sqlite:")
	switch {
	case r.Variant == trial.Tuned && lite:
		return settings{
			flight: 64, poll: 10 * time.Millisecond,
		}, "64 in flight, queue polled every 10ms; synchronous=NORMAL, as DBOS opens it"
	case r.Variant == trial.Tuned:
		return settings{
			conns: 20, flight: 64, poll: 10 * time.Millisecond,
		}, "64 in flight, pool of 20 connections, queue polled every 10ms"
	case lite:
		return settings{flight: trial.InFlight},
			"DBOS's defaults: synchronous=NORMAL, queue polled every second; 1,000 in flight"
	}
	return settings{flight: trial.InFlight},
		"DBOS's defaults: pool of 20 connections, queue polled every second; 1,000 in flight"
}

// Run carries out a trial.
func Run(ctx context.Context, r trial.Request) (trial.Sample, error) {
	var measure func(*bed, context.Context, trial.Request) (trial.Sample, error)
	switch r.Measure {
	case trial.Flow, trial.Steps:
		measure = (*bed).flow
	case trial.Submit:
		measure = (*bed).submit
	case trial.Latency:
		measure = (*bed).latency
	default:
		return trial.Sample{}, trial.ErrNone
	}
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	s, err := measure(b, ctx, r)
	s.Settings = b.text
	// Shutdown writes the ends of workflows that have returned
	if serr := dbos.Shutdown(b.dbos, 10*time.Second); err == nil {
		err = serr
	}
	if err == nil {
		s.Counts, err = b.counts(ctx, r.URL)
	}
	return s, err
}

// bed is a running DBOS.
type bed struct {
	settings
	text  string
	dbos  dbos.Context
	queue dbos.Queue

	begin func(i int)
	meter trial.Meter

	// The numbers of rows that the store should have after the trial.
	flows, waiting, steps atomic.Int64
}

// input is the input of a workflow.
type input struct {
	trial.Payload
	Steps int `json:"steps"`
}

func open(ctx context.Context, r trial.Request) (*bed, error) {
	b := &bed{begin: func(int) {}}
	b.settings, b.text = of(r)
	url := r.URL
	if dir, ok := strings.CutPrefix(url, "sqlite:"); ok {
		url = "sqlite:" + dir + "/dbos.db"
	} else if b.conns > 0 {
		url += fmt.Sprintf("&pool_max_conns=%d", b.conns)
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	c, err := dbos.NewContext(ctx, dbos.Config{
		AppName: "bench", DatabaseURL: url, Logger: quiet, ApplicationVersion: "1",
	})
	if err != nil {
		return nil, err
	}
	b.dbos = c
	dbos.RegisterWorkflow(c, b.workflow, dbos.WithWorkflowName("noop"))
	return b, nil
}

// workflow runs as many steps as its input says.
func (b *bed) workflow(ctx dbos.Context, in input) (string, error) {
	b.begin(in.I)
	for range in.Steps {
		_, err := dbos.RunAsStep(ctx, func(context.Context) (trial.Payload, error) {
			return in.Payload, nil
		}, dbos.WithStepName("step"))
		if err != nil {
			return "", err
		}
		b.meter.Add(1)
	}
	return "", nil
}

// call runs a workflow in this process and waits for its end. The meter counts its steps, or the
// workflow itself if it has none.
func (b *bed) call(in input) error {
	h, err := dbos.RunWorkflow(b.dbos, b.workflow, in)
	if err == nil {
		_, err = h.GetResult()
	}
	b.flows.Add(1)
	b.steps.Add(int64(in.Steps))
	if in.Steps == 0 {
		b.meter.Add(1)
	}
	return err
}

// flow calls workflows with no step or with ten steps, and waits for the end of each workflow.
func (b *bed) flow(ctx context.Context, r trial.Request) (trial.Sample, error) {
	steps := 0
	if r.Measure == trial.Steps {
		steps = trial.StepsEach
	}
	if err := dbos.Launch(b.dbos); err != nil {
		return trial.Sample{}, err
	}
	done, err := trial.Loop(ctx, r, b.flight, &b.meter, func(_ context.Context, i int) error {
		return b.call(input{Payload: trial.Input(i), Steps: steps})
	})
	return done.Sample(), err
}
