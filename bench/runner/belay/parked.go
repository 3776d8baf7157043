package belay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// lane is one of the two stores of the measure parked, with a worker. It is no lane of Belay.
type lane struct {
	*bed
	r    trial.Request // the request of the trial, with the address of this store
	crew *crew
	n    int64 // executions of the workflow noop that have ended
}

// parked measures the throughput of executions that name no limit, alternately in two stores: in
// one of these stores, r.N further executions wait at a full limit. In both stores, r.Limit
// executions have the places of this limit and run during the whole measurement.
func parked(ctx context.Context, r trial.Request) (s trial.Sample, err error) {
	with, err := openLane(ctx, r, r.URL, r.N)
	if err != nil {
		return s, err
	}
	without, err := openLane(ctx, r, r.Beside, 0)
	if err != nil {
		return s, errors.Join(err, with.close())
	}
	var rates, rate0, costs, cost0, ofRate, ofCost []float64
	for i := range r.Pairs {
		order := []*lane{with, without}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		did := make(map[*lane]trial.Sample, 2)
		for _, l := range order {
			if did[l], err = l.flow(ctx); err != nil {
				return s, errors.Join(err, with.close(), without.close())
			}
		}
		a, b := did[with], did[without]
		rates, rate0 = append(rates, a.Rate), append(rate0, b.Rate)
		costs, cost0 = append(costs, a.CPU+a.Database), append(cost0, b.CPU+b.Database)
		ofRate, ofCost = append(ofRate, a.Rate/b.Rate), append(ofCost, (b.CPU+b.Database)/(a.CPU+a.Database))
	}
	s.Values = map[string]float64{
		"without_per_s": middle(rate0), "cpu_us": middle(costs), "without_cpu_us": middle(cost0),
		"kept": middle(ofRate), "kept_min": slices.Min(ofRate), "kept_max": slices.Max(ofRate),
		"kept_cpu": middle(ofCost), "kept_cpu_min": slices.Min(ofCost), "kept_cpu_max": slices.Max(ofCost),
	}
	s.Rate = middle(rates)
	for _, l := range []*lane{with, without} {
		c, err := l.end(ctx)
		if err != nil {
			return s, err
		}
		s.Counts = append(s.Counts, c...)
	}
	return s, nil
}

func middle(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }

// openLane opens a store and starts a worker in it, fills the limit, and lets n executions wait at the
// limit.
func openLane(ctx context.Context, r trial.Request, url string, n int) (*lane, error) {
	r.URL = url
	b, err := open(ctx, r)
	if err != nil {
		return nil, err
	}
	l := &lane{bed: b, r: r}
	holds := make(chan struct{}, r.Limit)
	w := worker.New(b.works, worker.Options{Concurrency: trial.InFlight + r.Limit, Grace: -1, Log: quiet()})
	worker.Register(w, "noop", func(context.Context, trial.Payload) (string, error) { return "", nil })
	worker.Register(w, "holding", func(ctx context.Context, _ trial.Payload) (string, error) {
		holds <- struct{}{}
		<-ctx.Done()
		return "", context.Cause(ctx)
	})
	l.crew = run(ctx, w)
	if err := l.wait(ctx, holds, n); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

// wait fills the limit and lets n executions wait there.
func (l *lane) wait(ctx context.Context, holds chan struct{}, n int) error {
	limited := func(i int) belay.Submission {
		return belay.Submission{Workflow: "holding", Input: input(i), Gates: belay.Gates{
			Concurrency: &belay.Concurrency{Name: limitName, Max: l.r.Limit},
		}}
	}
	if _, err := fillWith(ctx, l.r, l.calls, 1, l.r.Limit, limited); err != nil {
		return err
	}
	late := time.After(patience)
	for range l.r.Limit {
		select {
		case <-holds:
		case <-late:
			return errors.New("the executions that hold the limit do not run")
		}
	}
	if n == 0 {
		return nil
	}
	if _, err := fillWith(ctx, l.r, l.calls, 1, n-1, limited); err != nil {
		return err
	}
	last, err := l.calls.Submit(ctx, limited(n))
	if err == nil {
		err = last[0].Err
	}
	if err != nil {
		return err
	}
	for { // waits until the last execution is parked: executions are parked in the order of submission
		e, err := l.calls.Execution(ctx, last[0].ID)
		if err != nil || e.Gate != "" {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			return fmt.Errorf("%d executions do not wait at the limit", n)
		}
	}
}

// flow submits executions that name no limit, and waits for the end of each.
func (l *lane) flow(ctx context.Context) (trial.Sample, error) {
	var m trial.Meter
	done, err := trial.Loop(ctx, l.r, trial.InFlight, &m, func(ctx context.Context, i int) error {
		h, err := workflow.Start[string](ctx, l.calls, "noop", trial.Input(i))
		if err == nil {
			_, err = h.Result(ctx)
		}
		m.Add(1)
		return err
	})
	l.n += done.N
	return done.Sample(), err
}

// end checks that the limit is still full, closes the store and counts its executions.
func (l *lane) end(ctx context.Context) ([]trial.Count, error) {
	g, err := l.calls.Gate(ctx, belay.Gate(belay.GateLimit, limitName))
	if err := errors.Join(err, l.crew.stopWorking(), l.close()); err != nil {
		return nil, err
	}
	waiting := int64(0)
	if l.r.URL != l.r.Beside {
		waiting = int64(l.r.N)
	}
	all, err := counts(ctx, l.r.URL, tally{succeeded: l.n})
	if err != nil {
		return nil, err
	}
	return append(all[:1], // the other counts vary, because a worker that stops releases executions
		trial.Count{What: "places of the limit taken", Want: int64(l.r.Limit), Got: int64(g.Held)},
		trial.Count{What: "executions that wait at the limit", Want: min(waiting, 101), Got: int64(g.Waiting)},
	), nil
}
