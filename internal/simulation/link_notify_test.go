package simulation

import (
	"context"

	"github.com/belaydev/belay"
)

// NotificationTargets implements belay.Notifier.
func (l *link) NotificationTargets(ctx context.Context) ([]belay.NotificationTargetInfo, error) {
	var none string
	return send(ctx, l, "notification targets", "", &none, func(ctx context.Context,
		b belay.Backend) ([]belay.NotificationTargetInfo, error) {
		return b.NotificationTargets(ctx)
	})
}

// NotificationTarget implements belay.Notifier.
func (l *link) NotificationTarget(ctx context.Context, name string) (belay.NotificationTargetInfo, error) {
	return send(ctx, l, "notification target", name, &name, func(ctx context.Context,
		b belay.Backend) (belay.NotificationTargetInfo, error) {
		return b.NotificationTarget(ctx, name)
	})
}

// PutNotificationTarget implements belay.Notifier.
func (l *link) PutNotificationTarget(
	ctx context.Context, p belay.NotificationTargetPut,
) (belay.NotificationTargetPutResult, error) {
	return send(ctx, l, "put notification target", p.Name, &p, func(ctx context.Context,
		b belay.Backend) (belay.NotificationTargetPutResult, error) {
		return b.PutNotificationTarget(ctx, p)
	})
}

// ChangeNotificationTarget implements belay.Notifier.
func (l *link) ChangeNotificationTarget(
	ctx context.Context, c belay.NotificationTargetChange,
) (belay.NotificationTargetInfo, error) {
	return send(ctx, l, "change notification target", c.Name, &c, func(ctx context.Context,
		b belay.Backend) (belay.NotificationTargetInfo, error) {
		return b.ChangeNotificationTarget(ctx, c)
	})
}

// TestNotificationTarget implements belay.Notifier.
func (l *link) TestNotificationTarget(
	ctx context.Context, t belay.NotificationTargetTest,
) (belay.ExecutionID, error) {
	return send(ctx, l, "test notification target", t.Name, &t, func(ctx context.Context,
		b belay.Backend) (belay.ExecutionID, error) {
		return b.TestNotificationTarget(ctx, t)
	})
}
