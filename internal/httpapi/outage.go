package httpapi

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// sayAgain is how often a lasting outage is logged.
const sayAgain = time.Minute

// errBusy is wrapped by errors with CodeUnavailable whose cause is the server itself: one of its
// limits was reached, and the store is not at fault.
var errBusy = errors.New("a bound of the server was hit")

// outage records when the last warning was logged that the store is unavailable.
type outage struct {
	mu   sync.Mutex
	said time.Time
}

// away logs that the store is unavailable, and why, because an operator reads the log first. It
// logs nothing if the caller has cancelled the request or the server is stopping.
func (a *api) away(ctx context.Context, err error) {
	if err == nil || belay.CodeOf(err) != belay.CodeUnavailable || errors.Is(err, errBusy) || ctx.Err() != nil {
		return
	}
	select {
	case <-a.o.Stopping:
		return
	default:
	}
	now := a.o.Now()
	a.outage.mu.Lock()
	again := now.Sub(a.outage.said) >= sayAgain
	if again {
		a.outage.said = now
	}
	a.outage.mu.Unlock()
	if again {
		a.o.Log.WarnContext(ctx, "belay: the store is unavailable, and requests are refused", "error", err)
	}
}
