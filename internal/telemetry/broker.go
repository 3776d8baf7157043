package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belaydev/belay/internal/broker"
)

// Broker reports on the connections to RabbitMQ. A dispatch.Post implements Broker.
type Broker interface {
	State() broker.State
	Counters() broker.Counters
	// Depth returns the number of dead letters that no server has received yet.
	Depth(ctx context.Context) (int, error)
}

// Dispatch adds the metrics about dispatch through RabbitMQ.
func (m *Metrics) Dispatch(b Broker) { m.rabbit().of = b }

// Link adds the state of another connection to RabbitMQ. The metric is missing until the server has tried to connect.
func (m *Metrics) Link(connection string, state func() broker.Link) {
	p := m.rabbit()
	p.links = append(p.links, link{connection, state})
}

// rabbit returns the metrics about RabbitMQ. It is called before the server listens.
func (m *Metrics) rabbit() *posts {
	if m.posts == nil {
		m.posts = new(posts)
		m.registry.MustRegister(m.posts)
	}
	return m.posts
}

// posts are the metrics of a Broker, which may be nil, and of further connections.
type posts struct {
	of    Broker
	links []link
}

type link struct {
	name  string
	state func() broker.Link
}

// depthPatience is how long RabbitMQ may take to tell the depth of a queue.
const depthPatience = 2 * time.Second

var (
	connected = desc("belay_broker_connected", "1 if the connection to RabbitMQ is open and set up, 0 if not.",
		"connection")
	blocked = desc("belay_broker_blocked", "1 if RabbitMQ has an alarm and accepts no messages, 0 if not.")
	letters = desc("belay_broker_dead_letter_depth",
		"How many messages that came back no server has received yet.")
	messages = desc("belay_broker_messages_total", "Messages about executions, by what happened to them.", "event")
	dropped  = desc("belay_broker_dropped_total", "Deliveries that are no messages of Belay, by the reason.", "reason")
)

// Describe implements prometheus.Collector.
func (p *posts) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connected, blocked, letters, messages, dropped} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. The depth is missing while RabbitMQ does not tell it.
func (p *posts) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, n float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, n, labels...)
	}
	truth := map[bool]float64{true: 1}
	for _, l := range p.links {
		if is := l.state(); is.Connected || is.Err != nil {
			send(connected, prometheus.GaugeValue, truth[is.Connected], l.name)
		}
	}
	if p.of == nil {
		return
	}
	state, c := p.of.State(), p.of.Counters()
	send(connected, prometheus.GaugeValue, truth[state.Publish.Connected], "publish")
	send(connected, prometheus.GaugeValue, truth[state.Consume.Connected], "consume")
	send(blocked, prometheus.GaugeValue, truth[state.Publish.Blocked != ""])
	for event, n := range map[string]int64{
		"published": c.Published, "confirmed": c.Confirmed, "refused": c.Refused, "returned": c.Returned,
		"unconfirmed": c.Unconfirmed, "received": c.Received, "handled": c.Handled, "given_back": c.GivenBack,
	} {
		send(messages, prometheus.CounterValue, float64(n), event)
	}
	for _, r := range broker.Reasons() {
		send(dropped, prometheus.CounterValue, float64(c.Dropped[r]), string(r))
	}
	if !state.Consume.Connected {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), depthPatience)
	defer cancel()
	if n, err := p.of.Depth(ctx); err == nil {
		send(letters, prometheus.GaugeValue, float64(n))
	}
}
