package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// belayIn runs one command line in a data directory, and returns its exit code and output.
func belayIn(t *testing.T, dir string, args ...string) (code int, out, errs string) {
	t.Helper()
	t.Setenv("BELAY_SERVER", "")
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"--data", dir}, args...), streams{strings.NewReader(""), &o, &e})
	return code, o.String(), e.String()
}

// Rule: an operator pauses and resumes a queue, a workflow and a target, sets limits and rates, and forces circuit
// breakers, and then sees each setting with the operator who made it and the reason.
func TestAnOperatorChangesGates(t *testing.T) {
	dir := t.TempDir() + "/data"
	must := func(want string, args ...string) {
		t.Helper()
		code, out, errs := belayIn(t, dir, args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("belay %s: exit code %d, want %q in\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
	}
	must("ex_", "submit", "w", "--concurrency", "a=b=2", "--when-full", "reject", "--rate", "mail=10/s", "--target",
		"payments:charge")
	must("no gates", "gates", "ls", "--kind", "queue")
	must("paused by "+actor()+": a move; until 2099", "pause", "--queue", "a/b", "--until", "2099-06-01T00:00:00Z",
		"--reason", "a move")
	must("open", "resume", "--queue", "a/b")
	must("paused", "pause", "--workflow", "w", "--until", "2h")
	must("paused", "pause", "--target", "payments:charge")
	must("paused", "pause", "--limit", "a=b")
	must("open", "resume", "--limit", "a=b")
	must("limit     5; 0 of the places are taken; set by "+actor()+": too eager", "limits", "set", "a=b", "5",
		"--reason", "too eager")
	must("limit     2; 0", "limits", "rm", "limit:a=b")
	must("limit     7", "limits", "set", "queue:default", "7")
	must("rate      100/1m", "rates", "set", "workflow:w", "100/m")
	must("rate      10/1s", "rates", "set", "mail", "10/s")
	must("forced    open by "+actor()+": why not", "breakers", "open", "payments:charge", "--reason", "why not")
	must("forced open", "resume", "--target", "payments:charge")
	must("opened by "+actor()+": down", "breakers", "open", "payments:charge", "--reason", "down")
	must("forced open", "breakers", "ls")
	must("forced    closed by "+actor()+": it works", "breakers", "close", "target:payments:charge", "--reason",
		"it works")
	must("closed", "breakers", "auto", "payments:charge")
	must("payments:charge", "breakers", "get", "payments:charge")
	must("queue:default", "limits", "ls", "-o", "wide")
	must("target:queue:publish", "breakers", "open", "queue:publish")
	must("target:queue:publish", "breakers", "get", "queue:publish")
	code, out, errs := belayIn(t, dir, "gates", "ls", "-o", "json")
	var list []belay.GateInfo
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list) != 7 {
		t.Errorf("%v, %d gates, exit code %d: %s%s", err, len(list), code, out, errs)
	}
	code, out, errs = belayIn(t, dir, "gates", "ls", "--limit", "1")
	if code != 0 || strings.Count(out, "\n") != 2 || !strings.Contains(errs, "more than 1") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// Rule: if belay cannot carry out a command line, the error says what to do, and the exit code
// belongs to the code of the error.
func TestWrongChangesOfGatesAreRefused(t *testing.T) {
	dir := t.TempDir() + "/data"
	if code, _, errs := belayIn(t, dir, "submit", "w"); code != 0 {
		t.Fatal(errs)
	}
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"pause", "takes the id of an execution", 64},
		{"pause @last --queue q", "not both", 64},
		{"pause --queue q --workflow w", "not both", 64},
		{"pause --queue=", "--queue is empty", 64},
		{"pause @last --until 2h", "--until needs --queue", 64},
		{"pause --queue q --until yesterday", "--until \"yesterday\" is neither", 64},
		{"pause --queue q --until -1h", "which has passed", 65},
		{"pause --queue \a", "control character", 65},
		{"limits set x many", "is not a number", 64},
		{"limits set x 0", "not between 1 and 10000", 65},
		{"limits set x -- -5", "not between 1 and 10000", 65},
		{"limits set target:x 5", "only on gates of kind limit, queue and workflow", 65},
		{"rates set x 5", "MAX/TIME", 64},
		{"rates set x 5/0s", "not between", 65},
		{"rates set x 99999999/s", "not between", 65},
		{"breakers open", "takes a target", 64},
		{"gates get x", "an id is a kind, a colon and a name", 65},
		{"gates ls --kind x", "it can be limit", 64},
		{"gates ls --limit 0", "it must be 1 at least", 64},
		{"submit w --concurrency x", "NAME=MAX", 64},
		{"submit w --concurrency =5", "NAME=MAX", 64},
		{"submit w --concurrency x=0", "not between", 65},
		{"submit w --when-full wait", "needs --concurrency", 64},
		{"submit w --concurrency x=1 --when-full explode", "it can be wait", 64},
		{"submit w --rate x=5", "MAX/TIME", 64},
		{"submit w --rate 5/s", "NAME=MAX/TIME", 64},
		{"run --rate 5/s -- true", "NAME=MAX/TIME", 64},
	} {
		code, out, errs := belayIn(t, dir, strings.Split(c.line, " ")...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("belay %s: exit code %d, want %d and %q: %s%s", c.line, code, c.code, c.want, out, errs)
		}
	}
	if _, out, _ := belayIn(t, dir, "gates", "ls"); out != "no gates\n" {
		t.Errorf("a refused command left %s", out)
	}
}

// Rule: belay pause and belay resume without a flag for a gate still act on an execution.
func TestPauseStillPausesAnExecution(t *testing.T) {
	dir := t.TempDir() + "/data"
	for _, c := range []struct{ line, want string }{
		{"submit w", "ex_"}, {"pause @last --reason lunch", "is paused"}, {"resume @last", "is pending"},
	} {
		code, out, errs := belayIn(t, dir, strings.Split(c.line, " ")...)
		if code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("belay %s: exit code %d: %s%s", c.line, code, out, errs)
		}
	}
}

// Rule: the shell completes each command with the gates that the command can change or show, and
// with the queues and workflows that can be paused. It offers no name that belay would have to
// escape on a terminal.
func TestTheShellCompletesGates(t *testing.T) {
	dir := t.TempDir() + "/data"
	for _, line := range []string{
		"submit report --queue night", "submit w --concurrency crawler=2", "pause --queue mail", "pause --queue -x",
		"pause --queue evil\u202e", "limits set queue:mail 5", "limits set target: 1", "limits set tests 1",
		"rates set mail 1/s", "breakers open payments:charge", "breakers open queue:publish",
		"breakers open target:target:x", "breakers auto idle",
	} {
		code, _, errs := belayIn(t, dir, strings.Split(line, " ")...)
		if refused := line == "limits set target: 1"; refused != (code != 0) {
			t.Fatalf("belay %s: %d %s", line, code, errs)
		}
	}
	for line, want := range map[string]string{
		"gates get": "limit:crawler limit:tests queue:-x queue:mail rate:mail target:idle target:payments:charge " +
			"target:queue:publish target:target:x",
		"breakers get":      "idle payments:charge queue:publish target:target:x",
		"breakers open":     "idle payments:charge queue:publish target:target:x",
		"breakers auto":     "payments:charge queue:publish target:target:x",
		"limits set":        "crawler tests queue:-x queue:mail",
		"limits rm":         "tests queue:mail",
		"rates set":         "queue:-x queue:mail mail",
		"rates rm":          "mail",
		"pause --queue":     "-x mail default night",
		"resume --queue":    "-x mail",
		"pause --workflow":  "report w",
		"resume --workflow": "",
		"pause --target":    "idle payments:charge queue:publish target:x",
		"resume --limit":    "",
		"pause --rate":      "mail",
		"submit --target":   "idle payments:charge queue:publish target:x",
	} {
		code, out, errs := belayIn(t, dir, append([]string{"__complete"}, append(strings.Split(line, " "), "")...)...)
		var words []string
		for _, w := range strings.Split(strings.TrimSpace(out), "\n") {
			if w, _, _ := strings.Cut(w, "\t"); w != ":4" {
				words = append(words, w)
			}
		}
		if got := strings.Join(words, " "); got != want || code != 0 {
			t.Errorf("belay %s: offers %q, want %q; exit code %d: %s", line, got, want, code, errs)
		}
	}
}
