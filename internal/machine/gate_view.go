package machine

import (
	"strings"

	"github.com/belaydev/belay"
)

// GateView returns a gate in the form of the API. o is the gate's object, nil if the gate has none.
// count is nil if the places and executions of the gate were not counted.
func GateView(id belay.GateID, o *Object, count *GateCount, now Time) (belay.GateInfo, error) {
	v := belay.GateInfo{ID: id, Kind: id.Kind(), Name: id.Name()}
	g := &gate{id: id}
	if o != nil {
		body, err := ReadGate(o)
		if err != nil {
			return v, err
		}
		g.Gate, v.UpdatedAt, v.UpdatedBy = *body, o.UpdatedAt.Time(), o.UpdatedBy
	}
	if count != nil {
		g.held, g.line = count.Held, count.Line
		v.Held, v.Waiting = count.Held, count.Line
	}
	why, until := g.shut(now)
	v.Open, v.Why, v.Until = why == "", why, until.Time()
	if p := g.Pause; p != nil && g.paused(now) {
		v.Pause = &belay.GatePaused{Since: p.Since.Time(), Until: p.Until.Time(), By: p.By, Reason: p.Reason}
	}
	if l := g.Limit; l != nil {
		v.Limit = &belay.GateLimited{Max: l.max(), Named: l.Named, Set: l.Set}
	}
	if r := g.Rate; r != nil {
		v.Rate = &belay.GatePace{
			Max: r.pace().Max, Per: r.pace().Per, Set: r.Set != nil, Tokens: max(0, r.tokens(now)-g.kept()),
		}
	}
	if b := g.Breaker; b != nil {
		v.Breaker = &belay.Breaker{
			State: string(b.State), Forced: b.Forced, By: b.By, Reason: b.Reason, FailureCount: b.Failures,
			SuccessCount: b.Successes, WindowStart: b.WindowStart.Time(), LastFailedAt: b.LastFailedAt.Time(),
			OpenedAt: b.OpenedAt.Time(), NextRetryAt: b.NextRetryAt.Time(), Probes: len(b.Probes),
		}
	}
	return v, nil
}

// GateWord returns a gate in the form in which people type it in the commands for limits, rates and
// circuit breakers: its name, or its id if the commands would take the name for an option or for
// another gate.
func GateWord(id belay.GateID) string {
	name, kind := id.Name(), id.Kind()
	another := CheckGate("", belay.GateID(name)) == nil
	if another || kind == belay.GateQueue || kind == belay.GateWorkflow || strings.HasPrefix(name, "-") {
		return ShellWord(string(id))
	}
	return ShellWord(name)
}

// ShellWord returns s in the form in which a person types it in a shell, with quotes if they are
// necessary.
func ShellWord(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@", r)
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
