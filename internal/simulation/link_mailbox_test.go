package simulation

import (
	"context"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
)

// deafCourier is a broker that loses every message, and refuses some. Executions that are scheduled to workers reach
// them by heartbeats. Meanwhile the workers also claim, as they do without a broker.
type deafCourier struct{}

// Carries implements engine.Courier.
func (deafCourier) Carries(string) bool { return true }

// Ready implements engine.Courier.
func (deafCourier) Ready() bool { return true }

// Open implements engine.Courier.
func (deafCourier) Open(_ context.Context, w belay.WorkerID) (string, error) { return w.String(), nil }

// Send implements engine.Courier.
func (deafCourier) Send(_ context.Context, _ string, a engine.Assigned) error {
	if a.Token%5 == 0 {
		return fmt.Errorf("the message with the token %d is refused", a.Token)
	}
	return nil
}

// Remove implements engine.Courier.
func (deafCourier) Remove(string) {}

// mailboxMutants are the planted bugs of executions that are scheduled to workers.
var mailboxMutants = []*mutant{
	{name: "heartbeat without offers", meant: "G5", plan: withMailboxes, reply: func(_ *mutantState, reply any) {
		if h, is := reply.(*belay.HeartbeatReply); is {
			h.Offers = nil
		}
	}},
}

func withMailboxes(p *plan) { p.mailboxes = true }

// OpenMailbox implements belay.Owner.
func (l *link) OpenMailbox(ctx context.Context, id belay.WorkerID) (belay.Mailbox, error) {
	return send(ctx, l, "open mailbox", "", &id, func(ctx context.Context, b belay.Backend) (belay.Mailbox, error) {
		return b.OpenMailbox(ctx, id)
	})
}

// CloseMailbox implements belay.Owner.
func (l *link) CloseMailbox(ctx context.Context, id belay.WorkerID) error {
	_, err := send(ctx, l, "close mailbox", "", &id, func(ctx context.Context, b belay.Backend) (struct{}, error) {
		return struct{}{}, b.CloseMailbox(ctx, id)
	})
	return err
}

// Accept implements belay.Owner.
func (l *link) Accept(ctx context.Context, r belay.AcceptRequest) (belay.AcceptReply, error) {
	return send(ctx, l, "accept", "", &r, func(ctx context.Context, b belay.Backend) (belay.AcceptReply, error) {
		return b.Accept(ctx, r)
	})
}
