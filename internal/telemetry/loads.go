package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belaydev/belay/internal/engine"
)

var (
	queueDue     = desc("belay_queue_due", "Due executions of a queue that no worker has claimed.", "queue")
	queueRunning = desc("belay_queue_running", "Executions of a queue that a worker or a lock owns.", "queue")
	queueOldest  = desc("belay_queue_oldest_due_seconds",
		"How long the oldest due execution of a queue that workers may claim has waited for a worker.", "queue")
	gateHeld    = desc("belay_gate_held", "Places of a gate that are taken.", "gate")
	gateWaiting = desc("belay_gate_waiting", "Executions that wait at a gate.", "gate")
	gateLimit   = desc("belay_gate_limit", "Places of a gate that has a limit.", "gate")
	gateOpen    = desc("belay_gate_open", "1 if a gate lets executions through, 0 if not.", "gate")
	breaker     = desc("belay_breaker_state", "1 for the present state of the circuit breaker of a target.", "target",
		"state")
)

// breakerStates are the states of a circuit breaker; see belay.Breaker.
var breakerStates = []string{"closed", "open", "half_open"}

func describeLoads(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		queueDue, queueRunning, queueOldest, gateHeld, gateWaiting, gateLimit, gateOpen, breaker,
	} {
		ch <- d
	}
}

// queueLoad has the values of the metrics of one queue.
type queueLoad struct {
	due, running int64
	oldest       time.Duration
}

// collectLoads sends the metrics of queues and gates. The tally has a bounded number of names, and the same names on
// all servers of a store, so a maximum over the servers is right. A queue or a gate may itself be named other.
func collectLoads(ch chan<- prometheus.Metric, t *engine.Tally) {
	send := func(d *prometheus.Desc, n float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	queues := make(map[string]queueLoad)
	for _, q := range t.Queues {
		name := named(q.Queue)
		is := queues[name]
		is.due, is.running = is.due+q.Due, is.running+q.Owned
		queues[name] = is
	}
	for queue, wait := range t.Waits {
		is, there := queues[queue]
		if !there {
			queue = other
			is = queues[queue]
		}
		is.oldest = max(is.oldest, wait)
		queues[queue] = is
	}
	for name, q := range queues {
		send(queueDue, float64(q.due), name)
		send(queueRunning, float64(q.running), name)
		send(queueOldest, q.oldest.Seconds(), name)
	}
	truth := map[bool]float64{true: 1}
	for _, g := range t.Gates { // the name of a gate begins with its kind, so no gate is named other
		name := named(string(g.Gate))
		send(gateHeld, float64(g.Held), name)
		send(gateWaiting, float64(g.Waiting), name)
		if g.Max > 0 {
			send(gateLimit, float64(g.Max), name)
		}
		if g.Known {
			send(gateOpen, truth[g.Open], name)
		}
	}
	for _, g := range t.Targets {
		for _, s := range breakerStates {
			if g.Breaker != "" {
				send(breaker, truth[g.Breaker == s], g.Gate.Name(), s)
			}
		}
	}
}

// named returns the label for a name; the empty name stands for all names without a label of their own.
func named(name string) string {
	if name == "" {
		return other
	}
	return name
}
