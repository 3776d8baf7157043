package server_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

const (
	submitterTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	submitterSpan  = "00f067aa0ba902b7"
	submitter      = "00-" + submitterTrace + "-" + submitterSpan + "-01"
)

// otlpCollector receives spans over OTLP.
type otlpCollector struct {
	t *testing.T

	mu       sync.Mutex
	requests int
	spans    []*otlp.Span
	resource map[string]string
	came     chan struct{} // has a value after each request
}

// collect starts a collector, and makes the environment ask for traces to it.
func collect(t *testing.T) *otlpCollector {
	t.Helper()
	c := &otlpCollector{t: t, resource: map[string]string{}, came: make(chan struct{}, 1)}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	traceTo(t, s.URL)
	return c
}

// traceTo makes the environment ask for traces to a URL.
func traceTo(t *testing.T, url string) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
}

// ServeHTTP takes a request of an exporter.
func (c *otlpCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &in)
	}
	if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		c.t.Errorf("%s %s of %s: %v", r.Method, r.URL.Path, r.Header.Get("Content-Type"), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	for _, rs := range in.GetResourceSpans() {
		for _, a := range rs.GetResource().GetAttributes() {
			c.resource[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, ss := range rs.GetScopeSpans() {
			c.spans = append(c.spans, ss.GetSpans()...)
		}
	}
	select {
	case c.came <- struct{}{}:
	default:
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(nil)
}

// until waits until a selection of spans is not empty, and returns it.
func (c *otlpCollector) until(what string, pick func(*otlp.Span) bool) *otlp.Span {
	c.t.Helper()
	late := time.After(soon)
	for {
		c.mu.Lock()
		var names []string
		for _, s := range c.spans {
			if pick(s) {
				c.mu.Unlock()
				return s
			}
			names = append(names, s.GetName())
		}
		c.mu.Unlock()
		select {
		case <-c.came:
		case <-late:
			c.t.Fatalf("there is no span of %s, only %q", what, names)
		}
	}
}

// named waits for a span by its name.
func (c *otlpCollector) named(name string) *otlp.Span {
	c.t.Helper()
	return c.until(name, func(s *otlp.Span) bool { return s.GetName() == name })
}

// idOf returns the id of the execution in an answer.
func idOf(t *testing.T, body string) belay.ExecutionID {
	t.Helper()
	var x belay.Execution
	if err := json.Unmarshal([]byte(body), &x); err != nil {
		t.Fatal(err)
	}
	return x.ID
}

// facts returns the attributes of a span as texts.
func facts(s *otlp.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.GetAttributes() {
		all[a.GetKey()] = a.GetValue().GetStringValue()
		if a.GetValue().GetStringValue() == "" {
			all[a.GetKey()] = fmt.Sprint(a.GetValue().GetIntValue())
		}
	}
	return all
}

// trial has a workflow whose first attempt fails after a step, and whose second attempt waits for a signal.
type trial struct {
	mu     sync.Mutex
	traces []belay.Trace // of the runs
	failed bool
}

func (x *trial) run(ctx context.Context, _ struct{}) (string, error) {
	x.mu.Lock()
	x.traces = append(x.traces, workflow.Trace(ctx))
	x.mu.Unlock()
	_, err := workflow.Step(ctx, "prepare", func(context.Context) (string, error) { return "secret output", nil })
	if err != nil {
		return "", err
	}
	x.mu.Lock()
	first := !x.failed
	x.failed = true
	x.mu.Unlock()
	if first {
		return "", errors.New("the first attempt fails\xff " + strings.Repeat("x", 1000))
	}
	if _, err := workflow.WaitSignal[string](ctx, "go"); err != nil {
		return "", err
	}
	child, err := workflow.Child[string](ctx, "child", "child", struct{}{})
	return "secret output " + child, err
}

func (x *trial) child(ctx context.Context, _ struct{}) (string, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.traces = append(x.traces, workflow.Trace(ctx))
	return "", nil
}

// Rule: an execution is a span from its submission to its end, below the span of its submitter; its runs, its steps
// and its waits are spans below it, and each run is linked to the run before it. No span has data of the execution.
func TestTraces(t *testing.T) {
	c := collect(t)
	r := start(t, setup{traces: true})
	x := &trial{}
	b, err := client.Dial(t.Context(), r.url)
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(b, worker.Options{Name: "w", Linger: -1})
	worker.Register(w, "trial", x.run)
	worker.Register(w, "child", x.child)
	working, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- w.Run(working) }()
	defer func() {
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	}()
	status, body := r.do(http.DefaultClient, http.MethodPost, "/v1/executions",
		`{"workflow": "trial", "input": {"password": "secret input"}, "backoff_base": "1ms", "labels": {"l": "secret"}}`,
		"Content-Type", "application/json", "traceparent", submitter, "tracestate", "vendor=1")
	if status != http.StatusCreated {
		t.Fatal(status, body)
	}
	id := idOf(t, body)
	err = b.Signal(t.Context(), belay.SignalRequest{Execution: id, Name: "go", Payload: []byte(`"secret"`)})
	if err != nil {
		t.Fatal(err)
	}

	whole := c.named("execution trial")
	if got := hex.EncodeToString(whole.GetTraceId()) + hex.EncodeToString(whole.GetParentSpanId()); got !=
		submitterTrace+submitterSpan || whole.GetTraceState() != "vendor=1" {
		t.Errorf("the execution is in the trace and span %s with the state %q", got, whole.GetTraceState())
	}
	want := map[string]string{
		"belay.execution.id": id.String(), "belay.workflow": "trial", "belay.queue": "default",
		"belay.state": "succeeded", "belay.generation": "1", "belay.attempts": "1",
	}
	for key, value := range want {
		if got := facts(whole)[key]; got != value {
			t.Errorf("%s of the execution is %q, not %q", key, got, value)
		}
	}
	first := c.until("the first attempt", func(s *otlp.Span) bool { return facts(s)["belay.run.outcome"] == "failed" })
	second := c.until("the second attempt", func(s *otlp.Span) bool {
		return len(s.GetLinks()) == 1 && string(s.GetLinks()[0].GetSpanId()) == string(first.GetSpanId())
	})
	for i, run := range []*otlp.Span{first, second} {
		if run.GetName() != "run trial" || string(run.GetParentSpanId()) != string(whole.GetSpanId()) ||
			facts(run)["belay.run.attempt"] != fmt.Sprint(i+1) || facts(run)["belay.worker.id"] == "" {
			t.Errorf("attempt %d is %v", i+1, run)
		}
	}
	if s := first.GetStatus(); s.GetCode() != otlp.Status_STATUS_CODE_ERROR || len(s.GetMessage()) > 256 ||
		!strings.HasPrefix(s.GetMessage(), "the first attempt fails") || facts(first)["error.type"] != "transient" {
		t.Errorf("the first attempt has the status %v and %v", s, facts(first))
	}
	if step := c.named("step prepare"); string(step.GetParentSpanId()) != string(first.GetSpanId()) {
		t.Errorf("the step is %v", step)
	}
	if wait := c.named("wait go"); string(wait.GetParentSpanId()) != string(whole.GetSpanId()) {
		t.Errorf("the wait is %v", wait)
	}
	c.named("wait child")
	c.named("suspended")
	c.named("store.commit")
	part := c.named("execution child")
	last := c.until("the run that started the child", func(s *otlp.Span) bool {
		return string(s.GetSpanId()) == string(part.GetParentSpanId())
	})
	if string(part.GetTraceId()) != string(whole.GetTraceId()) || last.GetName() != "run trial" {
		t.Errorf("the child is %v, below %v", part, last)
	}

	// The runs knew their spans, which is how commands and requests get them.
	c.mu.Lock()
	defer c.mu.Unlock()
	runs := map[string]bool{}
	for _, s := range c.spans {
		if s.GetStartTimeUnixNano() > s.GetEndTimeUnixNano() {
			t.Errorf("the span %s ends before it begins", s.GetName())
		}
		if strings.Contains(s.String(), "secret") {
			t.Errorf("a span has data of the execution: %v", s)
		}
		if strings.HasPrefix(s.GetName(), "run ") {
			runs["00-"+hex.EncodeToString(s.GetTraceId())+"-"+hex.EncodeToString(s.GetSpanId())+"-01"] = true
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, trace := range x.traces {
		if !runs[trace.Parent] || trace.State != "vendor=1" {
			t.Errorf("a run knows the trace %+v, which is that of no span", trace)
		}
	}
	if c.resource["service.name"] != "belay" || c.resource["service.version"] != "1.2.3" ||
		c.resource["deployment.environment.name"] != "test" {
		t.Errorf("the resource is %v", c.resource)
	}
}

// Rule: a server that stops sends the spans that it has not sent yet.
func TestAStoppedServerSendsItsSpans(t *testing.T) {
	c := collect(t)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
	r := start(t, setup{traces: true})
	cancelled(t, r)
	for late := time.After(soon); ; { // the engine reports the end after its answer
		_, text := r.do(http.DefaultClient, http.MethodGet, "/metrics", "")
		if strings.Contains(text, `belay_executions_finished_total{state="cancelled",workflow="nothing"} 1`) {
			break
		}
		select {
		case <-late:
			t.Fatalf("the end is not counted\n%s", text)
		case <-time.After(10 * time.Millisecond):
		}
	}
	r.stop()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	c.named("execution nothing")
}

// Rule: a collector that takes requests and does not answer delays no commit, and the stop of a server by seconds only.
func TestAStuckCollectorDoesNotKeepAServer(t *testing.T) {
	over := make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(func() {
		close(over)
		stuck.Close()
	})
	traceTo(t, stuck.URL)
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "2")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	r := start(t, setup{traces: true})
	for range 20 {
		cancelled(t, r)
	}
	r.stop()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
}

// cancelled submits an execution and cancels it.
func cancelled(t *testing.T, r *running) {
	t.Helper()
	submitted, err := r.engine.Submit(t.Context(), belay.Submission{Workflow: "nothing"})
	if err != nil || submitted[0].Err != nil {
		t.Fatal(err, submitted)
	}
	cancel := belay.Control{Execution: submitted[0].ID, Action: belay.ActionCancel}
	if _, err := r.engine.Control(t.Context(), cancel); err != nil {
		t.Fatal(err)
	}
}

// Rule: a job of an agent belongs to the trace of its submitter.
func TestJobsOfAgentsHaveTraces(t *testing.T) {
	c := collect(t)
	r := start(t, setup{traces: true, agents: &agentapi.Options{
		Setup: agent.Setup{Command: agent.Template{"cat"}}, QueueDepth: 10,
	}})
	status, body := r.do(http.DefaultClient, http.MethodPost, "/execute", `{"prompt": "p", "repo": "https://a.example/b"}`,
		"Content-Type", "application/json", "traceparent", submitter)
	var job struct {
		ID belay.ExecutionID `json:"job_id"`
	}
	if err := json.Unmarshal([]byte(body), &job); err != nil || status != http.StatusAccepted {
		t.Fatal(status, body, err)
	}
	cancel := belay.Control{Execution: job.ID, Action: belay.ActionCancel}
	if _, err := r.engine.Control(t.Context(), cancel); err != nil {
		t.Fatal(err)
	}
	if s := c.named("execution " + agent.Prompted); hex.EncodeToString(s.GetTraceId()) != submitterTrace {
		t.Errorf("%v", s)
	}
}

// Attack: a traceparent that is no traceparent. The execution is accepted, and has a trace of its own.
func TestAHostileTraceparentIsIgnored(t *testing.T) {
	c := collect(t)
	r := start(t, setup{traces: true})
	for i, header := range []string{"no", strings.Repeat("0", 8000), "00-" + submitterTrace + "-0000000000000000-01"} {
		status, body := r.do(http.DefaultClient, http.MethodPost, "/v1/executions",
			`{"workflow": "nothing", "traceparent": "`+header[:2]+`", "tracestate": "`+strings.Repeat("s", 5000)+`"}`,
			"Content-Type", "application/json", "traceparent", header, "tracestate", header)
		if status != http.StatusCreated {
			t.Fatalf("%d: %d %s", i, status, body)
		}
		id := idOf(t, body)
		cancel := belay.Control{Execution: id, Action: belay.ActionCancel}
		if _, err := r.engine.Control(t.Context(), cancel); err != nil {
			t.Fatal(err)
		}
		s := c.until("the execution", func(s *otlp.Span) bool { return facts(s)["belay.execution.id"] == id.String() })
		if len(s.GetParentSpanId()) != 0 || hex.EncodeToString(s.GetTraceId()) == submitterTrace ||
			s.GetTraceState() != "" {
			t.Errorf("%d: %v", i, s)
		}
	}
}

// Rule: if the collector is away, the server works on, and counts the spans that it cannot send.
func TestTracesWithoutACollector(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	traceTo(t, gone.URL)
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "50")
	r := start(t, setup{traces: true})
	for range 3 {
		cancelled(t, r)
	}
	failed := func() bool {
		_, text := r.do(http.DefaultClient, http.MethodGet, "/metrics", "")
		_, after, ok := strings.Cut(text, `belay_trace_spans_total{outcome="failed"} `)
		return ok && !strings.HasPrefix(after, "0\n") && strings.Contains(text, "belay_trace_dropped_total 0\n")
	}
	for late := time.After(soon); !failed(); {
		select {
		case <-late:
			t.Fatalf("no span is counted as failed\n%s", r.log)
		case <-time.After(20 * time.Millisecond):
		}
	}
	r.stop()
	if err := r.wait(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(r.log.String(), "the collector of traces does not take"); n != 1 {
		t.Errorf("the log has %d messages about the collector\n%s", n, r.log)
	}
}

// Rule: a server makes no traces unless the environment asks for them over OTLP and HTTP.
func TestTracesAreOffByDefault(t *testing.T) {
	c := collect(t)
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "", "OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none",
		"OTEL_TRACES_SAMPLER": "always_off", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			r := start(t, setup{traces: true})
			cancelled(t, r)
			_, text := r.do(http.DefaultClient, http.MethodGet, "/metrics", "")
			if strings.Contains(text, "belay_trace") != (name == "OTEL_TRACES_SAMPLER") {
				t.Error("the metrics of traces are there, or missing")
			}
			r.stop()
			if err := r.wait(); err != nil {
				t.Error(err)
			}
		})
	}
	if c.requests != 0 {
		t.Errorf("the collector got %d requests", c.requests)
	}
}
