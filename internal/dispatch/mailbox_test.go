package dispatch_test

import (
	"context"
	"log/slog"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/testkit/faultproxy"
	"github.com/belaydev/belay/worker"
)

// unsure is a backend whose first answer to CloseMailbox is lost. Then the function after is called.
type unsure struct {
	*engine.Engine
	closed atomic.Int32
	after  func()
}

func (u *unsure) CloseMailbox(ctx context.Context, w belay.WorkerID) error {
	err := u.Engine.CloseMailbox(ctx, w)
	if u.closed.Add(1) > 1 {
		return err
	}
	u.after()
	return &belay.Error{Code: belay.CodeUnavailable, Message: "the answer is lost"}
}

// A worker that was cut off from RabbitMQ, and does not know whether the server has closed its mailbox, opens the
// mailbox again when it can reach RabbitMQ. Otherwise it would get nothing: it would claim nothing, because messages
// reach it, and the server would send none.
func TestAMailboxThatTheServerMayHaveClosed(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	at, err := url.Parse(s.options.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := faultproxy.Listen(at.Host, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	at.Host = proxy.Addr()
	b := &unsure{Engine: s.engine, after: proxy.Heal}
	ran := make(chan belay.ExecutionID, 10)
	w := worker.New(b, worker.Options{
		Name: "w", Queues: []string{"sent"}, Broker: at.String(), Log: slog.New(slog.DiscardHandler),
		Heartbeat: 2 * time.Second,
	})
	worker.Register(w, "w", note(ran))
	s.run(w.Run)
	s.await("the mailbox", func() bool { return s.mailbox() != "" })
	proxy.Set(faultproxy.Fault{Refuse: true})
	proxy.Cut()
	s.await("the end of the mailbox", func() bool { return b.closed.Load() > 0 })
	s.await("the mailbox again", func() bool { return s.mailbox() != "" })
	id := s.submit()
	select {
	case got := <-ran:
		if got != id {
			t.Errorf("ran %s, want %s", got, id)
		}
	case <-time.After(30 * time.Second):
		t.Errorf("the execution does not run; it is %s", s.state(id).State)
	}
}
