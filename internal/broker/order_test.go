package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/publishtask"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/belaydev/belay/internal/uid"
	"github.com/belaydev/belay/worker"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Rule: an execution ends while its exchange is missing, and ends again after it was declared. Both messages arrive, in
// the order of the ends: the second delivery waits for the next attempt of the first. (The test is here so that it
// shares the RabbitMQ of this package.)
func TestEndsReachAnExchangeInOrder(t *testing.T) {
	t.Parallel()
	server := mqtest.Shared(t)
	url, name := server.URL(server.VHost(t)), server.Name("belay-ends")
	quiet := slog.New(slog.DiscardHandler)
	x, err := broker.NewExchanges(broker.Options{
		URL: url, Prefix: "belay" + server.Name(""), Random: uid.New, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := embedded.Open(t.Context(), "memory:", embedded.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(b, worker.Options{Log: quiet, Grace: -1})
	worker.Register(w, belay.PublishWorkflow, publishtask.New(x, func() belay.Backend { return b }).Run)
	worker.Register(w, "broken", func(context.Context, json.RawMessage) (any, error) {
		return nil, belay.Permanent(errors.New("it is broken"))
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- x.Run(ctx) }()
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, <-ended, b.Close()); err != nil {
			t.Error(err)
		}
	})
	if _, err := b.PutNotificationTarget(t.Context(), belay.NotificationTargetPut{
		NotificationTarget: belay.NotificationTarget{Name: "t", Exchange: name},
	}); err != nil {
		t.Fatal(err)
	}
	out, err := b.Submit(t.Context(), belay.Submission{Workflow: "broken"})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	id := out[0].ID
	first := belay.TargetNotificationID(id, 1, "t")
	await(t, "the refusal of the first message", func() bool {
		d, err := b.Execution(t.Context(), first)
		return err == nil && d.Attempt == 2 && d.State == belay.Pending
	})
	c, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	got := consume(t, c, name)
	if _, err := b.Control(t.Context(), belay.Control{Execution: id, Action: belay.ActionRetry}); err != nil {
		t.Fatal(err)
	}
	for want := int64(1); want <= 2; want++ {
		select {
		case m := <-got:
			if m.Headers["sequence"] != want || m.MessageId != belay.TargetNotificationID(id, int(want), "t").String() {
				t.Errorf("message %d is %+v", want, m)
			}
		case <-time.After(40 * time.Second):
			t.Fatalf("message %d did not arrive", want)
		}
	}
	if d, err := b.Execution(t.Context(), belay.TargetNotificationID(id, 2, "t")); err != nil || d.Attempt != 1 {
		t.Errorf("the second delivery is %+v, %v", d, err)
	}
}

// consume declares an exchange, and receives its messages.
func consume(t *testing.T, c *amqp.Connection, exchange string) <-chan amqp.Delivery {
	t.Helper()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare(exchange, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(exchange, belay.CompletedEvent, exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	got, err := ch.Consume(exchange, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// await polls, because the events for which the test waits happen in other goroutines and another process.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
