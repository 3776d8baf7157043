package trace

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/belaydev/belay"
)

const (
	// maxEvents is the largest number of events of a history that become spans, and page is how many of them one
	// call reads.
	maxEvents, page = 5000, 500
	// maxText is the largest size of a text in a span, in bytes.
	maxText = 256
)

// maker makes spans, in one goroutine.
type maker struct {
	t       *Tracer
	tracer  trace.Tracer
	history History
}

// run makes the spans of records until ctx ends, and then those of the records that are left.
func (m *maker) run(ctx context.Context) {
	for {
		select {
		case r := <-m.t.queue:
			m.record(context.WithoutCancel(ctx), r)
		case <-ctx.Done():
			m.drain(context.WithoutCancel(ctx))
			return
		}
	}
}

// drain makes the spans of the records in the queue, for flushFor at most.
func (m *maker) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushFor)
	defer cancel()
	for ctx.Err() == nil {
		select {
		case r := <-m.t.queue:
			m.record(ctx, r)
		default:
			return
		}
	}
}

func (m *maker) record(ctx context.Context, r any) {
	switch r := r.(type) {
	case commit:
		m.commit(r)
	case Ended:
		m.execution(ctx, r)
	}
}

func (m *maker) commit(c commit) {
	_, s := m.tracer.Start(context.Background(), "store.commit", trace.WithTimestamp(c.at.Add(-c.took)),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("db.system.name", m.t.options.Store), attribute.String("db.operation.name", "COMMIT"),
			attribute.Int("belay.commands", c.commands),
		))
	s.End(trace.WithTimestamp(c.at))
}

// execution makes the spans of an execution. They have no inputs, outputs, labels or data of signals.
func (m *maker) execution(ctx context.Context, e Ended) {
	events, whole, err := m.read(ctx, e)
	if err != nil {
		m.t.dropped.Add(1)
		if m.t.speaks() {
			m.t.log.Warn("the server cannot read the history of an execution for its trace",
				m.t.counts("execution", e.ID.String(), "error", clip(err.Error()))...)
		}
		return
	}
	began := e.CreatedAt
	if e.Generation > 1 && len(events) > 0 {
		began = events[0].At
	}
	parent, _ := m.t.sample(e.ID, e.Trace)
	at := context.WithValue(context.Background(), idsKey{}, span{parent.TraceID(), executionSpan(e.ID, e.Generation)})
	if parent.SpanID().IsValid() {
		at = trace.ContextWithRemoteSpanContext(at, parent)
	}
	at, s := m.tracer.Start(at, "execution "+clip(e.Workflow), trace.WithTimestamp(began),
		trace.WithAttributes(executionFacts(e)...), trace.WithLinks(e.earlier(parent)...))
	if !whole {
		s.SetAttributes(attribute.Bool("belay.truncated", true))
	}
	if e.State == belay.Failed {
		s.SetAttributes(attribute.String("error.type", e.Class.String()))
		s.SetStatus(codes.Error, clip(e.Message))
	}
	h := &life{
		m: m, e: e, ctx: at, began: began, first: began, branches: branches{}, runs: make(map[belay.Token]*attempt),
	}
	for i := range events {
		h.event(&events[i])
	}
	h.close()
	s.End(trace.WithTimestamp(e.FinishedAt))
}

// earlier links a generation of an execution to the generation before it.
func (e *Ended) earlier(parent trace.SpanContext) []trace.Link {
	if e.Generation <= 1 {
		return nil
	}
	return []trace.Link{{SpanContext: parent.WithSpanID(executionSpan(e.ID, e.Generation-1)).WithRemote(false)}}
}

func executionFacts(e Ended) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("belay.execution.id", e.ID.String()), attribute.String("belay.workflow", clip(e.Workflow)),
		attribute.String("belay.queue", clip(e.Queue)), attribute.String("belay.state", e.State.String()),
		attribute.Int("belay.generation", e.Generation), attribute.Int("belay.attempts", e.Attempts),
	}
	if e.Version != "" {
		all = append(all, attribute.String("belay.workflow.version", clip(e.Version)))
	}
	if !e.Parent.IsZero() {
		all = append(all, attribute.String("belay.parent.id", e.Parent.String()))
	}
	return all
}

// read returns the events of the generation of an execution that has ended; whole is false if there are
// more of them than become spans. In a later generation the first event has reopened the execution.
func (m *maker) read(ctx context.Context, e Ended) (events []belay.Event, whole bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	ended, generation := false, 1
	for after, n := int64(0), 0; n < maxEvents; n += page {
		part, err := m.history.Events(ctx, belay.EventQuery{Execution: e.ID, After: after, Limit: page})
		if err != nil {
			return nil, false, err
		}
		for _, ev := range part {
			if after = ev.Seq; generation > e.Generation {
				return events, true, nil
			}
			if ended && (ev.Kind == string(belay.ActionRetry) || ev.Kind == string(belay.ActionRequeue)) {
				if generation++; generation > e.Generation {
					return events, true, nil
				}
				ended, events = false, nil
			}
			ended = ended || ev.Final
			events = append(events, ev)
		}
		if len(part) < page {
			return events, true, nil
		}
	}
	return events, false, nil
}

// clip makes a text fit into a span. Collectors refuse all spans of a request if a text is not valid UTF-8.
func clip(s string) string {
	if len(s) > maxText {
		s = s[:maxText-3] + "..."
	}
	return strings.ToValidUTF8(s, "")
}

// life makes the spans within an execution from its events.
type life struct {
	m     *maker
	e     Ended
	ctx   context.Context // has the span of the execution
	began time.Time
	// runs are the runs by their tokens, and last is the newest of them.
	runs map[belay.Token]*attempt
	last *attempt
	// first is the begin of the first run: a wait may have begun before the run that has saved its end.
	first time.Time
	// suspended is when the newest run was suspended; zero if a run has started since.
	suspended time.Time
	branches  branches
}

// attempt is a run and its span.
type attempt struct {
	ctx   context.Context
	span  trace.Span
	began time.Time
	over  bool
}

func (h *life) event(ev *belay.Event) {
	switch ev.Kind {
	case "started":
		h.start(ev)
	case belay.KindStep.String():
		h.step(ev)
	case belay.KindWait.String():
		h.span(h.ctx, "wait", ev, reported(ev, h.branches.since(branchOf(ev.Name), h.first)))
		h.branches.at(branchOf(ev.Name), ev.At)
	case "scheduled", belay.KindState.String(), "signal", "child":
	default:
		h.end(ev)
	}
}

func (h *life) start(ev *belay.Event) {
	ctx := context.WithValue(h.ctx, idsKey{}, span{id: runSpan(h.e.ID, ev.Token)})
	facts := []attribute.KeyValue{
		attribute.String("belay.run.id", belay.RunID{Execution: h.e.ID, Token: ev.Token}.String()),
		attribute.Int64("belay.run.token", int64(ev.Token)), attribute.Int("belay.run.attempt", ev.Attempt),
	}
	if !ev.Worker.IsZero() {
		facts = append(facts, attribute.String("belay.worker.id", ev.Worker.String()))
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(ev.At), trace.WithAttributes(facts...)}
	if h.last != nil {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: h.last.span.SpanContext()}))
	}
	if !h.suspended.IsZero() {
		h.gap(h.suspended, ev)
		h.suspended = time.Time{}
	}
	run := &attempt{began: ev.At}
	run.ctx, run.span = h.m.tracer.Start(ctx, "run "+clip(h.e.Workflow), options...)
	if h.last == nil {
		h.first = ev.At
	}
	h.runs[ev.Token], h.last = run, run
}

// gap makes the span of the time in which an execution was suspended, until the run of an event started.
func (h *life) gap(since time.Time, ev *belay.Event) {
	ctx := context.WithValue(h.ctx, idsKey{}, span{id: eventSpan(h.e.ID, ev.Seq)})
	_, s := h.m.tracer.Start(ctx, "suspended", trace.WithTimestamp(since))
	s.End(trace.WithTimestamp(ev.At))
}

// end ends the span of a run, if an event ends one.
func (h *life) end(ev *belay.Event) {
	run := h.runs[ev.Token]
	if run == nil || run.over {
		return
	}
	run.over = true
	run.span.SetAttributes(attribute.String("belay.run.outcome", ev.Kind))
	if ev.Kind == belay.OutcomeSuspended.String() {
		h.suspended = ev.At
	}
	switch {
	case ev.Error != nil:
		run.span.SetAttributes(attribute.String("error.type", ev.Error.Class.String()))
		run.span.SetStatus(codes.Error, clip(ev.Error.Message))
	case ev.Kind == belay.OutcomeLost.String(), ev.Kind == belay.OutcomeTimedOut.String():
		run.span.SetAttributes(attribute.String("error.type", ev.Kind))
		run.span.SetStatus(codes.Error, "")
	}
	run.span.End(trace.WithTimestamp(ev.At))
}

// close ends the spans of runs whose ends are not among the events.
func (h *life) close() {
	for _, run := range h.runs {
		if !run.over {
			run.span.End(trace.WithTimestamp(h.e.FinishedAt))
		}
	}
}

func (h *life) step(ev *belay.Event) {
	ctx, since, branch := h.ctx, h.began, branchOf(ev.Name)
	if run := h.runs[ev.Token]; run != nil {
		ctx, since = run.ctx, run.began
	}
	if at := h.branches.since(branch, since); at.After(since) {
		since = at
	}
	h.span(ctx, "step", ev, reported(ev, since))
	h.branches.at(branch, ev.At)
}

// reported returns when a step or wait began, if its owner has reported how long it took, but not before the time
// first.
func reported(ev *belay.Event, first time.Time) time.Time {
	if ev.DurationMS <= 0 {
		return first
	}
	return later(ev.At.Add(-time.Duration(ev.DurationMS)*time.Millisecond), first)
}

// span makes the span of a step or wait.
func (h *life) span(ctx context.Context, kind string, ev *belay.Event, since time.Time) {
	ctx = context.WithValue(ctx, idsKey{}, span{id: eventSpan(h.e.ID, ev.Seq)})
	name, _, _ := strings.Cut(ev.Name, "[") // the key within the name differs for each call
	_, s := h.m.tracer.Start(ctx, kind+" "+clip(name), trace.WithTimestamp(since), trace.WithAttributes(
		attribute.String("belay."+kind+".name", clip(ev.Name)),
	))
	s.End(trace.WithTimestamp(ev.At))
}
