package test

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/testkit/mqtest"
)

// event is a message of an exchange, as amqp.js prints it.
type event struct {
	MessageID, Type, RoutingKey, Body string
	Headers                           map[string]any
}

// Rule: a client of another language (npm amqplib) publishes to the queue of a webhook, and each of its messages starts
// one execution, however often it sends them. It reads from an exchange that each of these executions has ended.
func TestAnotherClientPublishesAndListens(t *testing.T) {
	t.Parallel()
	const n = 40
	mq := mqtest.Shared(t)
	url := mq.URL(mq.VHost(t))
	dir, run := npmProject(t, "amqp-npm", "package.json", "package-lock.json", "amqp.js")
	run("node", "amqp.js", url, "declare", "orders", "rejected")

	p := newPlace(t)
	p.more = []string{brokerEnv + "=" + url}
	_, a := p.serve("--defaults-on-no-worker", "fail")
	belay := func(args ...string) result { t.Helper(); return p.belay(append(args, "--server", a.url)...) }
	belay("webhooks", "set", "orders", "ship", "--scheme", "amqp", "--amqp-queue", "orders").want(0)
	belay("notify", "set", "events", "--exchange", "amq.topic").want(0)

	listener := exec.Command("node", filepath.Join(dir, "amqp.js"), url, "consume", "amq.topic", "execution.completed",
		"40")
	out, err := listener.StdoutPipe()
	must(t, err)
	must(t, listener.Start())
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the listener says %q", lines.Text())
	}
	run("node", "amqp.js", url, "publish", "orders", "order", "40")
	run("node", "amqp.js", url, "publish", "orders", "order", "40", "order.again")

	seen := make(map[string]bool)
	for lines.Scan() {
		var e event
		must(t, json.Unmarshal(lines.Bytes(), &e))
		id, _ := e.Headers["execution"].(string)
		if e.Type != "execution.completed" || !strings.Contains(e.Body, id) || e.Headers["workflow"] != "ship" {
			t.Errorf("the event %s", lines.Text())
		}
		if id == "" || seen[id] {
			t.Errorf("the execution %q is reported twice, or without an id", id)
		}
		seen[id] = true
	}
	must(t, listener.Wait())
	var all []struct{ ID string }
	must(t, json.Unmarshal([]byte(belay("ls", "--workflow", "ship", "--limit", "200", "-o", "json").want(0).out), &all))
	if len(seen) != n || len(all) != n {
		t.Errorf("%d events and %d executions for %d messages", len(seen), len(all), n)
	}
	for _, x := range all {
		if !seen[x.ID] {
			t.Errorf("the end of %s is not reported", x.ID)
		}
	}
	if left := strings.TrimSpace(run("node", "amqp.js", url, "count", "orders")); left != "0" {
		t.Errorf("%s messages are left in the queue", left)
	}
	if dead := strings.TrimSpace(run("node", "amqp.js", url, "count", "rejected")); dead != "0" {
		t.Errorf("%s messages were rejected", dead)
	}
}
