package telemetry

import (
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
)

// MaxWorkflows is the greatest number of workflow names that are values of a label.
const MaxWorkflows = 100

// Metrics are the metrics of one engine.
type Metrics struct {
	registry *prometheus.Registry

	submitted, finished, runs, timeouts, refused, slots, deliveries, cost, tokens, money *prometheus.CounterVec

	started, claim, commit, batch, detection prometheus.Histogram

	lasted, ran *prometheus.HistogramVec

	requests *prometheus.CounterVec
	answered *prometheus.HistogramVec

	mu         sync.Mutex
	workflows  map[string]string // the label of each workflow name
	counters   map[series]prometheus.Counter
	histograms map[series]prometheus.Observer
	posts      *posts // nil without a RabbitMQ
	// traceOf returns the id of the trace of an execution; it is nil if the server makes no traces.
	traceOf func(belay.ExecutionID, belay.Trace) (id string, sampled bool)
}

// series is the key of a counter or histogram: its vector and its label values. Finding it in a map takes a tenth of
// the time that finding it in the vector takes.
type series struct {
	of   any
	a, b string
}

var (
	// short are the buckets for times that are about as long as a disk write.
	short = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	// queued are the buckets for the time that executions wait for a worker.
	queued = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600}
	// lasting are the buckets for the durations of executions and runs.
	lasting = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400}
	// detected are the buckets for the time until the engine detects a lost worker. They have an
	// edge at each usual TTL, and for the TTLs of 15 and 30 seconds another edge one second later,
	// because detection is guaranteed within the TTL and one second.
	detected = []float64{.5, 1, 2, 3, 5, 10, 15, 16, 20, 30, 31, 45, 60, 120, 300}
	sizes    = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
)

// New makes metrics. version and commit describe the build of the program.
func New(version, commit string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), workflows: make(map[string]string),
		counters:   make(map[series]prometheus.Counter),
		histograms: make(map[series]prometheus.Observer),
		submitted:  counter("belay_executions_submitted_total", "Executions accepted.", "workflow", "trigger"),
		finished: counter("belay_executions_finished_total", "Executions that ended, by final state.", "workflow",
			"state"),
		runs: counter("belay_runs_finished_total", "Attempts that ended, by outcome.", "outcome"),
		timeouts: counter("belay_execution_timeouts_total", "Executions and attempts that timed out, by timeout.",
			"kind"),
		refused: counter("belay_stale_writes_refused_total",
			"Writes refused because their sender does not own the execution any more.", "op"),
		slots: counter("belay_schedule_slots_total", "Slots of schedules, by what happened to them.", "outcome"),
		deliveries: counter("belay_webhook_deliveries_total", "Requests to webhooks, by the webhook (none if there "+
			"is no such webhook) and by what happened to them.", "webhook", "outcome"),
		cost: counter("belay_cost_tokens_total", "Cost in tokens that runs reported, without that of their children.",
			"workflow"),
		tokens: counter("belay_usage_tokens_total",
			"Tokens of language models that runs reported: input (all), output, cache_read and "+
				"cache_write (parts of input).", "workflow", "direction"),
		money: counter("belay_usage_usd_total", "US dollars that language models cost, as runs reported them.",
			"workflow"),
		lasted: histograms("belay_execution_seconds",
			"Time from the submission of executions to their end, without those that were reopened.",
			"workflow", "state"),
		ran: histograms("belay_run_seconds", "Duration of attempts that ended.", "workflow", "outcome"),
		started: histogram("belay_schedule_to_start_seconds",
			"Time from when an execution was due until its run began.", queued),
		claim: histogram("belay_claim_seconds",
			"Duration of claims that won an execution, without the wait for work.", short),
		commit: histogram("belay_commit_seconds", "Time that the store took to commit a batch.", short),
		batch:  histogram("belay_commit_batch_size", "Commands committed in one batch.", sizes),
		detection: histogram("belay_detection_seconds",
			"Time from the last heartbeat of a lost worker until its executions were taken back.", detected),
	}
	m.requests = counter("belay_http_requests_total", "HTTP requests, by the path of their route and the status of "+
		"their answer.", "method", "route", "code")
	m.answered = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "belay_http_request_seconds", Buckets: short,
		Help: "How long HTTP requests took, without those that may wait or stream.",
	}, []string{"method", "route"})
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "belay_build_info", Help: "Always 1; its labels describe the program.",
	}, []string{"version", "commit", "go_version"})
	build.WithLabelValues(version, commit, runtime.Version()).Set(1)
	m.registry.MustRegister(
		m.submitted, m.finished, m.runs, m.timeouts, m.refused, m.slots, m.deliveries, m.cost,
		m.tokens, m.money, m.lasted, m.ran,
		m.started, m.claim, m.commit,
		m.batch, m.detection, build, m.requests, m.answered,
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

func histograms(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: lasting}, labels)
}

// begin creates the counters whose labels are known from the start, so that a scraper sees them
// grow from 0 to 1.
func (m *Metrics) begin() {
	m.deliveries.WithLabelValues("none", "refused")
	for o := belay.OutcomeSucceeded; o <= belay.OutcomeCancelled; o++ {
		m.runs.WithLabelValues(o.String())
	}
	for _, kind := range []string{"total", "run", "idle", "start", "schedule"} {
		m.timeouts.WithLabelValues(kind)
	}
	for _, op := range []string{"checkpoint", "settle", "append", "submit_child", "heartbeat", "renew"} {
		m.refused.WithLabelValues(op)
	}
	for _, o := range []belay.ScheduleOutcome{
		belay.SlotStarted, belay.SlotSkipped, belay.SlotMissed, belay.SlotFailed, belay.SlotDone,
	} {
		m.slots.WithLabelValues(string(o))
	}
}

// Handler answers with all metrics, in the format of OpenMetrics if the request accepts it. Only that format has the
// exemplars.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Request counts an HTTP request and, unless took is 0, records its time. It is meant for
// httpapi.Options.Requests. The route must be one of the server's routes, so that the label has few
// values.
func (m *Metrics) Request(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	if took > 0 {
		m.answered.WithLabelValues(method, route).Observe(took.Seconds())
	}
}

// Delivery counts a request to a webhook. It is meant for httpapi.Options.Deliveries.
func (m *Metrics) Delivery(webhook, outcome string) {
	m.deliveries.WithLabelValues(webhook, outcome).Inc()
}

// Observe counts the events of a batch. It is meant for engine.Options.Observe.
func (m *Metrics) Observe(o *engine.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range o.Submitted {
		s := &o.Submitted[i]
		m.inc(m.submitted, m.workflow(s.Workflow), trigger(s.Trigger))
	}
	for i := range o.Finished {
		f := &o.Finished[i]
		label, state := m.workflow(f.Workflow), f.State.String()
		m.inc(m.finished, label, state)
		if f.Took >= 0 {
			m.observe(m.histogram(m.lasted, label, state), f.Took, &f.Subject)
		}
	}
	for i := range o.Runs {
		r := &o.Runs[i]
		m.inc(m.runs, r.Outcome.String(), "")
		if r.Took >= 0 {
			m.observe(m.histogram(m.ran, m.workflow(r.Workflow), r.Outcome.String()), r.Took, &r.Subject)
		}
	}
	for _, c := range o.Costs {
		whole, rest := c.Cost.Tokens()
		m.use(m.workflow(c.Workflow), c.Usage)
		m.add(m.cost, m.workflow(c.Workflow), "", float64(whole)+float64(rest)/float64(belay.CostOf(1)))
	}
	for _, kind := range o.Timeouts {
		m.inc(m.timeouts, kind, "")
	}
	for _, op := range o.Refused {
		m.inc(m.refused, op, "")
	}
	for i := range o.Slots {
		m.slots.WithLabelValues(string(o.Slots[i].Outcome)).Add(float64(max(1, o.Slots[i].Count)))
	}
	for i := range o.Started {
		m.observe(m.started, o.Started[i].Wait, &o.Started[i].Subject)
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

// use counts usage. A correction that lowers a number does not change its counter.
func (m *Metrics) use(workflow string, u belay.ModelUsage) {
	for _, x := range []struct {
		direction string
		tokens    int64
	}{
		{"input", u.InputTokens}, {"output", u.OutputTokens}, {"cache_read", u.CacheReadTokens},
		{"cache_write", u.CacheWriteTokens},
	} {
		if x.tokens > 0 {
			m.add(m.tokens, workflow, x.direction, float64(x.tokens))
		}
	}
	if u.Money > 0 {
		m.add(m.money, workflow, "", float64(u.Money)/1e9)
	}
}

func (m *Metrics) inc(of *prometheus.CounterVec, a, b string) { m.add(of, a, b, 1) }

func (m *Metrics) add(of *prometheus.CounterVec, a, b string, n float64) {
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
	c.Add(n)
}

func (m *Metrics) histogram(of *prometheus.HistogramVec, a, b string) prometheus.Observer {
	key := series{of, a, b}
	h := m.histograms[key]
	if h == nil {
		h = of.WithLabelValues(a, b)
		m.histograms[key] = h
	}
	return h
}

// observe records a duration. If the server makes a trace of the execution, the duration leads to it.
func (m *Metrics) observe(h prometheus.Observer, d time.Duration, of *engine.Subject) {
	if m.traceOf != nil {
		if id, sampled := m.traceOf(of.ID, of.Trace); sampled {
			if x, ok := h.(prometheus.ExemplarObserver); ok { // all histograms are
				x.ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": id})
				return
			}
		}
	}
	h.Observe(d.Seconds())
}

// other is the value of a label for everything that has no value of its own.
const other = "other"

// workflow returns the label for the name of a workflow: the name itself, or other.
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
		belay.TriggerQueue, belay.TriggerSwap, belay.TriggerNotification:
		return string(t)
	}
	return other
}
