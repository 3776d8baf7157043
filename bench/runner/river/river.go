// Package river measures River, the job queue on PostgreSQL.
//
// River's settings are documented on river.Config. The settings of the variant tuned were found
// with River's own benchmark (cmd/river/riverbench in its repository, described at
// riverqueue.com/docs/benchmarks) and by trying values near the settings of that benchmark.
package river

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/belaydev/belay/bench/trial"
)

// settings are the settings that affect the results; zero is River's default.
type settings struct {
	cooldown time.Duration // FetchCooldown; its default is 100 ms
	poll     time.Duration // FetchPollInterval; its default is 1 s
	conns    int32         // connections of each pool; pgxpool's default is 4, or the number of processors
	workers  int           // MaxWorkers, which has no default
	callers  int           // callers that insert in bulk
	text     string
}

// settingsOf returns the settings of a trial. With the variant own, 2,000 jobs are in flight, the
// number with which River's own benchmark (riverbench) is fastest; with the other variants 1,000,
// as with Belay. With 1,000 in flight, longer intervals between fetches, up to 5 ms, find more jobs
// in each fetch. For the latency, short intervals are better, and 1 ms is the shortest that River
// accepts. More than 20 connections do not make River faster here.
func settingsOf(r trial.Request) settings {
	switch {
	case r.Variant == trial.Own:
		return settings{
			cooldown: 2 * time.Millisecond, poll: 20 * time.Millisecond, conns: 20, workers: 2000, callers: 1,
			text: "as riverbench: FetchCooldown 2ms, FetchPollInterval 20ms, MaxWorkers 2,000; pool of 20 connections",
		}
	case r.Variant == trial.Tuned && r.Measure == trial.Latency:
		return settings{
			cooldown: time.Millisecond, poll: 20 * time.Millisecond, conns: 20, workers: trial.InFlight,
			text: "for latency FetchCooldown 1ms, FetchPollInterval 20ms, pool of 20 connections; MaxWorkers 1,000",
		}
	case r.Variant == trial.Tuned:
		return settings{
			cooldown: 5 * time.Millisecond, poll: 20 * time.Millisecond, conns: 20, workers: trial.InFlight, callers: 2,
			text: "FetchCooldown 5ms, FetchPollInterval 20ms, pools of 20 connections; MaxWorkers 1,000; bulk " +
				"from 2 callers",
		}
	}
	return settings{
		workers: trial.InFlight, callers: 1,
		text: "River's defaults: FetchCooldown 100ms, pools of 4 connections; MaxWorkers 1,000",
	}
}

// Run carries out a trial.
func Run(ctx context.Context, r trial.Request) (trial.Sample, error) {
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	defer b.close()
	measure := map[trial.Measure]func(context.Context, trial.Request) (trial.Sample, error){
		trial.Drain: b.drain, trial.Submit: b.submit, trial.Bulk: b.bulk, trial.Latency: b.latency,
		trial.Overload: b.overload,
	}[r.Measure]
	if measure == nil {
		return trial.Sample{}, trial.ErrNone
	}
	s, err := measure(ctx, r)
	s.Settings = b.text
	return s, err
}

// bed is a database with River's tables and two pools, one to insert jobs and one to work on them,
// as two programs would have.
type bed struct {
	settings
	inserts, worker *pgxpool.Pool
}

func open(ctx context.Context, r trial.Request) (*bed, error) {
	b := &bed{settings: settingsOf(r)}
	var err error
	if b.inserts, err = b.pool(ctx, r.URL); err != nil {
		return nil, err
	}
	if b.worker, err = b.pool(ctx, r.URL); err != nil {
		return nil, err
	}
	m, err := rivermigrate.New(riverpgxv5.New(b.inserts), &rivermigrate.Config{Logger: quiet()})
	if err != nil {
		return nil, err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return b, err
}

func (b *bed) close() {
	b.inserts.Close()
	b.worker.Close()
}

func (b *bed) pool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = cmp.Or(b.conns, c.MaxConns)
	return pgxpool.NewWithConfig(ctx, c)
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// noop is a job that does nothing.
type noop struct{ trial.Payload }

// Kind returns the job's name.
func (noop) Kind() string { return "noop" }

type work struct {
	river.WorkerDefaults[noop]
	begin func(i int)
}

// Work only calls begin.
func (w *work) Work(_ context.Context, j *river.Job[noop]) error {
	w.begin(j.Args.I)
	return nil
}

// producer returns a client that only inserts jobs. Its FetchCooldown is set too, because a client
// of River sends at most one notification in each FetchCooldown.
func (b *bed) producer() (*river.Client[pgx.Tx], error) {
	return river.NewClient(riverpgxv5.New(b.inserts), b.config(nil))
}

// consumer returns a client that works on jobs, and calls begin for each job.
func (b *bed) consumer(begin func(i int)) (*river.Client[pgx.Tx], error) {
	c := b.config(river.NewWorkers())
	river.AddWorker(c.Workers, &work{begin: begin})
	c.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: b.workers}}
	return river.NewClient(riverpgxv5.New(b.worker), c)
}

func (b *bed) config(w *river.Workers) *river.Config {
	return &river.Config{FetchCooldown: b.cooldown, FetchPollInterval: b.poll, Logger: quiet(), Workers: w}
}

// count counts the jobs in a state.
func (b *bed) count(ctx context.Context, state string, want int64) ([]trial.Count, error) {
	c := trial.Count{What: "jobs " + state, Want: want}
	err := b.inserts.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = $1::river_job_state",
		state).Scan(&c.Got)
	if err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	return []trial.Count{c}, nil
}
