package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
)

// Source counts what a store holds; an engine is one.
type Source interface {
	Tally(ctx context.Context) (engine.Tally, error)
}

// Living tells whether an engine does its work.
type Living interface {
	Vitals() engine.Vitals
}

const (
	// fresh is how old a count may be, at least.
	fresh = 5 * time.Second
	// share bounds the time spent on counting: no more than one part in so
	// many, however much there is to count.
	share = 20
	// again is how long a count that failed may be all that is known.
	again = 30 * time.Second
	// patience is how long a count may take.
	patience = 10 * time.Second
)

// Live adds to the metrics whether the engine does its work.
func (m *Metrics) Live(e Living) { m.registry.MustRegister(&vitals{e}) }

// vitals are the metrics that an engine tells without asking its store.
type vitals struct{ engine Living }

var (
	still = desc("belay_engine_still_seconds", "For how long the engine has not done what it should have, by what.",
		"what")
	writable = desc("belay_store_writable", "1 if the store took the newest write, 0 if not.")
	locked   = desc("belay_store_locked_seconds", "For how long somebody else has locked a table that writes wait for.")
	damaged  = desc("belay_store_damaged", "1 if what was read of the store was damaged.")
	ahead    = desc("belay_store_clock_ahead_seconds",
		"By how much the store's time is ahead of the clock that it follows.")
	leapt = prometheus.NewDesc("belay_store_clock_leapt_seconds_total", "By how much that clock was set forwards.",
		nil, nil)
	epoch = desc("belay_store_epoch_timestamp_seconds",
		"About when the epoch began; 0 for the first one. Writes from before may be gone.")
)

// Describe implements prometheus.Collector.
func (v *vitals) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{still, writable, locked, damaged, ahead, leapt, epoch} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (v *vitals) Collect(ch chan<- prometheus.Metric) {
	now := v.engine.Vitals()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, n float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, n, labels...)
	}
	truth := map[bool]float64{true: 1}
	send(still, prometheus.GaugeValue, now.Sweep.Seconds(), "sweep")
	send(still, prometheus.GaugeValue, now.Mark.Seconds(), "mark")
	send(still, prometheus.GaugeValue, now.Commit.Seconds(), "commit")
	send(writable, prometheus.GaugeValue, truth[now.Refused == nil])
	send(locked, prometheus.GaugeValue, now.LockedFor.Seconds())
	send(damaged, prometheus.GaugeValue, truth[now.Damage != nil])
	send(ahead, prometheus.GaugeValue, now.Ahead.Seconds())
	send(leapt, prometheus.CounterValue, now.Leapt.Seconds())
	began := 0.0
	if at := now.EpochBegan(); !at.IsZero() {
		began = float64(at.Unix())
	}
	send(epoch, prometheus.GaugeValue, began)
}

// Watch adds what the source holds to the metrics. It is asked when somebody
// asks for the metrics, and not too often.
func (m *Metrics) Watch(s Source) { m.registry.MustRegister(&gauges{source: s, now: time.Now}) }

// gauges are the metrics that a store is asked for.
type gauges struct {
	source Source
	now    func() time.Time

	mu    sync.Mutex
	tally engine.Tally
	err   error
	until time.Time // the tally is good until then
}

var (
	executions  = desc("belay_executions", "Executions that have not ended, by state.", "state")
	workers     = desc("belay_workers", "Sessions of workers that live, by state.", "state")
	deadLetters = desc("belay_dead_letters", "Dead letters that nobody has resolved, by why the execution gave up.",
		"reason")
	overdue = desc("belay_executions_overdue",
		"Executions whose time is over, or whose owner is gone, and that nobody has seen to, by state.", "state")
	readable = desc("belay_store_readable", "1 if the store could be counted, 0 if not.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{executions, workers, deadLetters, overdue, readable} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. While the store cannot be read what
// it holds is left out rather than told wrong.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	t, err := g.count()
	send := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	if err != nil {
		send(readable, 0)
		return
	}
	send(readable, 1)
	for reason, n := range byReason(t.DeadLetters) {
		send(deadLetters, n, reason)
	}
	for s := belay.Pending; !s.Terminal(); s++ {
		send(executions, t.Executions[s], s.String())
		send(overdue, t.Overdue[s], s.String())
	}
	for _, s := range []belay.WorkerState{belay.WorkerOpen, belay.WorkerDraining} {
		send(workers, t.Workers[s], s.String())
	}
}

// byReason has every reason there is for giving up, and what a newer server
// beside this one may call otherwise.
func byReason(letters map[string]int64) map[string]int64 {
	all := map[string]int64{"max_retries": 0, "permanent_error": 0, "timeout": 0, "lost": 0}
	for reason, n := range letters {
		if _, known := all[reason]; !known {
			reason = other
		}
		all[reason] += n
	}
	return all
}

func (g *gauges) count() (engine.Tally, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	began := g.now()
	if began.Before(g.until) {
		return g.tally, g.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	g.tally, g.err = g.source.Tally(ctx)
	ended := g.now()
	good := max(fresh, share*ended.Sub(began))
	if g.err != nil {
		good = min(good, again)
	}
	g.until = ended.Add(good)
	return g.tally, g.err
}
