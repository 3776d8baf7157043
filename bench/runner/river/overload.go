package river

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/belaydev/belay/bench/trial"
)

// heldJobs is the number of jobs that run during the whole trial.
const heldJobs = 100

// held is a job that runs until it is released.
type held struct{}

// Kind returns the job's name.
func (held) Kind() string { return "held" }

type holder struct {
	river.WorkerDefaults[held]
	running atomic.Int64
	all     chan struct{} // closed when all heldJobs jobs run
	release chan struct{} // closed to end the jobs
}

// Timeout returns -1: the job has no timeout.
func (*holder) Timeout(*river.Job[held]) time.Duration { return -1 }

// Work runs until the job is released or ctx ends.
func (h *holder) Work(ctx context.Context, _ *river.Job[held]) error {
	if h.running.Add(1) == heldJobs {
		close(h.all)
	}
	select {
	case <-h.release:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// overload inserts at ten times the best rate, while other jobs run during the whole trial. River
// refuses no job: an insert waits for a connection. River has no sessions that could be lost. The
// trial counts instead jobs that began more than once, jobs that began and did not end, and changes
// of the elected leader.
func (b *bed) overload(ctx context.Context, r trial.Request) (trial.Sample, error) {
	p, err := b.producer()
	if err != nil {
		return trial.Sample{}, err
	}
	crowd := trial.NewCrowd(func(ctx context.Context, _, first, rows int) (int, time.Duration, error) {
		jobs := make([]river.InsertManyParams, rows)
		for i := range jobs {
			jobs[i].Args = noop{trial.Input(first + i)}
		}
		n, err := p.InsertManyFast(ctx, jobs)
		return n, 0, err
	})
	h := &holder{all: make(chan struct{}), release: make(chan struct{})}
	c, err := b.crowded(crowd.Begin, h)
	if err != nil {
		return trial.Sample{}, err
	}
	stop := b.listen(c, func() { crowd.End(1) })
	if err := c.Start(ctx); err != nil {
		return trial.Sample{}, err
	}
	leader, err := b.hold(ctx, p, h)
	if err != nil {
		return trial.Sample{}, err
	}
	s, err := crowd.Run(ctx, r)
	if err != nil {
		return s, err
	}
	later, err := b.leader(ctx)
	if err != nil {
		return s, err
	}
	close(h.release)
	if err := c.Stop(ctx); err != nil {
		return s, err
	}
	stop()
	s.Values["leader_changed"] = 0
	if later != leader {
		s.Values["leader_changed"] = 1
	}
	err = b.judge(ctx, &s, crowd.Accepted()+heldJobs)
	return s, err
}

// crowded returns a client that works on both the short jobs (noop) and the jobs that run during
// the whole trial (held).
func (b *bed) crowded(begin func(i int), h *holder) (*river.Client[pgx.Tx], error) {
	c := b.config(river.NewWorkers())
	river.AddWorker(c.Workers, &work{begin: begin})
	river.AddWorker(c.Workers, h)
	c.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: b.workers}, "held": {MaxWorkers: heldJobs}}
	return river.NewClient(riverpgxv5.New(b.worker), c)
}

// listen calls end for each completed job of kind noop, until stop is called.
func (b *bed) listen(c *river.Client[pgx.Tx], end func()) (stop func()) {
	events, cancel := c.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: 1 << 20, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	var all sync.WaitGroup
	all.Go(func() {
		for e := range events {
			if e.Job.Kind == (noop{}).Kind() {
				end()
			}
		}
	})
	return func() { cancel(); all.Wait() }
}

// hold inserts the jobs that run during the whole trial, waits until they run, and returns the name
// and term of River's elected leader.
func (b *bed) hold(ctx context.Context, p *river.Client[pgx.Tx], h *holder) (leader string, err error) {
	jobs := make([]river.InsertManyParams, heldJobs)
	for i := range jobs {
		jobs[i] = river.InsertManyParams{Args: held{}, InsertOpts: &river.InsertOpts{Queue: "held"}}
	}
	if _, err := p.InsertManyFast(ctx, jobs); err != nil {
		return "", err
	}
	late := time.After(30 * time.Second)
	select {
	case <-h.all:
	case <-late:
		return "", fmt.Errorf("%d of %d held jobs run", h.running.Load(), heldJobs)
	}
	for {
		if leader, err = b.leader(ctx); leader != "" || err != nil {
			return leader, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			return "", errors.New("no leader was elected")
		}
	}
}

// leader returns the name and the term of River's elected leader; "" if there is no leader.
func (b *bed) leader(ctx context.Context) (text string, err error) {
	err = b.inserts.QueryRow(ctx, "SELECT coalesce(max(leader_id || ' ' || elected_at), '') FROM river_leader").Scan(
		&text)
	return text, err
}

// judge counts all jobs, which must be as many as were accepted, the jobs that began and did not
// end, and the jobs that began more than once.
func (b *bed) judge(ctx context.Context, s *trial.Sample, accepted int64) error {
	var all, begun, again int64
	const count = `
		SELECT count(*), count(*) FILTER (WHERE state = 'running'), count(*) FILTER (WHERE attempt > 1)
		FROM river_job`
	if err := b.inserts.QueryRow(ctx, count).Scan(&all, &begun, &again); err != nil {
		return fmt.Errorf("count jobs: %w", err)
	}
	s.Counts = []trial.Count{{What: "jobs", Want: accepted, Got: all}}
	s.Values["begun_not_ended"], s.Values["begun_again"] = float64(begun), float64(again)
	return nil
}
