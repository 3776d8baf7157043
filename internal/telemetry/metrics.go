package telemetry

import (
	"net/http"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
)

// MaxWorkflows is how many names of workflows have metrics of their own.
const MaxWorkflows = 100

// Metrics are those of one engine.
type Metrics struct {
	registry *prometheus.Registry

	submitted, finished, runs, timeouts, refused *prometheus.CounterVec

	started, claim, commit, batch, detection prometheus.Histogram

	mu        sync.Mutex
	workflows map[string]string // each to its label
	counters  map[series]prometheus.Counter
}

// series is a counter by its labels. Looking it up here costs a tenth of what it
// costs in its vector.
type series struct {
	of   *prometheus.CounterVec
	a, b string
}

var (
	// short buckets are for what takes as long as a disk does.
	short = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	// queued buckets are for what waits for a worker.
	queued = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}
	// detected buckets have an edge at the usual TTLs, and one a second after
	// each, which is the bound.
	detected = []float64{.5, 1, 2, 3, 5, 10, 15, 16, 20, 30, 31, 45, 60, 120, 300}
	sizes    = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
)

// New makes the metrics of a program of this version.
func New(version, commit string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), workflows: make(map[string]string),
		counters:  make(map[series]prometheus.Counter),
		submitted: counter("belay_executions_submitted_total", "Executions accepted.", "workflow", "trigger"),
		finished:  counter("belay_executions_finished_total", "Executions that ended, by how.", "workflow", "state"),
		runs:      counter("belay_runs_finished_total", "Attempts that ended, by how.", "outcome"),
		timeouts: counter("belay_execution_timeouts_total", "Executions and attempts that time ended, by which time.",
			"kind"),
		refused: counter("belay_stale_writes_refused_total",
			"Writes refused because their sender does not own the execution any more.", "op"),
		started: histogram("belay_schedule_to_start_seconds", "From when an execution was due until its run began.",
			queued),
		claim: histogram("belay_claim_seconds",
			"How long a claim that won something took, without the wait for work.", short),
		commit: histogram("belay_commit_seconds", "How long the store took to commit a batch.", short),
		batch:  histogram("belay_commit_batch_size", "Commands committed together.", sizes),
		detection: histogram("belay_detection_seconds",
			"From the last heartbeat of a worker that was lost until it was given up.", detected),
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "belay_build_info", Help: "1, with what this program is.",
	}, []string{"version", "commit", "go_version"})
	build.WithLabelValues(version, commit, runtime.Version()).Set(1)
	m.registry.MustRegister(
		m.submitted, m.finished, m.runs, m.timeouts, m.refused, m.started, m.claim, m.commit, m.batch, m.detection,
		build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.begin()
	return m
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// begin shows the counters whose labels are known from the start, so that their
// first step is seen as one.
func (m *Metrics) begin() {
	for o := belay.OutcomeSucceeded; o <= belay.OutcomeCancelled; o++ {
		m.runs.WithLabelValues(o.String())
	}
	for _, kind := range []string{"total", "run", "idle", "start", "schedule"} {
		m.timeouts.WithLabelValues(kind)
	}
	for _, op := range []string{"checkpoint", "settle", "append", "submit_child", "heartbeat", "renew"} {
		m.refused.WithLabelValues(op)
	}
}

// Handler answers with all metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Observe counts what a batch did: for engine.Options.Observe.
func (m *Metrics) Observe(o *engine.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range o.Submitted {
		s := &o.Submitted[i]
		m.inc(m.submitted, m.workflow(s.Workflow), trigger(s.Trigger))
	}
	for i := range o.Finished {
		f := &o.Finished[i]
		m.inc(m.finished, m.workflow(f.Workflow), f.State.String())
	}
	for _, outcome := range o.Runs {
		m.inc(m.runs, outcome.String(), "")
	}
	for _, kind := range o.Timeouts {
		m.inc(m.timeouts, kind, "")
	}
	for _, op := range o.Refused {
		m.inc(m.refused, op, "")
	}
	for _, d := range o.Started {
		m.started.Observe(d.Seconds())
	}
	for _, d := range o.Claims {
		m.claim.Observe(d.Seconds())
	}
	for _, d := range o.Detected {
		m.detection.Observe(d.Seconds())
	}
	if o.Wrote {
		m.commit.Observe(o.Took.Seconds())
		m.batch.Observe(float64(o.Commands))
	}
}

func (m *Metrics) inc(of *prometheus.CounterVec, a, b string) {
	key := series{of, a, b}
	c := m.counters[key]
	if c == nil {
		labels := []string{a, b}
		if b == "" {
			labels = labels[:1]
		}
		c = of.WithLabelValues(labels...)
		m.counters[key] = c
	}
	c.Inc()
}

// other is the label of what has none of its own.
const other = "other"

// workflow is the label of a workflow.
func (m *Metrics) workflow(name string) string {
	if label, ok := m.workflows[name]; ok {
		return label
	}
	if len(m.workflows) >= MaxWorkflows {
		return other
	}
	m.workflows[name] = name
	return name
}

func trigger(t belay.Trigger) string {
	switch t {
	case belay.TriggerManual, belay.TriggerParent, belay.TriggerCron, belay.TriggerEvent, belay.TriggerWebhook,
		belay.TriggerQueue:
		return string(t)
	}
	return other
}
