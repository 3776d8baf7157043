package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/belaydev/belay/internal/trace"
)

// Traces adds the metrics about traces, and exemplars with the ids of traces to the histograms of executions and runs.
// Only a server that makes traces has them.
func (m *Metrics) Traces(t *trace.Tracer) {
	m.registry.MustRegister(&traces{t})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.traceOf = t.Trace
}

// traces are the metrics of a Tracer.
type traces struct{ of *trace.Tracer }

var (
	spans = desc("belay_trace_spans_total", "Spans sent to the collector of traces, by its answer.", "outcome")
	lost  = desc("belay_trace_dropped_total", "Executions and commits whose spans the server has dropped.")
)

// Describe implements prometheus.Collector.
func (t *traces) Describe(ch chan<- *prometheus.Desc) {
	ch <- spans
	ch <- lost
}

// Collect implements prometheus.Collector.
func (t *traces) Collect(ch chan<- prometheus.Metric) {
	c := t.of.Counters()
	for outcome, n := range map[string]int64{"sent": c.Sent, "failed": c.Failed} {
		ch <- prometheus.MustNewConstMetric(spans, prometheus.CounterValue, float64(n), outcome)
	}
	ch <- prometheus.MustNewConstMetric(lost, prometheus.CounterValue, float64(c.Dropped))
}
