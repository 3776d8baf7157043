package simulation

import (
	"context"

	"github.com/belaydev/belay"
)

// Usage implements belay.Meter.
func (l *link) Usage(ctx context.Context, f belay.UsageFilter) (belay.UsageReport, error) {
	return send(ctx, l, "usage", "", &f, func(ctx context.Context, b belay.Backend) (belay.UsageReport, error) {
		return b.Usage(ctx, f)
	})
}
