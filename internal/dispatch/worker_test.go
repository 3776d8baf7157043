package dispatch_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// hire starts a worker that connects to the broker, and returns what it runs.
func (s *site) hire(url string, change ...func(*worker.Options)) <-chan belay.ExecutionID {
	s.t.Helper()
	ran := make(chan belay.ExecutionID, 1000)
	o := worker.Options{
		Name: "w", Queues: []string{"sent"}, Broker: url, Log: slog.New(slog.DiscardHandler),
		Heartbeat: 2 * time.Second,
	}
	for _, f := range change {
		f(&o)
	}
	w := worker.New(s.engine, o)
	worker.Register(w, "w", note(ran))
	s.run(w.Run)
	return ran
}

// note is a workflow that reports each of its runs.
func note(ran chan<- belay.ExecutionID) func(context.Context, any) (any, error) {
	return func(ctx context.Context, _ any) (any, error) {
		ran <- workflow.Execution(ctx)
		return nil, nil
	}
}

// Package worker gets its executions by messages, and after its queue was deleted, or while RabbitMQ cannot be
// reached, by heartbeats and claims.
func TestWorkersReceive(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	ran := s.hire(s.options.URL)
	next := func(why string, within time.Duration) {
		t.Helper()
		id, began := s.submit(), time.Now()
		select {
		case got := <-ran:
			if got != id {
				t.Errorf("%s: ran %s, want %s", why, got, id)
			}
		case <-time.After(within):
			t.Fatalf("%s: not run; it is %s; %+v", why, s.state(id).State, s.post.Counters())
		}
		t.Logf("%s: %s", why, time.Since(began))
	}
	s.await("the mailbox", func() bool { return s.mailbox() != "" })
	s.await("a message", func() bool {
		next("at the start", 10*time.Second)
		return s.post.Counters().Published > 0
	})
	n := s.post.Counters().Published
	next("by a message", 10*time.Second)
	if got := s.post.Counters().Published; got != n+1 {
		t.Errorf("%d messages, want %d", got, n+1)
	}
	s.server.Delete(t, s.vhost, s.mailbox())
	next("after the queue was deleted", 10*time.Second)
	next("after that", 10*time.Second)
}

func (s *site) mailbox() string {
	all, err := s.engine.Workers(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, w := range all {
		if w.Mailbox != "" {
			return w.Mailbox
		}
	}
	return ""
}
