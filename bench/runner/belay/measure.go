package belay

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/workflow"
)

func input(i int) json.RawMessage {
	b, _ := json.Marshal(trial.Input(i)) //nolint:errchkjson // a number and a string
	return b
}

// drain measures how fast a worker runs executions that were submitted before the worker started.
func drain(ctx context.Context, r trial.Request) (trial.Sample, error) {
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	if _, err := fill(ctx, r, b.calls, 1, 0, r.N); err != nil {
		return trial.Sample{}, err
	}
	done, err := b.workOff(ctx, r, r.N)
	if err != nil {
		return trial.Sample{}, err
	}
	return b.settle(ctx, done.Sample(), int64(r.N), 0)
}

// workOff measures how fast a worker runs executions. When n executions have begun, it stops the
// worker and waits until the store has acknowledged the end of all begun executions, which may be
// more than n.
func (b *bed) workOff(ctx context.Context, r trial.Request, n int) (trial.Done, error) {
	var begun atomic.Int64
	all := make(chan struct{})
	begin := trial.Now(r)
	c := startPosted(ctx, r.Broker, b.works, func(int) {
		if begun.Add(1) == int64(n) {
			close(all)
		}
	}, func() {})
	select {
	case <-all:
	case err := <-c.ended:
		return trial.Done{}, err
	case <-ctx.Done():
		return trial.Done{}, context.Cause(ctx)
	}
	err := c.stopWorking()
	return begin.Done(int(begun.Load())), err
}

// flow submits executions, with ten steps or without steps, and waits for the end of each.
func flow(ctx context.Context, r trial.Request) (trial.Sample, error) {
	name, steps := "noop", 0
	if r.Measure == trial.Steps {
		name, steps = "steps", trial.StepsEach
	}
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	var m trial.Meter
	c := startPosted(ctx, r.Broker, b.works, func(int) {}, func() { m.Add(1) })
	done, err := trial.Loop(ctx, r, trial.InFlight, &m, func(ctx context.Context, i int) error {
		h, err := workflow.Start[string](ctx, b.calls, name, trial.Input(i))
		if err == nil {
			_, err = h.Result(ctx)
		}
		if steps == 0 {
			m.Add(1)
		}
		return err
	})
	if err != nil {
		return trial.Sample{}, err
	}
	if err := c.stopWorking(); err != nil {
		return trial.Sample{}, err
	}
	return b.settle(ctx, done.Sample(), done.N, steps)
}

// submit submits executions one by one while no worker runs.
func submit(ctx context.Context, r trial.Request) (trial.Sample, error) {
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	var m trial.Meter
	done, err := trial.Loop(ctx, r, trial.Submitters, &m, func(ctx context.Context, i int) error {
		_, err := workflow.Start[string](ctx, b.calls, "noop", trial.Input(i))
		m.Add(1)
		return err
	})
	if err != nil {
		return trial.Sample{}, err
	}
	return b.accepted(ctx, done)
}

// bulk submits a thousand executions at a time while no worker runs.
func bulk(ctx context.Context, r trial.Request) (trial.Sample, error) {
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	done, err := fill(ctx, r, b.calls, 2, 0, r.N)
	if err != nil {
		return trial.Sample{}, err
	}
	return b.accepted(ctx, done)
}

func (b *bed) accepted(ctx context.Context, done trial.Done) (trial.Sample, error) {
	s := done.Sample()
	if err := b.close(); err != nil {
		return s, err
	}
	var err error
	s.Counts, err = counts(ctx, b.url, tally{pending: done.N})
	return s, err
}

// latency submits r.Rate executions a second while a worker runs, and measures the time from each
// submission to the start of its run.
func latency(ctx context.Context, r trial.Request) (trial.Sample, error) {
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	warm := r.Rate // the executions of the first second, which are not measured
	starts := trial.NewStarts(int(r.For.Seconds() * float64(r.Rate)))
	c := startPosted(ctx, r.Broker, b.works, func(i int) {
		if i >= warm {
			starts.Start(i)
		}
	}, func() {})
	n, err := trial.Pace(ctx, r.Rate, r.For+time.Second, func(ctx context.Context, i int) error {
		if i >= warm {
			starts.Submit(i)
		}
		_, err := workflow.Start[string](ctx, b.calls, "noop", trial.Input(i))
		return err
	})
	if err != nil {
		return trial.Sample{}, err
	}
	var s trial.Sample
	if s.Times, err = starts.Times(10 * time.Second); err != nil {
		return s, err
	}
	if err := c.stopWorking(); err != nil {
		return s, err
	}
	return b.settle(ctx, s, int64(n), 0)
}

// loaded measures how fast N executions run while N more wait, in a store that also has 10 N ended
// executions.
func loaded(ctx context.Context, r trial.Request) (trial.Sample, error) {
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	ended := 10 * r.N
	if _, err := fill(ctx, r, b.calls, 1, 0, ended); err != nil {
		return trial.Sample{}, err
	}
	if _, err := b.workOff(ctx, r, ended); err != nil {
		return trial.Sample{}, err
	}
	if _, err := fill(ctx, r, b.calls, 1, ended, 2*r.N); err != nil {
		return trial.Sample{}, err
	}
	done, err := b.workOff(ctx, r, r.N)
	if err != nil {
		return trial.Sample{}, err
	}
	s := done.Sample()
	if err := b.close(); err != nil {
		return s, err
	}
	all := int64(ended) + done.N
	s.Counts, err = counts(ctx, b.url, tally{succeeded: all, runs: all, moreRuns: true, pending: int64(2*r.N) - done.N})
	return s, err
}

// lease measures how long a caller takes to lock an external execution, one execution after the
// other. After each lock it measures a commit of a single row, because a lock costs at least such a
// commit.
func lease(ctx context.Context, r trial.Request) (trial.Sample, error) {
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	commit, end, err := loneCommit(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	defer end()
	var leases, commits []time.Duration
	for i := range r.N {
		out, err := b.calls.Submit(ctx, belay.Submission{Workflow: "outside", Input: input(i), External: true})
		if err != nil {
			return trial.Sample{}, err
		}
		begin := time.Now()
		if _, err := b.calls.Lock(ctx, belay.LockRequest{Execution: out[0].ID, Owner: "bench"}); err != nil {
			return trial.Sample{}, err
		}
		leases = append(leases, time.Since(begin))
		begin = time.Now()
		if err := commit(ctx); err != nil {
			return trial.Sample{}, err
		}
		commits = append(commits, time.Since(begin))
	}
	s := trial.Sample{Times: trial.TimesOf(leases)}
	lone := trial.TimesOf(commits)
	s.Values = map[string]float64{"commit_p50_ms": lone.P50, "commit_p95_ms": lone.P95}
	return s, b.close()
}
