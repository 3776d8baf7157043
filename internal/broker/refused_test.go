package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/belaydev/belay/internal/uid"
	amqp "github.com/rabbitmq/amqp091-go"
)

// troubled waits for an error of the connection for consuming.
func troubled(t *testing.T, b *Broker, code belay.Code) error {
	t.Helper()
	await(t, "an error "+string(code), func() bool { return belay.CodeOf(b.State().Consume.Err) == code })
	return b.State().Consume.Err
}

// A wrong password is reported with the user and the action, without the password.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	right := s.server.User(t, s.vhost, mqtest.Permissions{})
	u, err := url.Parse(right)
	if err != nil {
		t.Fatal(err)
	}
	const secret = "not-the-password-of-this-user"
	u.User = url.UserPassword(u.User.Username(), secret)
	s.options.URL = u.String()
	b := s.start(ignore)
	err = troubled(t, b, belay.CodeUnauthorized)
	wants(t, err, belay.CodeUnauthorized, u.User.Username(), "change_password", s.server.Address())
	m := newMessage()
	await(t, "the other connection", func() bool { return b.State().Publish.Err != nil })
	err = b.Publish(ctxOf(t), workerQueue(s.options.Prefix, m.Worker, b.options.TTL).name, m)
	wants(t, err, belay.CodeUnavailable, "change_password")
	for _, text := range []string{err.Error(), s.log.String(), b.State().Ready().Error()} {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the password", text)
		}
	}
}

// A missing virtual host is reported with the command that creates it.
func TestMissingVirtualHost(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	if s.server.Outside() {
		t.Skip("the user of the server may have only its own virtual host")
	}
	s.options.URL = s.server.URL("no such host")
	wants(t, troubled(t, s.start(ignore), belay.CodeForbidden), belay.CodeForbidden, "no such host", "add_vhost")
}

// Missing permissions are reported with the command that gives them, and Belay goes on as soon as they are
// there. The command's permissions are enough.
func TestMissingPermissions(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t)).alone()
	s.options.URL = s.server.User(t, s.vhost, mqtest.Permissions{Read: ".*"})
	b := s.start(ignore)
	err := troubled(t, b, belay.CodeForbidden)
	wants(t, err, belay.CodeForbidden, "rabbitmqctl set_permissions", s.vhost, "'^"+s.options.Prefix+`\.'`)
	p := "^" + s.options.Prefix + `\.`
	s.server.Permit(t, s.options.URL, s.vhost, mqtest.Permissions{Configure: p, Read: p, Write: p})
	await(t, "the dead-letter queue", func() bool { return b.State().Consume.Connected })
	m := newMessage()
	queue := declared(t, b, m)
	await(t, "the connection", func() bool { return b.State().Publish.Connected })
	wants(t, b.Publish(ctxOf(t), queue, m), belay.CodeForbidden, "amq.default", "rabbitmqctl set_permissions")
	all := strings.Split(b.options.permit("v", "u"), "'")
	s.server.Permit(t, s.options.URL, s.vhost, mqtest.Permissions{Configure: all[5], Write: all[7], Read: all[9]})
	await(t, "a message", func() bool { return b.Publish(ctxOf(t), queue, m) == nil })
}

// The errors of two attempts that fail in the same way are equal, although the system chooses another port for each:
// the log has an error once, and not for each attempt.
func TestErrorsAreTheSameForAllAttempts(t *testing.T) {
	t.Parallel()
	text := new(logs)
	l := &link{options: Options{URL: "amqp://u:p@[::1]:5672"}, log: slog.New(slog.NewTextHandler(text, nil))}
	for port := range 10 {
		reason := fmt.Sprintf("read tcp [::1]:4%d->[::1]:5672: read: connection reset by peer", port)
		l.down(l.options.explain("connect", errors.New(reason)))
	}
	for port := range 10 {
		reason := fmt.Sprintf("read tcp [::1]:4%d->[::1]:5672: read: connection reset by peer", port)
		l.down(l.options.explain("connect", &amqp.Error{Code: amqp.FrameError, Reason: reason}))
	}
	if n := strings.Count(text.String(), "connection reset by peer"); n != 2 {
		t.Errorf("%d lines: %s", n, text)
	}
}

// A queue of that name with other arguments is reported.
func TestForeignDeclaration(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	b := s.ready(ignore)
	m := newMessage()
	d := workerQueue(s.options.Prefix, m.Worker, b.options.TTL)
	s.raw(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(d.name, true, false, false, false, nil)
		return err
	})
	_, err := b.Declare(ctxOf(t), m.Worker)
	wants(t, err, belay.CodeConflict, d.name, "prefix")
}

// Without a RabbitMQ, calls fail at once, and the state says where none was found.
func TestNoRabbitMQ(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	b, err := New(Options{URL: "amqp://u:secret-word@" + address, Random: uid.New, Log: slog.New(slog.DiscardHandler)}, ignore)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	await(t, "an error", func() bool { return b.State().Consume.Err != nil && b.State().Publish.Err != nil })
	wants(t, b.State().Ready(), belay.CodeUnavailable, address, "cannot be reached")
	_, err = b.Declare(ctx, newMessage().Worker)
	wants(t, err, belay.CodeUnavailable, "no connection")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Options that cannot work are refused, and no error has a part of the URL.
func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	const right = "amqp://user:secret-word@localhost:5672/v"
	for _, c := range []struct {
		options Options
		want    string
	}{
		{Options{}, "is missing"},
		{Options{URL: "amqp://user:secret-word%zz@localhost"}, "cannot be read"},
		{Options{URL: "http://user:secret-word@localhost"}, "is not one"},
		{Options{URL: "amqp://user:secret-word@localhost/v?heartbeat=x"}, "cannot be used"},
		{Options{URL: right, Prefix: "amq"}, "prefix"},
		{Options{URL: right, Prefix: "a.b"}, "prefix"},
		{Options{URL: right, Prefix: strings.Repeat("a", 61)}, "prefix"},
		{Options{URL: right, TTL: time.Millisecond}, "1ms"},
		{Options{URL: right, TTL: 25 * time.Hour}, "25h"},
		{Options{URL: right, ConfirmTimeout: -1}, "confirm"},
		{Options{URL: right, Outstanding: 1 << 20}, "1048576"},
	} {
		_, err := New(c.options, ignore)
		wants(t, err, belay.CodeInvalid, c.want)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%v has the password", err)
		}
		if _, err := NewReceiver(c.options, newMessage().Worker, 1, nil); belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("a receiver with these options: %v", err)
		}
	}
	if _, err := New(Options{URL: right}, ignore); err != nil {
		t.Error(err)
	}
	if _, err := NewReceiver(Options{URL: right}, newMessage().Worker, 0, nil); belay.CodeOf(err) != belay.CodeInvalid {
		t.Errorf("a receiver without slots: %v", err)
	}
}
