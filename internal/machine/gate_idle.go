package machine

import "time"

// keepChanges is the least time for which a gate remembers the last changes by operators. After
// that time the repetition of a change counts as a new change.
const keepChanges = 24 * time.Hour

// Idle reports whether the store may delete the gate, because nothing is lost with its row: the
// gate has not changed since the time before, no operator has set a part of it, and its other parts
// are in the state that a gate without a row has. The caller checks that no execution has a row of
// places in the gate or waits at the gate.
func (o *Object) Idle(before, now Time) bool {
	g, err := ReadGate(o)
	switch {
	case err != nil, o.NextAt != 0, o.UpdatedAt >= before:
		return false
	case len(g.Done) > 0 && o.UpdatedAt.Add(keepChanges) > now:
		return false
	case g.Pause != nil, g.Limit != nil && g.Limit.Set != 0:
		return false
	case g.Rate != nil && (g.Rate.Set != nil || g.Rate.Full > now):
		return false
	}
	if r := g.Resource; r != nil && (r.Terms != nil || r.Swap != nil || len(r.Wants) > 0) {
		return false
	}
	b := g.Breaker
	if b == nil {
		return true
	}
	return !b.Forced && b.State == BreakerClosed && (b.Failures == 0 || b.WindowStart.Add(breakerWindow) <= now)
}
