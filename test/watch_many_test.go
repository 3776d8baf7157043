package test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: belay watch without an id prints the states of the executions that match its flags, and every change of
// state, over HTTP and through the data directory, as text and as JSON. Ctrl-C ends it like an interrupted program.
func TestWatchManyExecutions(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	first := a.call("POST", "/v1/executions", `{"workflow": "w", "labels": {"team": "web"}}`).string("id")
	text := p.start(p.command("watch", "--label", "team=web", "--state", "pending", "--server", a.url))
	lines := p.start(p.command("watch", "--all", "-o", "json"))
	text.until("the first execution is printed", func() bool { return strings.Contains(text.out.String(), first) })
	lines.until("the snapshot is printed", func() bool { return strings.Contains(lines.out.String(), first) })
	second := a.call("POST", "/v1/executions", `{"workflow": "w", "labels": {"team": "web"}}`).string("id")
	other := a.call("POST", "/v1/executions", `{"workflow": "w"}`).string("id")
	for _, id := range []string{first, other} {
		a.call("POST", "/v1/executions/"+id+"/cancel", "")
	}
	text.until("the cancel is printed", func() bool {
		return strings.Contains(text.out.String(), "pending → cancelled")
	})
	lines.until("both cancels are printed", func() bool {
		return strings.Count(lines.out.String(), `"state":"cancelled"`) == 2
	})
	for _, x := range []*started{text, lines} {
		x.ctrlC()
		x.wait(patience).want(130)
	}
	if got := text.out.String(); strings.Contains(got, other) || !strings.Contains(got, "new → pending") ||
		!strings.Contains(got, second) || strings.Count(got, "\n") != 3 {
		t.Errorf("the states as text:\n%s", got)
	}
	for i, line := range strings.Split(strings.TrimSpace(lines.out.String()), "\n") {
		var x struct {
			Event     string
			Execution belay.ExecutionID
			Cause     belay.SnapshotCause
			Previous  belay.State
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil || (x.Event == "snapshot") != (i == 0) ||
			i == 0 && x.Cause != belay.SnapshotBegin {
			t.Errorf("line %d: %v: %s", i, err, line)
		}
	}
	for args, says := range map[string]string{
		"": "--all", "k --all": "not both", "--all --after 3": "--after", "--state asleep": "--state",
		"--label x": "label", "a b": "one execution",
	} {
		r := p.belay(append([]string{"watch"}, strings.Fields(args)...)...).want(64)
		if !strings.Contains(r.err, says) {
			t.Errorf("belay watch %s\n%s", args, r)
		}
	}
}
