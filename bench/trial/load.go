package trial

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Payload is the input of an execution, of about 300 bytes as JSON.
type Payload struct {
	I    int    `json:"i"`
	Text string `json:"text"`
}

// Input returns the input of the i-th execution.
func Input(i int) Payload { return Payload{I: i, Text: text} }

var text = strings.Repeat("x", 275)

// The parameters of the load, the same for all contenders.
const (
	InFlight   = 1000 // the number of unfinished executions in the trials Drain and Flow
	Submitters = 64   // the number of concurrent callers that submit
	BulkRows   = 1000 // the number of rows in one call of the trial Bulk
	StepsEach  = 10   // the number of steps of one execution in the trial Steps
	Warmup     = 500 * time.Millisecond
)

// Done is an amount of work and the time that it took.
type Done struct {
	N       int64 // units of work, including those of the warm-up
	per     float64
	cpu, db float64
}

// Sample returns a Sample with the rate and the processor times.
func (d Done) Sample() Sample { return Sample{Rate: d.per, CPU: d.cpu, Database: d.db} }

// Mark has the time and the processor times at one moment, from which a rate and a cost are
// measured.
type Mark struct {
	at       time.Time
	cpu, db  time.Duration
	database int
}

// Now returns a Mark for this moment of a trial.
func Now(r Request) Mark {
	return Mark{at: time.Now(), cpu: cpuTime(), db: databaseCPU(r.Database), database: r.Database}
}

// Done returns the rate and the processor time of n units of work that were done between m and now.
func (m Mark) Done(n int) Done { return m.until(Now(Request{Database: m.database}), int64(n)) }

func (m Mark) until(end Mark, n int64) Done {
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(n) }
	return Done{N: n, per: float64(n) / end.at.Sub(m.at).Seconds(), cpu: each(end.cpu - m.cpu), db: each(end.db - m.db)}
}

// Meter counts units of work at the moment at which they are acknowledged.
type Meter struct {
	n atomic.Int64

	mu          sync.Mutex
	from, until reading
}

type reading struct {
	n int64
	Mark
}

// Add counts n units more.
func (m *Meter) Add(n int) { m.n.Add(int64(n)) }

func (m *Meter) read(to *reading, r Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*to = reading{m.n.Load(), Now(r)}
}

// Loop calls the function do from several concurrent callers, first during a warm-up and then for
// r.For. Each caller repeats its call as soon as the last one has returned; i numbers the calls
// from 0. The first error ends the loop. Loop returns the rate of m after the warm-up, and the
// number of all calls.
func Loop(ctx context.Context, r Request, callers int, m *Meter, do func(ctx context.Context, i int) error) (Done,
	error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(Warmup, func() { m.read(&m.from, r) }).Stop()
	over := make(chan struct{})
	defer time.AfterFunc(Warmup+r.For, func() { m.read(&m.until, r); close(over) }).Stop()
	end := time.Now().Add(Warmup + r.For)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil && time.Now().Before(end) {
				if err := do(ctx, int(next.Add(1)-1)); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return Done{N: next.Load()}, err
	}
	<-over // the last caller may end before the meter is read; so wait for the reading
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.until.n - m.from.n
	if n <= 0 {
		return Done{N: next.Load()}, fmt.Errorf("nothing was done within %s", r.For)
	}
	d := m.from.until(m.until.Mark, n)
	d.N = next.Load()
	return d, nil
}

// Pace calls the function do for the given duration, at equal intervals: rate is the number of
// calls in a second. It does not wait for a call to return before the next call. At the end it
// waits for all calls.
func Pace(ctx context.Context, rate int, long time.Duration, do func(ctx context.Context, i int) error) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	total := int(long.Seconds() * float64(rate))
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var wg sync.WaitGroup
	for i := range total {
		timer.Reset(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			if err := do(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return total, context.Cause(ctx)
}

// Bursts calls the function do from several concurrent callers, with at most BulkRows rows in a
// call, until n rows are written.
func Bursts(ctx context.Context, r Request, callers, n int, do func(ctx context.Context, first, rows int) error) (Done,
	error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begin := Now(r)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				first := int(next.Add(BulkRows)) - BulkRows
				if first >= n {
					return
				}
				if err := do(ctx, first, min(BulkRows, n-first)); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return begin.Done(n), context.Cause(ctx)
}
