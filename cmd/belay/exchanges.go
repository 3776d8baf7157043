package main

import (
	"cmp"
	"log/slog"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/publishtask"
	"github.com/belaydev/belay/internal/server"
)

// publishesAtOnce is how many messages to exchanges a server publishes at the same time.
const publishesAtOnce = 20

// addPublishing adds the workflow of messages to exchanges of RabbitMQ to the workflows that the server runs itself, if
// the configuration has a RabbitMQ.
func (s *serving) addPublishing(o *server.Options) error {
	if s.cfg.Broker.URL == "" {
		return nil
	}
	broking, err := server.BrokerOptions(s.cfg, s.log)
	if err != nil {
		return err
	}
	x, err := broker.NewExchanges(broking)
	if err != nil {
		return err
	}
	p := publishtask.New(x, func() belay.Backend { return s.backend })
	o.Services, o.Exchanges = append(o.Services, x.Run), x
	o.Admit[belay.PublishWorkflow] = p.Admit
	o.Builtins = append(o.Builtins, server.Builtin{
		Workflow: belay.PublishWorkflow, Concurrency: publishesAtOnce, Run: p.Run, Grace: s.cfg.Grace * 2 / 3,
	})
	return nil
}

// checkBroker returns the errors of the configuration of RabbitMQ. It connects to nothing.
func checkBroker(c *config.Config) error {
	log := slog.New(slog.DiscardHandler)
	_, posting := server.Post(c, log)
	_, triggers := server.Triggers(c, log)
	return cmp.Or(posting, triggers)
}
