package test

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// Rule: if no engine runs, belay doctor advises a command; that command starts an engine, which
// does the overdue work. For an execution that only its own belay run can run, belay explain says
// so while an engine runs, and advises a command line; that command line continues the execution.
func TestTheAdviceOfDoctorAndExplainWorks(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	line := []string{"run", "--repo", "none", "--key", "k", "--step", "one=echo first >> " + p.path("trace"),
		"--step", "two=echo up; " + busy(p.path("free"))}
	x := p.start(p.command(line...))
	x.until("the second step runs", func() bool { return strings.Contains(x.out.String(), "up") })
	x.signal(syscall.SIGKILL)
	x.wait(patience)
	until(t, "the time of the session is over", func() bool {
		return strings.Contains(p.belay("doctor").want(0).out, "wait for an engine; `belay serve` starts one")
	})
	server, _ := p.serve()
	until(t, "the engine has done the overdue work", func() bool {
		out := p.belay("doctor").want(0).out
		return strings.Contains(out, "overdue") && strings.Contains(out, "nothing")
	})
	until(t, "explain says how the execution goes on", func() bool {
		return strings.Contains(p.belay("explain", "k").want(0).out,
			"only belay run runs this execution, and the belay run that began it has ended: to continue, type the "+
				"same line again, with --resume or its --key")
	})
	p.belay("ls").want(0).showing("pending")
	if err := os.WriteFile(p.path("free"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.belay(line...).want(0)
	if trace := read(t, p.path("trace")); trace != "first\n" {
		t.Errorf("the finished step ran again: %q", trace)
	}
	server.signal(syscall.SIGTERM)
	server.wait(patience).want(0)
}

// Rule: the JSON that commands print has durations also in milliseconds.
func TestJSONOutputHasMilliseconds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.belay("submit", "w", "--timeout", "90s").want(0)
	for _, args := range [][]string{{"get", "@last"}, {"ls"}} {
		p.belay(append(args, "-o", "json")...).want(0).showing(`"timeout": "1m30s"`, `"timeout_ms": 90000`)
	}
}
