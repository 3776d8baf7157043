package dispatch_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/dispatch"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/belaydev/belay/internal/uid"
)

// site is an engine that dispatches the queue "sent" through a RabbitMQ.
type site struct {
	t       *testing.T
	server  *mqtest.Server
	vhost   string
	options broker.Options
	post    *dispatch.Post
	engine  *engine.Engine
	numbers atomic.Int64
	started chan belay.Assignment // what workers have accepted
}

func newSite(t *testing.T, ttl time.Duration) *site {
	t.Helper()
	s := &site{t: t, server: mqtest.Shared(t), started: make(chan belay.Assignment, 1000)}
	s.vhost = s.server.VHost(t)
	s.options = broker.Options{
		URL: s.server.URL(s.vhost), Prefix: "belay" + s.server.Name(""), TTL: ttl, Random: uid.New,
		Log: slog.New(slog.DiscardHandler),
	}
	var err error
	if s.post, err = dispatch.New(s.options, []string{"sent"}); err != nil {
		t.Fatal(err)
	}
	s.engine = engine.New(memory.New(time.Now), engine.Options{
		Courier: s.post, Log: slog.New(slog.DiscardHandler), SlowPoll: 200 * time.Millisecond,
	})
	t.Cleanup(func() {
		if err := s.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	s.run(func(ctx context.Context) error { return s.post.Run(ctx, s.engine) })
	s.await("the connections", func() bool { return s.post.State().Ready() == nil })
	return s
}

func (s *site) run(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
		ended <- nil
	}
	s.t.Cleanup(stop)
	return stop
}

// await polls, because the events for which the tests wait happen in another process.
func (s *site) await(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// worker opens a session that messages reach.
func (s *site) worker(name string) (belay.WorkerID, string) {
	s.t.Helper()
	session, err := s.engine.OpenWorker(s.t.Context(), belay.WorkerSpec{
		Name: name, Queues: []string{"sent"}, Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 100,
		TTL: belay.Duration(time.Hour),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := s.engine.OpenMailbox(s.t.Context(), session.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	return session.ID, m.Queue
}

// receive makes a worker accept what it is sent. A message that is out of date is acknowledged.
func (s *site) receive(w belay.WorkerID, queue string) (stop func()) {
	s.t.Helper()
	r, err := broker.NewReceiver(s.options, w, 100, func(ctx context.Context, m broker.Message) error {
		got, err := s.engine.Accept(ctx, belay.AcceptRequest{
			Worker: m.Worker, Number: s.numbers.Add(1), Offers: []belay.Held{{Execution: m.Execution, Token: m.Token}},
		})
		for _, a := range got.Assignments {
			s.started <- a
		}
		if belay.CodeOf(err) == belay.CodeLeaseLost {
			return nil
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := r.Follow(queue); err != nil {
		s.t.Fatal(err)
	}
	s.run(func(ctx context.Context) error { // a worker connects again if its queue is missing
		for ctx.Err() == nil {
			if belay.CodeOf(r.State().Consume.Err) == belay.CodeNotFound {
				if _, err := s.engine.OpenMailbox(ctx, w); err != nil && ctx.Err() == nil {
					s.t.Error(err)
				}
			}
			<-time.After(10 * time.Millisecond)
		}
		return nil
	})
	return s.run(r.Run)
}

func (s *site) submit(change ...func(*belay.Submission)) belay.ExecutionID {
	s.t.Helper()
	x := belay.Submission{Workflow: "w", Queue: "sent"}
	for _, f := range change {
		f(&x)
	}
	out, err := s.engine.Submit(s.t.Context(), x)
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return out[0].ID
}

func (s *site) state(id belay.ExecutionID) belay.Execution {
	s.t.Helper()
	x, err := s.engine.Execution(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

// next waits for the next execution that a worker accepts.
func (s *site) next() belay.Assignment {
	s.t.Helper()
	select {
	case a := <-s.started:
		return a
	case <-time.After(40 * time.Second):
		s.t.Fatalf("no worker accepted an execution; the messages: %+v", s.post.Counters())
		return belay.Assignment{}
	}
}

// Executions reach their worker by messages, also after their queue was deleted.
func TestExecutionsAreSent(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	w, queue := s.worker("a")
	s.receive(w, queue)
	id := s.submit()
	if a := s.next(); a.Lease.Execution != id || s.state(id).State != belay.Running {
		t.Errorf("accepted %v, and %s is %s", a.Lease, id, s.state(id).State)
	}
	s.server.Delete(t, s.vhost, queue)
	id = s.submit()
	if a := s.next(); a.Lease.Execution != id {
		t.Errorf("accepted %v after the queue was deleted", a.Lease)
	}
	if n := len(s.started); n != 0 {
		t.Errorf("%d more executions were accepted", n)
	}
}

// A worker that does not take its messages in time loses them to another worker. With on_expired: fail the
// execution fails, with the words of systems that push work. The first worker's messages are of no use then.
func TestExecutionsOfDeadWorkers(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3*time.Second)
	deaf, queue := s.worker("deaf")
	first := s.submit()
	fails := s.submit(func(x *belay.Submission) { x.Policy.OnExpired = belay.FailExpired })
	s.await("the messages", func() bool { return s.post.Counters().Confirmed == 2 })
	w, other := s.worker("other")
	if err := s.engine.Cordon(t.Context(), belay.Cordon{Worker: w}); err != nil { // until the messages have expired
		t.Fatal(err)
	}
	s.receive(w, other)
	s.await("the failure", func() bool { return s.state(fails).State == belay.Failed })
	x := s.state(fails)
	if x.Error == nil || x.Error.Message != "Message expired in worker queue (worker unavailable)" ||
		x.Error.FailedBy != belay.FailedByDeadLetterHandler {
		t.Errorf("the error is %+v", x.Error)
	}
	if err := s.engine.Cordon(t.Context(), belay.Cordon{Worker: w, Off: true}); err != nil {
		t.Fatal(err)
	}
	if err := s.engine.Drain(t.Context(), deaf); err != nil { // takes back what was scheduled to it again
		t.Fatal(err)
	}
	if a := s.next(); a.Lease.Execution != first || a.Lease.Worker != w {
		t.Errorf("accepted %v", a.Lease)
	}
	s.receive(deaf, queue) // drops what is left
	s.await("the end of the queue", func() bool { return s.server.Queues(t, s.vhost)[queue].Messages == 0 })
	if n := len(s.started); n != 0 {
		t.Errorf("%d more executions were accepted", n)
	}
}

// A purge loses messages, and the scheduled timeout sends their executions again.
func TestPurgedMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	w, queue := s.worker("a")
	id := s.submit(func(x *belay.Submission) { x.Policy.ScheduledTimeout = belay.Duration(2 * time.Second) })
	s.await("the message", func() bool { return s.post.Counters().Confirmed == 1 })
	s.server.Purge(t, s.vhost, queue)
	s.receive(w, queue)
	if a := s.next(); a.Lease.Execution != id {
		t.Errorf("accepted %v", a.Lease)
	}
}
