package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
)

// Source counts the contents of a store. An engine implements Source.
type Source interface {
	Tally(ctx context.Context) (engine.Tally, error)
}

// Living reports the health of an engine. An engine implements Living.
type Living interface {
	Vitals() engine.Vitals
}

const (
	// fresh is the shortest time for which the metrics use the result of a count before they count
	// the contents of the store again.
	fresh = 5 * time.Second
	// share limits the load of counting: the metrics use the result of a count for at least share
	// times as long as the count took, so that counting takes at most 1/share of the time.
	share = 20
	// again is the longest time after a failed count before the metrics count the contents of the
	// store again.
	again = 30 * time.Second
	// patience is the timeout of a count.
	patience = 10 * time.Second
)

// Live adds the metrics about the health of an engine.
func (m *Metrics) Live(e Living) { m.registry.MustRegister(&vitals{e}) }

// vitals are the metrics that an engine computes without reading its store.
type vitals struct{ engine Living }

var (
	still = desc("belay_engine_still_seconds", "How long a periodic task of the engine has been overdue, by task.",
		"what")
	writable = desc("belay_store_writable", "1 if the newest write to the store succeeded, 0 if not.")
	locked   = desc("belay_store_locked_seconds",
		"How long another client of the database has locked a table that writes wait for.")
	damaged = desc("belay_store_damaged", "1 if damaged data was read from the store, 0 if not.")
	ahead   = desc("belay_store_clock_ahead_seconds",
		"By how many seconds the store's time is ahead of the clock that it follows.")
	leapt = prometheus.NewDesc("belay_store_clock_leapt_seconds_total",
		"By how many seconds the clock that the store follows was set forward.", nil, nil)
	epoch = desc("belay_store_epoch_timestamp_seconds",
		"When the present epoch began, approximately; 0 for the first epoch. Earlier writes may be lost.")
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

// Watch adds the metrics about the contents of a store. A scrape counts these contents again only
// if the last count is too old; see fresh, share and again.
func (m *Metrics) Watch(s Source) { m.registry.MustRegister(&gauges{source: s, now: time.Now}) }

// gauges are the metrics about the contents of a store.
type gauges struct {
	source Source
	now    func() time.Time

	mu    sync.Mutex
	tally engine.Tally
	err   error
	until time.Time // the time until which tally and err are used
}

var (
	executions = desc("belay_executions", "Executions that have not ended, by state.", "state")
	oldest     = desc("belay_executions_oldest_due_seconds",
		"How long the oldest due execution that workers may claim has waited for a worker; 0 if there is none.")
	workers     = desc("belay_workers", "Sessions of workers that have not ended, by state.", "state")
	deadLetters = desc("belay_dead_letters", "Dead letters that are not resolved, by the reason of the failure.",
		"reason")
	overdue = desc("belay_executions_overdue",
		"Executions whose deadline or lease has passed and that the engine has not handled yet, by state.", "state")
	readable = desc("belay_store_readable", "1 if the store could be counted, 0 if not.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{executions, oldest, workers, deadLetters, overdue, readable} {
		ch <- d
	}
	describeLoads(ch)
}

// Collect implements prometheus.Collector. If the store cannot be read, Collect leaves out the
// gauges of its contents, because their values would be wrong.
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
	ch <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, t.OldestDue.Seconds())
	for _, s := range []belay.WorkerState{
		belay.WorkerOpen, belay.WorkerCordoned, belay.WorkerUnhealthy, belay.WorkerDraining,
	} {
		send(workers, t.Workers[s], s.String())
	}
	collectLoads(ch, &t)
}

// byReason returns the number of dead letters by reason. Reasons that this version does not know,
// because a newer server on the same store has written them, are counted as other.
func byReason(letters map[string]int64) map[string]int64 {
	all := make(map[string]int64, len(belay.DeadLetterReasons)+1)
	for _, reason := range belay.DeadLetterReasons {
		all[reason] = 0
	}
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
