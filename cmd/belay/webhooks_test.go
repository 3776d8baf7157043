package main

import (
	"strings"
	"testing"
)

// Rule: belay refuses a wrong webhook before it asks a server. If --secret has a secret instead of a name, the error
// does not repeat the secret.
func TestWrongWebhooksAreRefused(t *testing.T) {
	dir := t.TempDir() + "/data"
	for _, c := range []struct {
		args []string
		want string
		code int
	}{
		{nil, "name the webhook", 64},
		{[]string{"w", "--secret", "A", "review"}, "say with --scheme how the sender signs: hmac, standard", 64},
		{[]string{"w", "--secret", "A", "--scheme", "md5", "review"}, `--scheme is "md5"; it can be hmac`, 64},
		{[]string{"w", "--scheme", "github", "review"}, "name one secret with --secret", 64},
		{[]string{"w", "--scheme", "github", "--secret", "A,B,C", "review"}, "there are 3", 64},
		{[]string{"w", "--scheme", "github", "--secret", "A"}, "name one workflow", 64},
		{[]string{"w", "--scheme", "hmac", "--secret", "A", "review"}, "needs the header with the signature", 64},
		{[]string{"w", "--scheme", "github", "--secret", "A", "--hmac-header", "X", "review"}, "and not of github", 64},
		{[]string{"w", "--scheme", "amqp", "review"}, "needs the name of a queue", 64},
		{[]string{"w", "--scheme", "amqp", "--amqp-queue", "q", "--secret", "A", "review"}, "has no secret", 64},
		{[]string{"w", "--scheme", "github", "--secret", "A", "--amqp-queue", "q", "review"}, "and not of github", 64},
		{[]string{"w", "--scheme", "amqp", "--amqp-queue", "q", "--hmac-header", "X", "review"}, "and not of amqp", 64},
		{[]string{"w", "--scheme", "amqp", "--amqp-queue", "amq.gen-1", "review"}, "belong to RabbitMQ", 65},
		{[]string{"w", "--scheme", "amqp", "--amqp-queue", "q", "--amqp-without-id", "x", "w"}, "refuse or hash", 65},
		{[]string{"w", "--scheme", "github", "--secret", "A", "--label", "x", "review"}, "of the form name=value", 64},
		{[]string{"w", "--scheme", "github", "--secret", "A", "--filter", "event.id ==", "review"}, "filter: ", 65},
		{[]string{"w", "--scheme", "github", "--secret", "A", "http", "--input", "1"}, "is not an object", 65},
		{[]string{"w x", "--scheme", "github", "--secret", "A", "review"}, "the name of a webhook", 65},
	} {
		code, out, errs := belayIn(t, dir, append([]string{"webhooks", "set"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%q: exit code %d, want %d and %q in\n%s%s", c.args, code, c.code, c.want, out, errs)
		}
	}
	for _, secret := range []string{"my secret", "whsec_c2VjcmV0", "deadbeefdeadbeefdeadbeefdeadbeef", "abc123$"} {
		code, _, errs := belayIn(t, dir, "webhooks", "set", "w", "--scheme", "standard", "--secret", secret, "review")
		if code != 64 || !strings.Contains(errs, "Do not give the secret itself") || strings.Contains(errs, secret) {
			t.Errorf("%s: exit code %d: %s", secret, code, errs)
		}
	}
}

// Rule: a webhook can start commands with values of the delivery; the label with the command, which Belay shortens,
// does not cut an expression in two.
func TestAWebhookStartsCommands(t *testing.T) {
	dir := t.TempDir() + "/data"
	name := strings.Repeat("x", 60)
	code, out, errs := belayIn(t, dir, "webhooks", "set", "w", "--scheme", "hmac", "--hmac-header", "X-Signature",
		"--secret", "${{ secrets.SHOP }}", "--label", "a=b", "command", "--", "echo", "${{ event.data."+name+" }}")
	if code != 0 || !strings.Contains(out, `"SHOP for webhook:w"`) {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	code, out, errs = belayIn(t, dir, "webhooks", "test", "w", "--body", `{"`+name+`": "hello"}`)
	if code != 0 || !strings.Contains(out, "started") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	if code, out, errs = belayIn(t, dir, "get", "@last", "-o", "json"); !strings.Contains(out, `"hello"`) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// Rule: belay webhooks shows the queue of a webhook, and says that servers consume it.
func TestTheQueueOfAWebhookIsShown(t *testing.T) {
	dir := t.TempDir() + "/data"
	for _, c := range []struct{ command, want string }{
		{"set orders --scheme amqp --amqp-queue shop.orders --amqp-without-id hash --filter event.data.n>0 ship",
			"Servers with a broker consume the queue shop.orders"},
		{"ls", "amqp"}, {"get orders", "the queue shop.orders in RabbitMQ"}, {"get orders -o json", `"without_id": "hash"`},
		{`test orders --body {"n":1}`, "started"}, {"pause orders", "orders is paused"},
	} {
		code, out, errs := belayIn(t, dir, append([]string{"webhooks"}, strings.Fields(c.command)...)...)
		if code != 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, want %q in\n%s%s", c.command, code, c.want, out, errs)
		}
	}
	if _, out, errs := belayIn(t, dir, "get", "@last", "-o", "json"); !strings.Contains(out, `"trigger": "queue"`) {
		t.Errorf("%s%s", out, errs)
	}
}
