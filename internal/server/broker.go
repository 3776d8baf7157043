package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/dispatch"
	"github.com/belaydev/belay/internal/uid"
)

// BrokerOptions returns the options for connections to the RabbitMQ of a configuration.
func BrokerOptions(cfg *config.Config, log *slog.Logger) broker.Options {
	host, err := os.Hostname()
	if err != nil {
		host = "server"
	}
	return broker.Options{
		URL: cfg.Broker.URL, Prefix: cfg.Broker.Prefix, TTL: cfg.Broker.MessageTTL, Log: log, Random: uid.New,
		Name: fmt.Sprintf("%s/%d", host, os.Getpid()),
	}
}

// Post returns the connections through which a server dispatches the executions of some queues; nil if the
// configuration names none.
func Post(cfg *config.Config, log *slog.Logger) (*dispatch.Post, error) {
	if len(cfg.Broker.Queues) == 0 {
		return nil, nil
	}
	return dispatch.New(BrokerOptions(cfg, log), cfg.Broker.Queues)
}

// dispatch returns the service that keeps the connections to RabbitMQ.
func (s *Server) dispatch(b Engine) func(context.Context) error {
	return func(ctx context.Context) error { return s.opt.Post.Run(ctx, b) }
}

// brokerNotes are warnings for operators about the broker. Without a broker the server works all the same, because
// workers claim.
func (s *Server) brokerNotes() []string {
	if s.opt.Post == nil {
		return nil
	}
	if err := s.opt.Post.State().Ready(); err != nil {
		return []string{"executions are not dispatched through RabbitMQ, so workers claim them: " + err.Error()}
	}
	return nil
}
