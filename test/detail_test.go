package test

import (
	"os"
	"os/user"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: belay get shows by whom an execution was submitted and modified, and its runs, steps and cost; with -o
// json also the trigger payload. belay runs ls shows how long a run took.
func TestGetShowsTheSubmitterAndTheMetrics(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.path("hook.json"), []byte(`{"ref": "main"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(p.belay("submit", "review", "--trigger-payload",
		"@"+p.path("hook.json")).want(0).out)
	p.belay("pause", id, "--reason", "not now").want(0)
	var x belay.ExecutionDetail
	decode(t, p.belay("get", id, "-o", "json").want(0).out, &x)
	if x.CreatedBy != u.Username || x.Trigger != belay.TriggerManual ||
		strings.Join(strings.Fields(string(x.TriggerPayload)), "") != `{"ref":"main"}` || x.ModifiedBy != u.Username ||
		x.Metrics == nil || x.Metrics.Runs != 0 {
		t.Errorf("%+v", x)
	}
	text := p.belay("get", id).want(0)
	for _, row := range []string{"submitted", "modified"} {
		if !lineHas(text.out, row, "by "+u.Username) {
			t.Errorf("no row %s by %s\n%s", row, u.Username, text)
		}
	}
	if strings.Contains(text.out, "main") || strings.Contains(text.out, "runs ") {
		t.Errorf("the table shows the payload, or runs before the first one\n%s", text)
	}

	run := p.belay("run", "--", "true").want(0)
	all := p.executions()
	command := all[0]
	if command.Workflow != "command" {
		command = all[1]
	}
	text = p.belay("get", command.ID.String()).want(0)
	if command.CreatedBy != u.Username || !lineHas(text.out, "runs", "1: 1 succeeded") ||
		!lineHas(text.out, "steps", "checkpoints") {
		t.Errorf("created by %q\n%s\n%s", command.CreatedBy, run, text)
	}
	var runs []belay.RunRecord
	decode(t, p.belay("runs", "ls", "-o", "json").want(0).out, &runs)
	if len(runs) != 1 || runs[0].DurationMS < 1 {
		t.Errorf("%+v", runs)
	}
	for _, c := range []refusal{
		{"a payload that is no JSON", []string{
			"submit", "w", "--trigger-payload", "{",
		}, codeInvalid, "trigger-payload"},
		{"two inputs from one place", []string{
			"submit", "w", "--input", "-", "--trigger-payload", "-",
		}, codeUsage, "not both"},
	} {
		r := p.belay(c.args...)
		if r.code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s", c.name, r.code, c.code, r)
		}
		one(t, r, c.says)
	}
}

// lineHas reports whether a line of the text begins with a word and contains another text.
func lineHas(text, word, part string) bool {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, word+" ") && strings.Contains(line, part) {
			return true
		}
	}
	return false
}
