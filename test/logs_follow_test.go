package test

import (
	"strings"
	"testing"
)

// Rule: belay logs --follow writes the output of a running command while it is written, and ends with the execution.
func TestLogsFollowARunningCommand(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	key := strings.TrimSpace(p.belay("keys", "create", "--name", "me", "--scope", "admin").want(0).out)
	p.more = append(p.more, "BELAY_KEY="+key)
	p.start(p.command("worker", "--server", a.url))
	id := strings.TrimSpace(p.belay("submit", "command", "--server", a.url, "--", "sh", "-c",
		"echo first; sleep 1; echo second; sleep 600").want(0).out)
	x := p.start(p.command("logs", "--follow", "--server", a.url, id))
	x.until("the second line", func() bool { return strings.Contains(x.out.String(), "first\nsecond\n") })
	if x.ended() {
		t.Fatal("the command has ended before the execution")
	}
	p.belay("cancel", "--server", a.url, id).want(0)
	if r := x.wait(patience).want(0); r.out != "first\nsecond\n" {
		t.Errorf("the log is %q", r.out)
	}
}
