package test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// otelCollector builds the collector of OpenTelemetry from the module proxy, and returns its path.
func otelCollector(t *testing.T) string {
	t.Helper()
	if !*long {
		t.Skip("building the collector of OpenTelemetry takes minutes; give -args -long")
	}
	dir := t.TempDir()
	for _, name := range []string{"go.mod", "main.go"} {
		text, err := os.ReadFile(filepath.Join("testdata/otelcol", name+".txt"))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	tidy := exec.CommandContext(t.Context(), "go", "mod", "tidy")
	tidy.Dir = dir
	if out, err := tidy.CombinedOutput(); err != nil {
		t.Skipf("the modules of the collector cannot be downloaded: %v\n%s", err, out)
	}
	program := filepath.Join(dir, "otelcol")
	build(t, dir, program, ".", "-trimpath")
	return program
}

// Rule: the collector of OpenTelemetry takes the spans of a server as they are meant.
func TestTheCollectorOfOpenTelemetryTakesTraces(t *testing.T) {
	t.Parallel()
	program := otelCollector(t)
	p := newPlace(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := l.Addr().String()
	must(t, l.Close())
	config := p.path("collector.yaml")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {debug: {verbosity: detailed}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [debug]}}
`, address), 0o600))
	c := p.start(exec.Command(program, "--config", "file:"+config))
	c.says("Everything is ready")
	p.more = append(p.more, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+address, "OTEL_BSP_SCHEDULE_DELAY=20")
	server, a := p.serve()
	id := a.want(http.StatusCreated, "POST", "/v1/executions", `{"workflow": "trial"}`, "traceparent",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").string("id")
	a.want(http.StatusOK, "POST", "/v1/executions/"+id+"/cancel", `{}`)
	c.says("belay.execution.id: Str(" + id + ")")
	for _, line := range []string{
		"Trace ID       : 4bf92f3577b34da6a3ce929d0e0e4736\n", "Parent ID      : 00f067aa0ba902b7\n",
		"Name           : execution trial\n", "belay.state: Str(cancelled)", "service.name: Str(belay)",
	} {
		if !strings.Contains(c.err.String()+c.out.String(), line) {
			t.Errorf("the collector does not print %q\n%s", line, c.err.String())
		}
	}
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
	c.signal(syscall.SIGTERM)
	c.wait(patience)
}
