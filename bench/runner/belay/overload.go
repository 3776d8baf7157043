package belay

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/client"
)

// ending is a Backend that reports the runs that have succeeded.
type ending struct {
	belay.Backend
	ended func()
}

func (e *ending) Settle(ctx context.Context, s belay.Settlement) error {
	err := e.Backend.Settle(ctx, s)
	if err == nil && s.Outcome == belay.OutcomeSucceeded {
		e.ended()
	}
	return err
}

// crowded is a Belay under overload.
type crowded struct {
	*bed
	callers []belay.Backend // the connections of the producers, one for each
	ends    []func() error
	crowd   *trial.Crowd
	unknown atomic.Int64 // submissions without an answer
}

// overload submits at ten times the best rate, while ten workers own executions that run during the
// whole trial.
func overload(ctx context.Context, r trial.Request) (trial.Sample, error) {
	b, err := open(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	o := &crowded{bed: b}
	o.crowd = trial.NewCrowd(o.hand)
	if err := o.connectAll(ctx); err != nil {
		return trial.Sample{}, err
	}
	release, err := o.work(ctx, r)
	if err != nil {
		return trial.Sample{}, err
	}
	s, err := o.crowd.Run(ctx, r)
	if err != nil {
		return s, err
	}
	beats, err := release()
	for _, end := range o.ends {
		err = errors.Join(err, end())
	}
	if err != nil {
		return s, err
	}
	s.Values["heartbeat_p50_ms"], s.Values["heartbeat_p99_ms"], s.Values["heartbeat_max_ms"] = beats.P50, beats.P99,
		beats.Max
	return o.settled(ctx, s)
}

// settled closes Belay and compares the store with the results of the load. The store must have
// every accepted execution, and at least one run for each ended execution. settled also counts lost
// sessions and leases, and executions that began and did not end.
func (o *crowded) settled(ctx context.Context, s trial.Sample) (trial.Sample, error) {
	if err := o.close(); err != nil {
		return s, err
	}
	b, err := openLocal(ctx, o.url)
	if err != nil {
		return s, err
	}
	c, err := b.Counts(ctx)
	if err := errors.Join(err, b.Close()); err != nil {
		return s, err
	}
	if s.Values["sessions_lost"], s.Values["leases_lost"], err = losses(ctx, o.url); err != nil {
		return s, err
	}
	ended := c.Executions[belay.Succeeded]
	all := ended + c.Executions[belay.Pending] + c.Executions[belay.Running]
	s.Values["without_answer"] = float64(o.unknown.Load())
	s.Values["begun_not_ended"] = float64(c.Executions[belay.Running])
	s.Counts = []trial.Count{
		{What: "executions", Want: o.crowd.Accepted() + holders*heldEach, Got: all, More: o.unknown.Load() > 0},
		// There may be more runs than ended executions: a worker that stopped has released
		// executions that it had claimed and not begun.
		{What: "runs", Want: ended, Got: c.Runs, More: true},
	}
	return s, nil
}

// connectAll gives each producer its own connection to the server. If the engine runs in this
// process, all producers use this engine.
func (o *crowded) connectAll(ctx context.Context) error {
	for range trial.Submitters {
		b := o.calls
		if o.server != nil {
			c, err := client.Dial(ctx, o.server.url, client.Logger(quiet()), client.Patience(0))
			if err != nil {
				return err
			}
			b, o.ends = c, append(o.ends, c.Close)
		}
		o.callers = append(o.callers, b)
	}
	return nil
}

// work starts workers for the submitted executions, and workers that own executions during the
// whole trial. The returned function stops all of them.
func (o *crowded) work(ctx context.Context, r trial.Request) (end func() (*trial.Times, error), _ error) {
	held := make([]belay.Submission, holders*heldEach)
	for i := range held {
		held[i] = belay.Submission{Workflow: "held", Input: json.RawMessage("{}")}
	}
	if _, err := o.calls.Submit(ctx, held...); err != nil {
		return nil, err
	}
	if o.server != nil {
		return o.apart(ctx, r)
	}
	return o.beside(ctx)
}

// hand submits executions for a producer. It returns how many were accepted, and how long the
// producer must wait: the longest Retry-After of the refusals, or at least a second if the store
// was unavailable.
func (o *crowded) hand(ctx context.Context, producer, first, rows int) (accepted int, wait time.Duration, err error) {
	list := make([]belay.Submission, rows)
	for i := range list {
		list[i] = belay.Submission{Workflow: "noop", Input: plain(first + i)}
	}
	answers, err := o.callers[producer].Submit(ctx, list...)
	for len(answers) < rows {
		answers = append(answers, belay.Submitted{Err: err})
	}
	for _, a := range answers {
		var e *belay.Error
		switch {
		case a.Err == nil:
			accepted++
		case belay.CodeOf(a.Err) == belay.CodeRateLimited && errors.As(a.Err, &e):
			wait = max(wait, e.RetryAfter)
		case belay.CodeOf(a.Err) == belay.CodeUnavailable: // the submission may or may not have happened
			o.unknown.Add(1)
			wait = max(wait, time.Second)
		default:
			return accepted, 0, a.Err
		}
	}
	return accepted, wait, nil
}

// plain makes the input of the i-th execution without package encoding/json, because processor time
// that the producers use is not available to the measured system.
func plain(i int) json.RawMessage {
	b := append(make([]byte, 0, 320), `{"i":`...)
	b = strconv.AppendInt(b, int64(i), 10)
	b = append(b, `,"text":"`...)
	b = append(b, trial.Input(i).Text...)
	return append(b, `"}`...)
}
