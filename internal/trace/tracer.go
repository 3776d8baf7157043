package trace

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/belaydev/belay"
)

const (
	// maxQueue is the largest number of records that wait for the Tracer.
	maxQueue = 4096
	// flushFor is how long a Tracer that stops makes its last spans, and then how long it sends them.
	flushFor = 3 * time.Second
	// readFor is the timeout of the read of a history.
	readFor = 10 * time.Second
	// quiet is the shortest time between two messages about the same trouble.
	quiet = time.Minute
)

// Options of a Tracer.
type Options struct {
	// Version is the version of the program, and Store the kind of its database: sqlite or postgresql.
	Version, Store string
	// Log gets messages about trouble; nil means slog.Default().
	Log *slog.Logger
	// Getenv reads the variables that this package reads itself; nil means os.Getenv. The exporter and the span
	// processor of OpenTelemetry read theirs from the environment of the process.
	Getenv func(string) string
}

// History reads the history of executions. A belay.Backend implements History.
type History interface {
	Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error)
}

// Ended is an execution that has ended.
type Ended struct {
	ID         belay.ExecutionID
	Parent     belay.ExecutionID
	Workflow   string
	Version    string
	Queue      string
	State      belay.State
	Generation int
	Attempts   int
	CreatedAt  time.Time
	FinishedAt time.Time
	Class      belay.Class
	Message    string
	// Trace is the trace of the submitter.
	Trace belay.Trace
}

// commit is a commit of the store.
type commit struct {
	commands int
	at       time.Time
	took     time.Duration
}

// Counters count what happened to spans since the start of the program.
type Counters struct {
	// Sent spans were accepted by the collector, Failed spans were not.
	Sent, Failed int64
	// Dropped counts executions and commits whose spans were never made, because the queue was full or the history
	// could not be read.
	Dropped int64
}

// Tracer makes the traces of a server. Its methods are safe for concurrent use.
type Tracer struct {
	options Options
	log     *slog.Logger
	sampler sdk.Sampler
	queue   chan any // an Ended or a commit
	commits pace

	sent, failed, dropped atomic.Int64
	spoke                 atomic.Int64 // when the Tracer last logged a trouble, in Unix nanoseconds
}

// New returns the Tracer for which the environment asks, or nil if it asks for none. A Tracer has no goroutine and
// no connection before Run.
func New(o Options) *Tracer {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	ok, why := wanted(o.Getenv)
	if why != "" {
		o.Log.Warn("the server makes no traces, because it cannot make those that the environment asks for",
			"reason", why)
	}
	if !ok {
		return nil
	}
	return &Tracer{
		options: o, log: o.Log, sampler: samplerOf(o.Getenv, o.Log), queue: make(chan any, maxQueue),
	}
}

// Counters returns what happened to spans until now.
func (t *Tracer) Counters() Counters {
	return Counters{Sent: t.sent.Load(), Failed: t.failed.Load(), Dropped: t.dropped.Load()}
}

// RunTrace returns the trace of a run: the id of its span, in the trace of the execution. Commands, requests and
// children of the run get it.
func (t *Tracer) RunTrace(id belay.ExecutionID, token belay.Token, of belay.Trace) belay.Trace {
	parent, sampled := t.sample(id, of)
	return text(parent.WithSpanID(runSpan(id, token)).WithTraceFlags(trace.TraceFlags(0).WithSampled(sampled)))
}

// Trace returns the id of the trace of an execution, and reports whether the server records the trace. of is the trace
// of the submitter.
func (t *Tracer) Trace(id belay.ExecutionID, of belay.Trace) (trace string, sampled bool) {
	parent, sampled := t.sample(id, of)
	if !sampled {
		return "", false
	}
	return parent.TraceID().String(), true
}

// sample returns the span of the submitter, or only the id of the trace if there is none, and decides whether the
// trace is recorded.
func (t *Tracer) sample(id belay.ExecutionID, of belay.Trace) (trace.SpanContext, bool) {
	ctx := context.Background()
	parent, ok := remote(of)
	if ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	} else {
		parent = trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceOf(id)})
	}
	r := t.sampler.ShouldSample(sdk.SamplingParameters{ParentContext: ctx, TraceID: parent.TraceID()})
	return parent, r.Decision == sdk.RecordAndSample
}

// End makes the spans of an execution that has ended. It never blocks.
func (t *Tracer) End(e Ended) {
	if _, sampled := t.sample(e.ID, e.Trace); sampled {
		t.put(e)
	}
}

// Commit makes the span of a commit of the store that ends now. It never blocks.
func (t *Tracer) Commit(commands int, took time.Duration) {
	now := time.Now()
	if !t.commits.take(now) {
		return
	}
	id, _ := ids{}.NewIDs(context.Background())
	r := t.sampler.ShouldSample(sdk.SamplingParameters{ParentContext: context.Background(), TraceID: id})
	if r.Decision == sdk.RecordAndSample {
		t.put(commit{commands, now, took})
	}
}

func (t *Tracer) put(record any) {
	select {
	case t.queue <- record:
	default:
		t.dropped.Add(1)
		if t.speaks() {
			t.log.Warn("the server drops traces, because the collector or the store is too slow for all of them",
				t.counts()...)
		}
	}
}

// speaks reports whether the Tracer may log trouble now: it has not done so for some time.
func (t *Tracer) speaks() bool {
	now, last := time.Now().UnixNano(), t.spoke.Load()
	return now-last >= int64(quiet) && t.spoke.CompareAndSwap(last, now)
}

// counts returns the counters and further facts for a message.
func (t *Tracer) counts(facts ...any) []any {
	c := t.Counters()
	return append(facts, "sent", c.Sent, "failed", c.Failed, "dropped", c.Dropped)
}

// Run makes spans and sends them until ctx ends. It then sends the last spans, for some seconds at most.
func (t *Tracer) Run(ctx context.Context, h History) error {
	exporter, err := otlptracehttp.New(context.WithoutCancel(ctx)) // does not connect yet
	if err != nil {
		return fmt.Errorf("make the exporter of traces: %w", err)
	}
	provider := sdk.NewTracerProvider(
		// Run itself waits for the processor, so that only the queue of t drops records, and counts them
		sdk.WithBatcher(&counting{exporter, t}, sdk.WithBlocking()),
		sdk.WithIDGenerator(ids{}), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithResource(t.resource()),
	)
	m := &maker{t: t, tracer: provider.Tracer("github.com/belaydev/belay"), history: h}
	over := make(chan struct{})
	go func() {
		defer close(over)
		m.run(ctx)
	}()
	<-ctx.Done()
	select {
	case <-over:
	case <-time.After(flushFor):
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushFor)
	defer cancel()
	_ = provider.Shutdown(last) // the error is in the counters
	return nil
}

// resource describes the server. The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override it.
func (t *Tracer) resource() *resource.Resource {
	r, err := resource.New(context.Background(), resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "belay"), attribute.String("service.version", t.options.Version),
	), resource.WithFromEnv())
	if err != nil {
		t.log.Warn("a part of OTEL_RESOURCE_ATTRIBUTES cannot be read")
	}
	return r
}

// counting is an exporter that counts spans. Its errors end here, because the library would write them to the
// standard error of the process, one for each batch.
type counting struct {
	sdk.SpanExporter
	t *Tracer
}

// ExportSpans sends spans to the collector.
func (c *counting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := c.SpanExporter.ExportSpans(ctx, spans); err != nil {
		c.t.failed.Add(int64(len(spans)))
		if c.t.speaks() {
			c.t.log.Warn("the collector of traces does not take the spans of the server",
				c.t.counts("error", clip(err.Error()))...)
		}
		return nil
	}
	c.t.sent.Add(int64(len(spans)))
	return nil
}
