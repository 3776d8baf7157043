package belay

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
)

// limitName is the name of the limit in the measures of gates.
const limitName = "hot"

// gates measures how fast workers run executions that all name one limit. The executions were
// submitted before the workers start.
func gates(ctx context.Context, r trial.Request) (trial.Sample, error) {
	g, err := openSeveral(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	limit := &belay.Concurrency{Name: limitName, Max: r.Limit}
	_, err = fillWith(ctx, r, g[0].calls, 1, r.N, func(i int) belay.Submission {
		return belay.Submission{Workflow: "noop", Input: input(i), Gates: belay.Gates{Concurrency: limit}}
	})
	if err != nil {
		return trial.Sample{}, errors.Join(err, g.close())
	}
	var begun atomic.Int64
	all := make(chan struct{})
	begin := trial.Now(r)
	crews := make([]*crew, len(g))
	for i, b := range g {
		crews[i] = startWorker(ctx, b.works, func(int) {
			if begun.Add(1) == int64(r.N) {
				close(all)
			}
		}, func() {})
	}
	select {
	case <-all:
	case err := <-crews[0].ended:
		return trial.Sample{}, errors.Join(err, g.close())
	case <-ctx.Done():
		return trial.Sample{}, context.Cause(ctx)
	}
	for _, c := range crews {
		err = errors.Join(err, c.stopWorking())
	}
	done := begin.Done(int(begun.Load()))
	if err := errors.Join(err, g[1:].close()); err != nil {
		return trial.Sample{}, err
	}
	return g[0].settle(ctx, done.Sample(), int64(r.N), 0)
}

// several has one connection for each server of a store, or one engine in this process.
type several []*bed

// openSeveral opens the store of a trial as open does; for the variant Three it starts three
// servers on the store.
func openSeveral(ctx context.Context, r trial.Request) (several, error) {
	n := 1
	if r.Variant == trial.Three {
		n, r.Variant = 3, trial.HTTP
	}
	var g several
	for range n {
		b, err := open(ctx, r)
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		g = append(g, b)
	}
	return g, nil
}

func (g several) close() (err error) {
	for _, b := range g {
		err = errors.Join(err, b.close())
	}
	return err
}
