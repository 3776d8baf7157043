package broker

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/belaydev/belay/internal/uid"
	amqp "github.com/rabbitmq/amqp091-go"
)

// site is a broker with a prefix of its own, which other tests do not disturb. The tests share a server and, unless
// they close connections or change permissions, its virtual host.
type site struct {
	t       *testing.T
	server  *mqtest.Server
	vhost   string
	options Options
	log     *logs
}

// logs collects what is logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newSite prepares options for the server. Tests change them before they start something.
func newSite(t *testing.T, server *mqtest.Server) *site {
	t.Helper()
	s := &site{t: t, server: server, vhost: server.Common(), log: new(logs)}
	s.options = Options{
		URL: server.URL(s.vhost), Name: t.Name(), Prefix: "belay" + server.Name(""),
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Random: uid.New, later: 100 * time.Millisecond,
	}
	t.Cleanup(func() {
		u, err := url.Parse(s.options.URL)
		if err != nil {
			t.Fatal(err)
		}
		if secret, _ := u.User.Password(); len(secret) > 10 && bytes.Contains([]byte(s.log.String()), []byte(secret)) {
			t.Errorf("the log has the password: %s", s.log)
		}
		if t.Failed() {
			t.Log(s.log)
		}
	})
	return s
}

// alone gives the site a virtual host of its own.
func (s *site) alone() *site {
	s.t.Helper()
	s.vhost = s.server.VHost(s.t)
	s.options.URL = s.server.URL(s.vhost)
	return s
}

// start starts a broker, and stops it at the end of the test.
func (s *site) start(dead func(context.Context, Dead) error) *Broker {
	s.t.Helper()
	b, err := New(s.options, dead)
	if err != nil {
		s.t.Fatal(err)
	}
	s.run(b.Run)
	return b
}

// ready starts a broker and waits until it is ready.
func (s *site) ready(dead func(context.Context, Dead) error) *Broker {
	s.t.Helper()
	b := s.start(dead)
	await(s.t, "the connections", func() bool { return b.State().Ready() == nil })
	return b
}

// receive starts a receiver of a queue.
func (s *site) receive(w belay.WorkerID, queue string, handle func(context.Context, Message) error) *Receiver {
	s.t.Helper()
	r, err := NewReceiver(s.options, w, 10, handle)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := r.Follow(queue); err != nil {
		s.t.Fatal(err)
	}
	s.run(r.Run)
	return r
}

func (s *site) run(run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		select {
		case err := <-ended:
			if err != nil {
				s.t.Error(err)
			}
		case <-time.After(20 * time.Second):
			s.t.Error("the service does not stop")
		}
	})
}

// raw calls f with a channel of a connection that is not Belay's.
func (s *site) raw(f func(*amqp.Channel) error) {
	s.t.Helper()
	if err := s.try(f); err != nil {
		s.t.Fatal(err)
	}
}

// try is raw for a call that may fail.
func (s *site) try(f func(*amqp.Channel) error) error {
	s.t.Helper()
	c, err := amqp.Dial(s.options.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ch, err := c.Channel()
	if err != nil {
		s.t.Fatal(err)
	}
	return f(ch)
}

// put publishes messages to queues as a program that is not Belay would, and waits for their confirmations: a
// channel that ends loses what it has not handed to a quorum queue yet. A queue may refuse a message for a moment.
func (s *site) put(queues []string, all ...amqp.Publishing) {
	s.t.Helper()
	s.raw(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		for _, p := range all {
			for _, q := range queues {
				for ok := false; !ok; {
					c, err := ch.PublishWithDeferredConfirm("", q, false, false, p)
					if err != nil {
						return err
					}
					if ok, err = c.WaitContext(ctxOf(s.t)); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// depth returns how many messages are ready in a queue.
func (s *site) depth(queue string) (n int) {
	s.t.Helper()
	s.raw(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		n = q.Messages
		return err
	})
	return n
}

func ctxOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newMessage makes a message for a new worker.
func newMessage() Message {
	return Message{Execution: belay.ExecutionID(uid.New()), Token: 1<<32 + 7, Worker: belay.WorkerID(uid.New())}
}

// declared declares the queue of the message's worker.
func declared(t *testing.T, b *Broker, m Message) string {
	t.Helper()
	queue, err := b.Declare(ctxOf(t), m.Worker)
	if err != nil {
		t.Fatal(err)
	}
	return queue
}

func publish(t *testing.T, b *Broker, queue string, m Message) {
	t.Helper()
	if err := b.Publish(ctxOf(t), queue, m); err != nil {
		t.Fatal(err)
	}
}

// inbox collects what arrives.
type inbox[T any] struct {
	mu  sync.Mutex
	all []T
}

func (i *inbox[T]) put(_ context.Context, x T) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, x)
	return nil
}

func (i *inbox[T]) list() []T {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]T(nil), i.all...)
}

// wait waits until n have arrived, and returns them.
func (i *inbox[T]) wait(t *testing.T, n int) []T {
	t.Helper()
	await(t, "arrivals", func() bool { return len(i.list()) >= n })
	return i.list()
}

// ignore handles dead letters in tests that expect none.
func ignore(context.Context, Dead) error { return nil }

// await polls, because the events for which the tests wait happen in another process.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !done(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// wants fails the test unless an error has the code, and its text contains all the words.
func wants(t *testing.T, err error, code belay.Code, words ...string) {
	t.Helper()
	if belay.CodeOf(err) != code {
		t.Errorf("the error is %v (%s), want %s", err, belay.CodeOf(err), code)
		return
	}
	for _, w := range words {
		if !bytes.Contains([]byte(err.Error()), []byte(w)) {
			t.Errorf("the error is %v; want %q in it", err, w)
		}
	}
}
