package trial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// The parameters of the measure Overload. The best rate is the highest rate that the system can
// sustain.
const (
	Tenfold       = 10 // the offered load, as a multiple of the best rate
	Flood         = 5  // the length of the overload, in multiples of Request.For
	tick          = 10 * time.Millisecond
	maxUnanswered = 300 // how many calls of a producer may be unanswered: the calls of three seconds
	Sampled       = 16  // the time until the start is measured for every 16th execution
	firstRows     = 100 // rows of one call while the best rate is searched
)

// depths are the numbers of unfinished executions in the system while its best rate is searched.
// The search runs once with each number, and the higher rate counts.
var depths = []int64{2 * InFlight, 10 * InFlight}

// Crowd is the load of Overload: a number (Submitters) of producers that submit executions. First
// they keep the number of unfinished executions constant, which shows the best rate that the system
// can sustain. Then they submit at ten times that rate, whether the executions are accepted or not.
// Every 10 ms a producer submits, in one call, all executions that have become due since its last
// call, without waiting for the answers to its earlier calls. If an answer tells the producer to
// wait, it waits, and drops the executions that become due during the wait. It also drops
// executions that become due while 300 of its calls have no answer.
type Crowd struct {
	// Submit submits the number of executions in rows, numbered from first on. It returns how many were
	// accepted and, if some were not, how long the producer must wait.
	Submit func(ctx context.Context, producer, first, rows int) (accepted int, wait time.Duration, err error)
	// Ended counts the executions whose ends were acknowledged.
	Ended Meter

	starts             *Starts
	next               atomic.Int64
	begun              atomic.Int64 // executions accepted or being submitted in the search for the best rate
	accepted, finished atomic.Int64
	offered, handed    atomic.Int64
	calls              sync.WaitGroup
	mu                 sync.Mutex
	answers            []time.Duration
}

// NewCrowd returns a crowd that submits by the function submit.
func NewCrowd(submit func(ctx context.Context, producer, first, rows int) (int, time.Duration, error)) *Crowd {
	return &Crowd{Submit: submit, starts: NewStarts(0)}
}

// End counts executions that have ended.
func (c *Crowd) End(n int) {
	c.Ended.Add(n)
	c.finished.Add(int64(n))
}

// Begin notes that the i-th execution runs.
func (c *Crowd) Begin(i int) {
	if i%Sampled == 0 {
		c.starts.Start(i)
	}
}

// Accepted returns how many executions were accepted in all.
func (c *Crowd) Accepted() int64 { return c.accepted.Load() }

// Run finds the best rate, submits at ten times that rate, and returns the results. Before it
// returns, all calls have been answered.
func (c *Crowd) Run(ctx context.Context, r Request) (Sample, error) {
	best, err := c.best(ctx, r)
	if err != nil {
		return Sample{}, err
	}
	rate := Tenfold * best.Rate
	before, ended, begin := c.accepted.Load(), c.finished.Load(), Now(r)
	if err := c.flood(ctx, rate, Flood*r.For); err != nil {
		return Sample{}, err
	}
	s := begin.Done(int(c.finished.Load() - ended)).Sample()
	c.calls.Wait()
	offered := float64(c.offered.Load())
	s.Times = c.starts.SoFar()
	s.Values = map[string]float64{
		"best_per_s": best.Rate, "kept": s.Rate / best.Rate, "offered_per_s": offered / (Flood * r.For).Seconds(),
		"accepted_per_s":    float64(c.accepted.Load()-before) / (Flood * r.For).Seconds(),
		"kept_by_processor": (best.CPU + best.Database) / (s.CPU + s.Database),
		"refused":           1 - float64(c.accepted.Load()-before)/offered,
		"turned_away":       1 - float64(c.handed.Load())/offered,
	}
	if t := TimesOf(c.answers); t != nil {
		s.Values["answer_p50_ms"], s.Values["answer_p99_ms"] = t.P50, t.P99
	}
	return s, context.Cause(ctx)
}

// best keeps the number of unfinished executions in the system constant, and returns the rate at
// which executions end.
func (c *Crowd) best(ctx context.Context, r Request) (best Sample, _ error) {
	for _, depth := range depths {
		done, err := Loop(ctx, r, Submitters, &c.Ended, func(ctx context.Context, i int) error {
			return c.fill(ctx, i%Submitters, depth)
		})
		if err != nil {
			return best, err
		}
		if s := done.Sample(); s.Rate > best.Rate {
			best = s
		}
	}
	return best, nil
}

// fill submits one batch of executions for a producer, unless the system would then have more than
// depth unfinished executions.
func (c *Crowd) fill(ctx context.Context, producer int, depth int64) error {
	if c.begun.Add(firstRows)-c.finished.Load() > depth {
		c.begun.Add(-firstRows)
		pause(ctx, time.Millisecond)
		return nil
	}
	first := int(c.next.Add(firstRows)) - firstRows
	n, wait, err := c.Submit(ctx, producer, first, firstRows)
	c.accepted.Add(int64(n))
	c.begun.Add(int64(n - firstRows))
	pause(ctx, wait)
	return err
}

// flood makes the producers together submit at the given rate, for the given duration.
func (c *Crowd) flood(ctx context.Context, rate float64, long time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range Submitters {
		p := &producer{crowd: c, number: i, rate: rate / Submitters, failed: cancel}
		all.Go(func() { p.run(ctx, long) })
	}
	all.Wait()
	return context.Cause(ctx)
}

// producer is one producer of a crowd.
type producer struct {
	crowd  *Crowd
	number int
	rate   float64
	failed func(error)

	open  atomic.Int64 // calls without an answer
	quiet atomic.Int64 // until when the producer must wait, in nanoseconds since 1970
}

func (p *producer) run(ctx context.Context, long time.Duration) {
	pause(ctx, tick*time.Duration(p.number)/Submitters)
	begin, arrived := time.Now(), 0
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	for now := begin; now.Sub(begin) < long && ctx.Err() == nil; {
		select {
		case now = <-ticks.C:
		case <-ctx.Done():
			return
		}
		due := int(p.rate*min(now.Sub(begin), long).Seconds()) - arrived
		arrived += due
		p.crowd.offered.Add(int64(due))
		for rows := 0; due > 0; due -= rows {
			rows = min(due, BulkRows)
			if now.UnixNano() < p.quiet.Load() || p.open.Load() >= maxUnanswered {
				continue
			}
			p.open.Add(1)
			p.crowd.calls.Go(func() { p.hand(ctx, rows) })
		}
	}
}

// hand submits the given number of executions in one call. The end of the flood does not cancel the
// call.
func (p *producer) hand(ctx context.Context, rows int) {
	defer p.open.Add(-1)
	c := p.crowd
	c.handed.Add(int64(rows))
	first := int(c.next.Add(int64(rows))) - rows
	for i := first; i < first+rows; i++ {
		if i%Sampled == 0 {
			c.starts.Submit(i)
		}
	}
	begin := time.Now()
	n, wait, err := c.Submit(context.WithoutCancel(ctx), p.number, first, rows)
	c.accepted.Add(int64(n))
	switch {
	case err != nil:
		p.failed(fmt.Errorf("producer %d: %w", p.number, err))
	case n == rows:
		c.answered(time.Since(begin))
	default:
		c.starts.Forget(first, rows)
		wait += rand.N(wait/4 + 1) //nolint:gosec // clients add a random wait too, to spread their retries
		p.quiet.Store(time.Now().Add(wait).UnixNano())
	}
}

func (c *Crowd) answered(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, took)
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
