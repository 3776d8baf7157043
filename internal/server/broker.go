package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/dispatch"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/queuetrigger"
	"github.com/belaydev/belay/internal/secret"
	"github.com/belaydev/belay/internal/uid"
)

// BrokerOptions returns the options for connections to the RabbitMQ of a configuration.
func BrokerOptions(cfg *config.Config, log *slog.Logger) (broker.Options, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "server"
	}
	o := broker.Options{
		URL: cfg.Broker.URL, Prefix: cfg.Broker.Prefix, TTL: cfg.Broker.MessageTTL, Log: log, Random: uid.New,
		Name: fmt.Sprintf("%s/%d", host, os.Getpid()),
	}
	o.URL, err = BrokerURL(cfg)
	return o, err
}

// maxPassword is the largest size of the file with the password, in bytes.
const maxPassword = 4 << 10

// BrokerURL returns the URL of RabbitMQ, with the password from the file that the configuration names. The result is
// a secret.
func BrokerURL(cfg *config.Config) (string, error) {
	path := cfg.Broker.PasswordFile
	if path == "" {
		return cfg.Broker.URL, nil
	}
	refuse := func(why string) error {
		return &belay.Error{Code: belay.CodeInvalid, Op: "read broker.password_file", Message: why}
	}
	u, err := url.Parse(cfg.Broker.URL)
	if err != nil || u.User.Username() == "" {
		return "", refuse("a password needs a user: write one into broker.url, as in amqp://USER@HOST:5672/VHOST")
	}
	if _, has := u.User.Password(); has {
		return "", refuse("broker.url has a password too; remove one of the two")
	}
	text, err := secret.Read(path, maxPassword)
	if err != nil {
		return "", fmt.Errorf("read broker.password_file: %w", err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", refuse("the file " + path + " is empty")
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String(), nil
}

// Post returns the connections through which a server dispatches the executions of some queues; nil if the
// configuration names none.
func Post(cfg *config.Config, log *slog.Logger) (*dispatch.Post, error) {
	if len(cfg.Broker.Queues) == 0 {
		return nil, nil
	}
	o, err := BrokerOptions(cfg, log)
	if err != nil {
		return nil, err
	}
	return dispatch.New(o, cfg.Broker.Queues)
}

// Triggers returns the consumer of queues in the RabbitMQ of a configuration, for webhooks of the scheme amqp; nil if
// there is no RabbitMQ.
func Triggers(cfg *config.Config, log *slog.Logger) (*queuetrigger.Service, error) {
	if cfg.Broker.URL == "" {
		return nil, nil
	}
	o, err := BrokerOptions(cfg, log)
	if err != nil {
		return nil, err
	}
	return queuetrigger.New(o)
}

// consume returns the service that consumes the queues of webhooks.
func (s *Server) consume(b Engine, admit map[string]httpapi.Admission) func(context.Context) error {
	return func(ctx context.Context) error {
		return s.opt.Triggers.Run(ctx, httpapi.Admitting(b, admit), b.WebhooksChanged, s.metrics.Delivery)
	}
}

// dispatch returns the service that keeps the connections to RabbitMQ.
func (s *Server) dispatch(b Engine) func(context.Context) error {
	return func(ctx context.Context) error { return s.opt.Post.Run(ctx, b) }
}

// brokerNotes are warnings for operators about the broker. Without a broker the server works all the same: workers
// claim, and messages to exchanges wait.
func (s *Server) brokerNotes() []string {
	var notes []string
	if p := s.opt.Post; p != nil {
		if err := p.State().Ready(); err != nil {
			notes = append(notes, "executions are not dispatched through RabbitMQ, so workers claim them: "+err.Error())
		}
	}
	if t := s.opt.Triggers; t != nil {
		if l := t.State().Consume; !l.Connected && l.Err != nil {
			notes = append(notes, "the queues of webhooks in RabbitMQ are not read: "+l.Err.Error())
		}
	}
	if x := s.opt.Exchanges; x != nil {
		if l := x.State(); !l.Connected && l.Err != nil {
			notes = append(notes, "messages to exchanges of RabbitMQ wait: "+l.Err.Error())
		}
	}
	return notes
}
