package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/uid"
)

// While RabbitMQ does not read, an alarm answers the messages that wait. After a short alarm, as many others can
// wait as before, no caller blocks although no message is written, and the memory does not grow.
func TestAlarmsDoNotBlockPublishers(t *testing.T) {
	t.Parallel()
	const slots = 4
	b, err := New(Options{URL: "amqp://u:p@localhost", Outstanding: slots, Random: uid.New}, ignore)
	if err != nil {
		t.Fatal(err)
	}
	p := b.publisher
	s := p.open(nil, nil) // without send, as if its write blocked
	p.use(s)
	for round := range 10 {
		answers := make(chan error, slots)
		for range slots {
			go func() { answers <- p.publish(ctxOf(t), "q", newMessage()) }()
		}
		await(t, "the messages", func() bool {
			if !s.mu.TryLock() { // a caller blocks with the lock
				return false
			}
			defer s.mu.Unlock()
			return len(s.waiting) == slots
		})
		p.blocked("memory")
		for range slots {
			wants(t, <-answers, belay.CodeUnavailable, "memory")
		}
		if n := len(s.unsent); n > 2*slots {
			t.Fatalf("%d messages are kept in round %d", n, round)
		}
	}
	if w := s.next(); w != nil {
		t.Errorf("%v would be written although it has an answer", w.message)
	}
}

// The two connections do not change the TLS configuration of their caller, which other connections may use.
func TestTLSIsNotChanged(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	config := new(tls.Config)
	o, err := Options{URL: "amqps://u:p@" + l.Addr().String(), TLS: config, Random: uid.New,
		Log: slog.New(slog.DiscardHandler)}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := (&link{options: o}).dial(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v, want the end of the connection", err)
	}
	if config.ServerName != "" {
		t.Errorf("the configuration names the server %q now", config.ServerName)
	}
}
