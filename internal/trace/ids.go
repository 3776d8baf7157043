package trace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/belaydev/belay"
)

// idsKey is the key of the span id with which a span begins.
type idsKey struct{}

// span is the id of a span that begins, and the id of its trace if the span has no parent.
type span struct {
	trace trace.TraceID
	id    trace.SpanID
}

// ids gives each span the id that its context has, or a random one.
type ids struct{}

var _ sdk.IDGenerator = ids{}

// NewIDs returns the ids of a span without a parent.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if s, ok := ctx.Value(idsKey{}).(span); ok {
		return s.trace, s.id
	}
	var t trace.TraceID
	var s trace.SpanID
	_, _ = rand.Read(t[:]) // never fails since Go 1.24
	_, _ = rand.Read(s[:])
	return t, s
}

// NewSpanID returns the id of a span with a parent.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if s, ok := ctx.Value(idsKey{}).(span); ok {
		return s.id
	}
	var s trace.SpanID
	_, _ = rand.Read(s[:])
	return s
}

// hash returns a hash of a kind of object, the id of an execution and a number.
func hash(kind string, id belay.ExecutionID, n int64) [sha256.Size]byte {
	b := make([]byte, 0, 64)
	b = append(append(b, "belay "...), kind...)
	b = binary.BigEndian.AppendUint64(append(b, id[:]...), uint64(n))
	return sha256.Sum256(b)
}

// traceOf is the trace of an execution whose submitter has sent none. The id of the execution itself is no good
// id of a trace, because it begins with a time, and samplers expect random ids.
func traceOf(id belay.ExecutionID) trace.TraceID {
	h := hash("trace", id, 0)
	return trace.TraceID(h[:16])
}

// executionSpan is the span of a generation of an execution.
func executionSpan(id belay.ExecutionID, generation int) trace.SpanID {
	h := hash("execution", id, int64(generation))
	return trace.SpanID(h[:8])
}

// runSpan is the span of a run.
func runSpan(id belay.ExecutionID, token belay.Token) trace.SpanID {
	h := hash("run", id, int64(token))
	return trace.SpanID(h[:8])
}

// eventSpan is the span that ends with an event.
func eventSpan(id belay.ExecutionID, seq int64) trace.SpanID {
	h := hash("event", id, seq)
	return trace.SpanID(h[:8])
}

// remote reads a trace in its stored form. It reports false if there is none.
func remote(t belay.Trace) (trace.SpanContext, bool) {
	if t = t.Valid(); t.Parent == "" {
		return trace.SpanContext{}, false
	}
	parts := strings.Split(t.Parent, "-")
	id, err := trace.TraceIDFromHex(parts[1])
	if err != nil {
		return trace.SpanContext{}, false
	}
	parent, err := trace.SpanIDFromHex(parts[2])
	if err != nil {
		return trace.SpanContext{}, false
	}
	state, _ := trace.ParseTraceState(t.State) // a state that is not valid is left out
	flags := trace.TraceFlags(0).WithSampled(parts[3][1]&1 == 1)
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: parent, TraceFlags: flags, TraceState: state, Remote: true,
	}), true
}

// text is the stored form of the trace of a span.
func text(c trace.SpanContext) belay.Trace {
	flags := "00"
	if c.IsSampled() {
		flags = "01"
	}
	return belay.Trace{
		Parent: "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + flags,
		State:  c.TraceState().String(),
	}
}
