package test

import (
	"strings"
	"testing"
)

// Rule: the scope worker suffices for every call of belay worker, also for another attempt of a command, which
// continues the log of the former one.
func TestAWorkersKeySufficesForRetries(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, a := p.serve()
	admin := strings.TrimSpace(p.belay("keys", "create", "--name", "me", "--scope", "admin").want(0).out)
	key := strings.TrimSpace(p.belay("keys", "create", "--name", "w", "--scope", "worker").want(0).out)
	work := func(name string) *started {
		return p.start(withEnv(p.command("worker", "--server", a.url, "--name", name, "--ttl", "2s"), "BELAY_KEY="+key))
	}
	first := work("first")
	job := p.start(withEnv(p.command("submit", "command", "--server", a.url, "--wait", "--", "sh", "-c",
		`echo a line; test "$BELAY_TOKEN" != 1 || sleep 300`), "BELAY_KEY="+admin))
	until(t, "the first attempt has begun", func() bool { return strings.Contains(first.err.String(), "run begins") })
	must(t, first.cmd.Process.Kill())
	work("second")
	job.wait(patience).want(0)
}
