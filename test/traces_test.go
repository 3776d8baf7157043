package test

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spans is a collector that keeps the spans that it receives.
type spans struct {
	t *testing.T

	mu  sync.Mutex
	all []*otlp.Span
}

func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in collector.ExportTraceServiceRequest
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = proto.Unmarshal(body, &in)
	}
	if err != nil || r.Header.Get("X-Team") != "t" {
		s.t.Errorf("%s with %v: %v", r.URL, r.Header, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range in.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			s.all = append(s.all, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// find returns the first span with a name in a trace, as the traceparent of the spans below it.
func (s *spans) find(name, trace string) (traceparent string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.GetName() == name && hex.EncodeToString(x.GetTraceId()) == trace {
			return "00-" + trace + "-" + hex.EncodeToString(x.GetSpanId()) + "-01"
		}
	}
	return ""
}

// Rule: the trace of a submitter reaches the environment of a command and the receiver of an HTTP request, through a
// server that the standard variables configure. Both have the spans of their runs, which the collector gets.
func TestTracesReachCommandsAndRequests(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	received := &spans{t: t}
	to := httptest.NewServer(received)
	defer to.Close()
	var mu sync.Mutex
	var requested string
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requested = r.Header.Get("traceparent") + " " + r.Header.Get("tracestate")
	}))
	defer receiver.Close()
	p.more = append(p.more, "OTEL_EXPORTER_OTLP_ENDPOINT="+to.URL, "OTEL_EXPORTER_OTLP_HEADERS=x-team=t",
		"OTEL_BSP_SCHEDULE_DELAY=20")
	server, a := p.serve("--http-egress", "public,"+receiver.Listener.Addr().String())

	const of = "4bf92f3577b34da6a3ce929d0e0e47"
	submit := func(n int, body string) (id, trace string) {
		trace = fmt.Sprintf("%s%02d", of, n)
		return a.want(http.StatusCreated, "POST", "/v1/executions", body, "traceparent", "00-"+trace+
			"-00f067aa0ba902b7-01", "tracestate", "vendor=1").string("id"), trace
	}
	_, inRequest := submit(1, `{"workflow": "http", "input": {"url": "`+receiver.URL+`/x"}}`)
	job, inCommand := submit(2, `{"workflow": "command", "input": {"steps": [{"name": "show", "argv": `+
		`["sh", "-c", "echo $TRACEPARENT $TRACESTATE"]}]}}`)
	below := "00-" + of + "03-"
	fromLine := p.start(withEnv(p.command("submit", "command", "--wait", "--", "sh", "-c",
		"case $TRACEPARENT in *-00f067aa0ba902b7-*) exit 3;; "+below+"*) exit 0;; esac; exit 4"),
		"TRACEPARENT="+below+"00f067aa0ba902b7-01"))
	w := p.start(p.command("worker"))
	w.says("takes work")
	var run string
	until(t, "the collector has the spans of both", func() bool {
		run = received.find("run http", inRequest)
		return run != "" && received.find("execution http", inRequest) != "" &&
			received.find("run command", inCommand) != "" && received.find("step run", inCommand) != ""
	})
	mu.Lock()
	if requested != run+" vendor=1" {
		t.Errorf("the request has the trace %q, not %q", requested, run)
	}
	mu.Unlock()
	if got := p.belay("logs", job).out; !strings.Contains(got, received.find("run command", inCommand)+" vendor=1\n") {
		t.Errorf("the command has not the trace of its run, but\n%s", got)
	}
	fromLine.wait(patience).want(0)
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
}
