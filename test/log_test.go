package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// logLine is a line of a log in JSON.
type logLine map[string]any

// logLines reads the log of a process.
func logLines(t *testing.T, x *started) (all []logLine) {
	t.Helper()
	for line := range strings.Lines(x.err.String()) {
		var l logLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s writes a line that is not JSON: %v\n%s", x.cmd.Args[1], err, line)
		}
		all = append(all, l)
	}
	return all
}

// with reports whether a log has a line with a message and these attributes.
func withLine(all []logLine, message string, attributes ...string) bool {
	for _, l := range all {
		found := strings.Contains(fmt.Sprint(l["msg"]), message)
		for i := 0; i < len(attributes); i += 2 {
			found = found && fmt.Sprint(l[attributes[i]]) == attributes[i+1]
		}
		if found {
			return true
		}
	}
	return false
}

// Rule: each line of the log of a server or a worker that is about a run has the attributes execution and token, and
// the lines of a worker also the attribute worker, under these names in all processes. This is so also for runs that
// fail, are retried, are taken over from a worker that died, and end as dead letters.
func TestLogLinesNameTheirRuns(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	server, a := p.serve("--log-format", "json", "--log-level", "debug")
	submit := func(script, policy string) string {
		return a.want(http.StatusCreated, "POST", "/v1/executions", `{"workflow": "command", `+policy+
			`, "input": {"steps": [{"name": "do", "argv": ["sh", "-c", `+jsonText(script)+`]}]}}`).string("id")
	}
	work := func() *started {
		w := p.start(p.command("worker", "--log-format", "json", "--log-level", "debug",
			"--ttl", "2s", "--grace", "1s"))
		w.says("takes work")
		return w
	}
	fails := submit("exit 3", `"max_attempts": 2, "backoff_base": "1ms"`)
	late := submit("true", `"queue": "nobody", "start_timeout": "1s"`)
	lost := submit("sleep 60", `"on_lost": "fail"`)
	taken := submit("sleep 2", `"max_attempts": 3`)
	first := work()
	until(t, "the runs that the worker loses have begun", func() bool {
		all := logLines(t, first)
		return withLine(all, "run begins", "execution", taken) && withLine(all, "run begins", "execution", lost)
	})
	first.signal(syscall.SIGKILL)
	<-first.done
	second := work()
	a.ends("/v1/executions/"+fails, "failed")
	a.ends("/v1/executions/"+late, "failed")
	a.ends("/v1/executions/"+taken, "succeeded")
	a.ends("/v1/executions/"+lost, "failed")
	a.call("GET", "/v1/executions/"+strings.Repeat("x", 30), "")
	a.call("POST", "/v1/executions/"+fails+"/pause", "{}") // refused, which is a line at the level debug
	second.signal(syscall.SIGTERM)
	second.wait(patience)
	server.signal(syscall.SIGTERM)
	server.wait(patience)

	id := regexp.MustCompile(`\b(ex|run)_[0-9a-z]{20,}`)
	forbidden := []string{"execution_id", "exec", "id", "run", "run_id", "worker_id", "fencing_token"}
	for who, x := range map[string]*started{"server": server, "worker 1": first, "worker 2": second} {
		for _, l := range logLines(t, x) {
			for _, key := range forbidden {
				if _, there := l[key]; there {
					t.Errorf("%s: the key %s is not one of execution, token and worker: %v", who, key, l)
				}
			}
			if !id.MatchString(fmt.Sprint(map[string]any(l))) {
				continue
			}
			if s, _ := l["execution"].(string); !strings.HasPrefix(s, "ex_") {
				t.Errorf("%s: a line about an execution does not name it: %v", who, l)
			}
			_, request := l["request"] // requests are about executions, not about runs
			if _, there := l["token"].(float64); !there && !request {
				t.Errorf("%s: a line about an execution has no token: %v", who, l)
			}
			if s, _ := l["worker"].(string); who != "server" && !strings.HasPrefix(s, "wk_") {
				t.Errorf("%s: a line about a run has no worker: %v", who, l)
			}
		}
	}
	for _, want := range []struct {
		of      *started
		message string
		more    []string
	}{
		{first, "run begins", []string{"execution", fails, "attempt", "1"}},
		{second, "run ended", []string{"execution", taken, "outcome", "succeeded"}},
		{server, "an execution was ended", []string{"execution", late, "token", "0"}},
		{server, "an execution was ended", []string{"execution", lost, "token", "1"}},
		{server, "refused", []string{"execution", fails}},
	} {
		if !withLine(logLines(t, want.of), want.message, want.more...) {
			t.Errorf("no line %q with %v in\n%s", want.message, want.more, want.of.err.String())
		}
	}
}
