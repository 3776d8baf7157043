package belay

import (
	"context"
	"fmt"
	"time"

	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/dispatch"
	"github.com/belaydev/belay/internal/uid"
)

// posted is the connection of an engine to RabbitMQ.
type posted struct {
	post  *dispatch.Post
	stop  context.CancelFunc
	ended chan error
}

// openPosted opens the store of a trial in this process, with dispatch through RabbitMQ.
func openPosted(ctx context.Context, r trial.Request) (*bed, error) {
	id := uid.New()
	p := &posted{ended: make(chan error, 1)}
	var err error
	p.post, err = dispatch.New(broker.Options{
		URL: r.Broker, Prefix: fmt.Sprintf("bench-%x", id[8:]), Log: quiet(), Random: uid.New,
	}, []string{"default"})
	if err != nil {
		return nil, err
	}
	b, err := embedded.Open(ctx, r.URL, embedded.Logger(quiet()), embedded.Courier(p.post))
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	p.stop = stop
	go func() { p.ended <- p.post.Run(running, b) }()
	for !p.post.Ready() {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return &bed{url: r.URL, calls: b, works: b, post: p}, nil
}

func (p *posted) close() error {
	p.stop()
	return <-p.ended
}

// settings says how many messages were sent. Without them the worker has claimed.
func (p *posted) settings() string {
	return fmt.Sprintf("dispatch through RabbitMQ, %d messages confirmed", p.post.Counters().Confirmed)
}
