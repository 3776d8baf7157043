package httpapi

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// sayAgain is how often the log is told of an outage while it lasts.
const sayAgain = time.Minute

// errBusy is wrapped by errors with CodeUnavailable that the server itself causes: one of its
// limits was reached, and the store is not at fault.
var errBusy = errors.New("a bound of the server was hit")

// outage is when the log was last told that the store is away.
type outage struct {
	mu   sync.Mutex
	said time.Time
}

// away tells the log that the store is away, and why: whoever runs the server looks
// there first. Callers that have given up, and a server that stops, are no outage.
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
		a.o.Log.WarnContext(ctx, "belay: the store is away, and requests are refused", "error", err)
	}
}
