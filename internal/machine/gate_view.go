package machine

import (
	"strings"

	"github.com/belaydev/belay"
)

// GateView returns a gate in the form of the API. o is the gate's object, nil if the gate has none.
// count is nil if the places and executions of the gate were not counted.
func GateView(id belay.GateID, o *Object, count *GateCount, now Time) (belay.GateInfo, error) {
	g, err := gateOf(id, o, count)
	if err != nil {
		return belay.GateInfo{ID: id, Kind: id.Kind(), Name: id.Name()}, err
	}
	return g.view(now), nil
}

// gateOf builds a gate from these rows. Callers must only read the gate.
func gateOf(id belay.GateID, o *Object, count *GateCount) (*gate, error) {
	g := &gate{id: id, row: o}
	if o != nil {
		body, err := ReadGate(o)
		if err != nil {
			return nil, err
		}
		g.Gate = *body
	}
	if count != nil {
		g.held, g.line = count.Held, count.Line
	}
	return g, nil
}

// Asks returns the gates that a claim of the execution must pass, in this order: the gates that the
// execution names, its queue and its workflow.
func (e *Execution) Asks() []belay.GateID {
	var ids []belay.GateID
	for _, p := range append(e.ownGates(), PlaceQueue, PlaceWorkflow) {
		ids = append(ids, e.gateOf(p))
	}
	return ids
}

// Stops returns one of the gates that a claim of the due execution e must pass, in the form of the
// API, and reports whether this gate stops the claim now. The execution waits at no gate or at
// another gate.
func Stops(e *Execution, id belay.GateID, o *Object, count *GateCount, now Time) (belay.GateInfo, bool, error) {
	g, err := gateOf(id, o, count)
	if err != nil {
		return belay.GateInfo{ID: id, Kind: id.Kind(), Name: id.Name()}, false, err
	}
	stops := false
	for _, p := range append(e.ownGates(), PlaceQueue, PlaceWorkflow) {
		if e.gateOf(p) != id {
			continue
		}
		own := p != PlaceQueue && p != PlaceWorkflow
		if own {
			g.setTerms(e, p)
		}
		switch why, _ := g.shut(now); {
		case e.Places&p == 0 && own:
			why, _ := g.bars(e, now)
			stops = why != ""
		case e.Places&p == 0:
			stops = why != ""
		case e.admitted()&p != 0:
			stops = g.closed(now)
		}
	}
	return g.view(now), stops, nil
}

// view returns the gate in the form of the API.
func (g *gate) view(now Time) belay.GateInfo {
	v := belay.GateInfo{ID: g.id, Kind: g.id.Kind(), Name: g.id.Name(), Held: g.held, Waiting: g.line}
	if g.row != nil {
		v.UpdatedAt, v.UpdatedBy = g.row.UpdatedAt.Time(), g.row.UpdatedBy
	}
	why, until := g.shut(now)
	v.Open, v.Why, v.Until = why == "", why, until.Time()
	if p := g.Pause; p != nil && g.paused(now) {
		v.Pause = &belay.GatePaused{Since: p.Since.Time(), Until: p.Until.Time(), By: p.By, Reason: p.Reason}
	}
	if l := g.Limit; l != nil {
		v.Limit = &belay.GateLimited{Max: l.max(), Named: l.Named, Set: l.Set}
		if s := l.SetBy; s != nil {
			v.Limit.Since, v.Limit.By, v.Limit.Reason = s.Since.Time(), s.By, s.Reason
		}
	}
	if r := g.Rate; r != nil {
		v.Rate = &belay.GatePace{
			Max: r.pace().Max, Per: r.pace().Per, Set: r.Set != nil, Tokens: max(0, r.tokens(now)-g.kept()),
		}
		if s := r.SetBy; s != nil {
			v.Rate.Since, v.Rate.By, v.Rate.Reason = s.Since.Time(), s.By, s.Reason
		}
	}
	if g.id.Kind() == belay.GateResource {
		r := g.Resource
		if r == nil {
			r = new(Resource)
		}
		v.Resource = r.view(g.held, now)
	}
	if b := g.Breaker; b != nil {
		v.Breaker = &belay.Breaker{
			State: string(b.State), Forced: b.Forced, By: b.By, Reason: b.Reason, FailureCount: b.Failures,
			SuccessCount: b.Successes, WindowStart: b.WindowStart.Time(), LastFailedAt: b.LastFailedAt.Time(),
			OpenedAt: b.OpenedAt.Time(), NextRetryAt: b.NextRetryAt.Time(), Probes: len(b.Probes),
		}
	}
	return v
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
