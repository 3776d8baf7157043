package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Rule: a server with broker.url publishes to the exchanges that targets name, but not to its own. While RabbitMQ is
// away, the delivery says so, without the password. A server without broker.url refuses such targets.
func TestTargetsAtExchangesFromTheCommandLine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	file := filepath.Join(p.root, "belay.yaml")
	text := "broker: {url: 'amqp://belay:hunter2@127.0.0.1:1/v'}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, a := p.serve("--config", file)
	targets := func(args ...string) result {
		t.Helper()
		r := p.belay(append([]string{"--server", a.url, "notify"}, args...)...)
		if strings.Contains(r.out+r.err, "hunter2") {
			t.Errorf("the output has the password\n%s", r)
		}
		return r
	}
	targets("set", "own", "--exchange", "belay.dead.1").want(77).saying("are not for events")
	targets("set", "events", "--exchange", "orders", "--routing-key", "k").want(0).showing("broker.url")
	targets("ls").want(0).showing("exchange orders", "failed, succeeded, cancelled")
	targets("test", "events", "--wait", "4s").want(1).saying("events has not received the test", "RabbitMQ")
	until(t, "the server says that messages wait", func() bool {
		text := a.call("GET", "/readyz", "").text
		if strings.Contains(text, "hunter2") {
			t.Errorf("the notes have the password: %s", text)
		}
		return strings.Contains(text, "messages to exchanges of RabbitMQ wait")
	})
	p.belay("--server", a.url, "submit", "belay.publish").want(77).saying("belay notify set")

	other := newPlace(t)
	_, b := other.serve()
	other.belay("--server", b.url, "notify", "set", "events", "--exchange", "orders").want(73).saying("broker.url")
}
