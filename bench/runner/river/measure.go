package river

import (
	"context"
	"time"

	"github.com/riverqueue/river"

	"github.com/belaydev/belay/bench/trial"
)

// insert inserts the jobs of a trial with COPY, River's fastest way.
func (b *bed) insert(ctx context.Context, r trial.Request, callers int) (trial.Done, error) {
	p, err := b.producer()
	if err != nil {
		return trial.Done{}, err
	}
	return trial.Bursts(ctx, r, callers, r.N, func(ctx context.Context, first, rows int) error {
		jobs := make([]river.InsertManyParams, rows)
		for i := range jobs {
			jobs[i].Args = noop{trial.Input(first + i)}
		}
		_, err := p.InsertManyFast(ctx, jobs)
		return err
	})
}

// drain measures jobs that are inserted already, like River's own benchmark. River writes the ends
// of fewer than a hundred jobs up to 250 ms late, so the last hundred do not count for the rate.
func (b *bed) drain(ctx context.Context, r trial.Request) (trial.Sample, error) {
	if _, err := b.insert(ctx, r, 1); err != nil {
		return trial.Sample{}, err
	}
	if _, err := b.inserts.Exec(ctx, "ANALYZE river_job"); err != nil { // does not wait for autovacuum
		return trial.Sample{}, err
	}
	c, err := b.consumer(func(int) {})
	if err != nil {
		return trial.Sample{}, err
	}
	ends, cancel := c.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: r.N + 1000, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	defer cancel()
	begin := trial.Now(r)
	if err := c.Start(ctx); err != nil {
		return trial.Sample{}, err
	}
	const late = 100
	var done trial.Done
	for i := range r.N {
		select {
		case <-ends:
		case <-ctx.Done():
			return trial.Sample{}, context.Cause(ctx)
		}
		if i+1 == r.N-late {
			done = begin.Done(r.N - late)
		}
	}
	if err := c.Stop(ctx); err != nil {
		return trial.Sample{}, err
	}
	s := done.Sample()
	s.Counts, err = b.count(ctx, "completed", int64(r.N))
	return s, err
}

// submit inserts jobs one by one.
func (b *bed) submit(ctx context.Context, r trial.Request) (trial.Sample, error) {
	p, err := b.producer()
	if err != nil {
		return trial.Sample{}, err
	}
	var m trial.Meter
	done, err := trial.Loop(ctx, r, trial.Submitters, &m, func(ctx context.Context, i int) error {
		_, err := p.Insert(ctx, noop{trial.Input(i)}, nil)
		m.Add(1)
		return err
	})
	if err != nil {
		return trial.Sample{}, err
	}
	s := done.Sample()
	s.Counts, err = b.count(ctx, "available", done.N)
	return s, err
}

// bulk inserts a thousand jobs in a call, from as many concurrent callers as make River fastest.
func (b *bed) bulk(ctx context.Context, r trial.Request) (trial.Sample, error) {
	done, err := b.insert(ctx, r, b.callers)
	if err != nil {
		return trial.Sample{}, err
	}
	s := done.Sample()
	s.Counts, err = b.count(ctx, "available", done.N)
	return s, err
}

// latency inserts r.Rate jobs a second while a client works on the jobs, and measures the time
// until each job starts.
func (b *bed) latency(ctx context.Context, r trial.Request) (trial.Sample, error) {
	p, err := b.producer()
	if err != nil {
		return trial.Sample{}, err
	}
	warm := r.Rate // the jobs of the first second, which are not measured
	total := int(r.For.Seconds()*float64(r.Rate)) + warm
	starts := trial.NewStarts(total - warm)
	c, err := b.consumer(func(i int) {
		if i >= warm {
			starts.Start(i)
		}
	})
	if err != nil {
		return trial.Sample{}, err
	}
	if err := c.Start(ctx); err != nil {
		return trial.Sample{}, err
	}
	n, err := trial.Pace(ctx, r.Rate, r.For+time.Second, func(ctx context.Context, i int) error {
		if i >= warm {
			starts.Submit(i)
		}
		_, err := p.Insert(ctx, noop{trial.Input(i)}, nil)
		return err
	})
	if err != nil {
		return trial.Sample{}, err
	}
	var s trial.Sample
	if s.Times, err = starts.Times(10 * time.Second); err != nil {
		return s, err
	}
	if err := c.Stop(ctx); err != nil {
		return s, err
	}
	s.Counts, err = b.count(ctx, "completed", int64(n))
	return s, err
}
