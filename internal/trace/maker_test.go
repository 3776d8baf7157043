package trace

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/belaydev/belay"
)

// on is an environment that asks for traces.
func on(name string) string {
	return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}[name]
}

func newTracer(t *testing.T, getenv func(string) string) *Tracer {
	t.Helper()
	x := New(Options{Getenv: getenv, Log: slog.New(slog.DiscardHandler)})
	if x == nil {
		t.Fatal("the environment asks for traces, and there are none")
	}
	return x
}

// kept is a history.
type kept []belay.Event

func (k kept) Events(_ context.Context, q belay.EventQuery) ([]belay.Event, error) {
	var page []belay.Event
	for _, ev := range k {
		if ev.Seq > q.After && len(page) < q.Limit {
			page = append(page, ev)
		}
	}
	return page, nil
}

var zero = time.Date(2026, 11, 27, 0, 0, 0, 0, time.UTC)

// history makes events one second apart, from texts such as "started 1" and "step 1 a/b".
func history(texts ...string) kept {
	var k kept
	for i, text := range texts {
		ev := belay.Event{Seq: int64(i + 1), At: zero.Add(time.Duration(i) * time.Second)}
		_, _ = fmt.Sscan(text, &ev.Kind, &ev.Token, &ev.Name)
		ev.Final = ev.Name == "final"
		k = append(k, ev)
	}
	return k
}

// spansOf returns the spans of an execution as texts: the name, and the seconds at which it begins and ends.
func spansOf(t *testing.T, k kept, e Ended) []string {
	t.Helper()
	out := tracetest.NewInMemoryExporter()
	p := sdk.NewTracerProvider(sdk.WithSyncer(out), sdk.WithIDGenerator(ids{}))
	e.CreatedAt, e.FinishedAt = zero, k[len(k)-1].At
	m := &maker{t: newTracer(t, on), tracer: p.Tracer(""), history: k}
	m.execution(t.Context(), e)
	var all []string
	for _, s := range out.GetSpans() {
		all = append(all, fmt.Sprintf("%s %g-%g", s.Name, s.StartTime.Sub(zero).Seconds(),
			s.EndTime.Sub(zero).Seconds()))
	}
	return all
}

// Rule: a step begins when the step or wait before it in its branch has ended, but not before its run; a wait may
// begin in an earlier run. The time between a suspended run and the next run is a span.
func TestSpansOfStepsAndWaits(t *testing.T) {
	k := history("submitted 0", "scheduled 1", "started 1", "step 1 a", "suspended 1", "signal 0 go", "started 2",
		"wait 2 go", "step 2 b", "step 2 x/c[1]", "step 2 y/d", "step 2 x/e", "state 2 state", "step 2 f",
		"succeeded 2 final")
	want := []string{
		"step a 2-3", "run w 2-4", "suspended 4-6", "wait go 3-7", "step b 7-8", "step x/c 8-9", "step y/d 8-10",
		"step x/e 9-11", "step f 11-13", "run w 6-14", "execution w 0-14",
	}
	e := Ended{ID: belay.ExecutionID{1}, Workflow: "w", State: belay.Succeeded, Generation: 1}
	if diff := cmp.Diff(want, spansOf(t, k, e)); diff != "" {
		t.Error(diff)
	}
}

// Rule: a step or wait whose owner has reported how long it took begins that much before its checkpoint, but not before
// the run or the step before it.
func TestSpansOfReportedSteps(t *testing.T) {
	k := history("submitted 0", "started 1", "signal 0 go", "step 1 a", "step 1 b", "wait 1 go", "succeeded 1 final")
	k[3].DurationMS, k[4].DurationMS, k[5].DurationMS = 1500, 60_000, 500
	want := []string{"step a 1.5-3", "step b 3-4", "wait go 4.5-5", "run w 1-6", "execution w 0-6"}
	e := Ended{ID: belay.ExecutionID{1}, Workflow: "w", State: belay.Succeeded, Generation: 1}
	if diff := cmp.Diff(want, spansOf(t, k, e)); diff != "" {
		t.Error(diff)
	}
}

// Rule: each generation of an execution is a span of its own, from the action that has opened it, with its own runs.
func TestSpansOfAGeneration(t *testing.T) {
	k := history("submitted 0", "started 1", "failed 1 final", "retry 0", "started 2", "retry 2", "failed 2 final",
		"requeue 0", "started 3", "succeeded 3 final")
	id := belay.ExecutionID{1}
	for generation, want := range [][]string{
		1: {"run w 1-2", "execution w 0-9"},
		2: {"run w 4-5", "execution w 3-9"}, // the second action ended the run and opened no generation
		3: {"run w 8-9", "execution w 7-9"},
	} {
		if generation == 0 {
			continue
		}
		e := Ended{ID: id, Workflow: "w", State: belay.Failed, Generation: generation}
		if diff := cmp.Diff(want, spansOf(t, k, e)); diff != "" {
			t.Errorf("generation %d: %s", generation, diff)
		}
	}
}

// Rule: a history of any length becomes a bounded number of spans.
func TestSpansAreBounded(t *testing.T) {
	texts := []string{"submitted 0", "started 1"}
	for range 2 * maxEvents {
		texts = append(texts, "step 1 s")
	}
	e := Ended{ID: belay.ExecutionID{1}, Workflow: "w", State: belay.Succeeded, Generation: 1}
	if n := len(spansOf(t, history(texts...), e)); n != maxEvents {
		t.Errorf("%d spans, not %d: the execution, and those of the events without the submission", n, maxEvents)
	}
}

// Rule: a full queue drops records and counts them, and no call waits.
func TestAFullQueueDrops(t *testing.T) {
	x := newTracer(t, on)
	for i := range maxQueue + 7 {
		x.End(Ended{ID: belay.ExecutionID{byte(i), byte(i >> 8)}})
	}
	for range 1000 {
		x.Commit(1, time.Millisecond) // perSecond of them want a span in each second
	}
	if n := x.Counters().Dropped; n < 7+perSecond || n > 7+100*perSecond {
		t.Errorf("%d records were dropped", n)
	}
}

// Rule: the ids of spans depend only on the ids of the execution and the run, so that every server computes the same;
// the sampler decides by the submitter's decision, or by the id of the trace.
func TestRunTrace(t *testing.T) {
	id := belay.ExecutionID{1, 2, 3}
	x := newTracer(t, on)
	root := x.RunTrace(id, 1, belay.Trace{})
	if root != newTracer(t, on).RunTrace(id, 1, belay.Trace{}) || root != root.Valid() || root.Parent[53:] != "01" {
		t.Errorf("%+v", root)
	}
	if next := x.RunTrace(id, 2, belay.Trace{}); next.Parent[:35] != root.Parent[:35] || next == root {
		t.Errorf("another run has %+v, not another span of the trace of %+v", next, root)
	}
	const of = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
	if got := x.RunTrace(id, 1, belay.Trace{Parent: of + "0"}); got.Parent[:35] != of[:35] || got.Parent[53:] != "00" {
		t.Errorf("a trace that the submitter does not record becomes %+v", got)
	}
	n := 0
	some := newTracer(t, func(name string) string {
		return map[string]string{
			"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25",
		}[name] + on(name)
	})
	for i := range 4000 {
		id := belay.ExecutionID{1, 2, 3, 4, 5, 6, 0x70, byte(i >> 8), 0x80, byte(i)} // as the ids of UUIDv7 begin
		if some.RunTrace(id, 1, belay.Trace{}).Parent[53:] == "01" {
			n++
		}
	}
	if n < 800 || n > 1200 {
		t.Errorf("%d of 4000 traces are sampled, with a ratio of 0.25", n)
	}
}
