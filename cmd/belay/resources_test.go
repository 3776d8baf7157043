package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// Rule: an operator sets, shows and removes the terms of a resource, and a submission requires a mode of
// it; wrong flags are refused with a text that says what is right.
func TestAnOperatorSetsResources(t *testing.T) {
	dir := t.TempDir() + "/data"
	must := func(want string, args ...string) {
		t.Helper()
		code, out, errs := belayIn(t, dir, args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("belay %s: exit code %d, want %q in\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
	}
	refused := func(want string, args ...string) {
		t.Helper()
		code, out, errs := belayIn(t, dir, args...)
		if code == 0 || !strings.Contains(errs, want) {
			t.Errorf("belay %s: exit code %d, want %q in\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
	}
	must("ex_", "submit", "answer", "--requires", "gpu=llama", "--preemptible")
	must("a mode stays for 30s at least; other modes wait for 5m00s at most; set by "+actor()+": one GPU", "resources",
		"set", "gpu", "--min-residency", "30s", "--max-wait", "5m", "--swap-workflow", "load", "--reason", "one GPU")
	must("by the workflow load in the queue default, within 10m00s", "resources", "get", "gpu")
	must(`"timeout_ms": 600000`, "resources", "get", "gpu", "-o", "json")
	must("RESOURCE", "resources", "ls")
	must(`"state": "idle"`, "resources", "get", "resource:gpu", "-o", "json")
	must("gpu  ", "gates", "ls", "--kind", "resource")
	must("other modes wait for 1m00s at most\nwaiting", "resources", "rm", "gpu")
	refused("longer than the maximum wait", "resources", "set", "gpu", "--min-residency", "2m")
	refused("need --swap-workflow", "resources", "set", "gpu", "--swap-queue", "q")
	refused("RESOURCE=MODE", "submit", "answer", "--requires", "gpu")
	refused("--preemptible needs --requires", "submit", "answer", "--preemptible")
	refused("only on gates of kind resource", "resources", "set", "queue:q")
}

// Rule: if the changes to a mode have failed, the page of the resource says how often, and when the next one
// begins.
func TestAResourceShowsWhenAModeIsTriedAgain(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.Local)
	g := &belay.GateDetail{GateInfo: belay.GateInfo{ID: "resource:gpu", Resource: &belay.GateResourceInfo{
		State: belay.ResourceReady, Mode: "llama", Waiting: []belay.ModeWaiting{
			{Mode: "phi", Since: time.Now()}, {Mode: "qwen", Since: time.Now(), Failures: 2, RetryAt: at},
		},
	}}}
	var lines []string
	printResource(g, func(name, format string, args ...any) {
		if name == "wants" {
			lines = append(lines, fmt.Sprintf(format, args...))
		}
	})
	if len(lines) != 2 || strings.Contains(lines[0], "failed") || !strings.HasSuffix(lines[1],
		"; 2 changes to it failed, the next begins at "+at.Format(time.RFC3339)+" or later") {
		t.Errorf("%q", lines)
	}
}
