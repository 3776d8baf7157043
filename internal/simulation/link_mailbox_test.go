package simulation

import (
	"context"

	"github.com/belaydev/belay"
)

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
