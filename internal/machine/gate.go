package machine

import (
	"fmt"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// GateObject is the kind of the objects that store gates. The name of such an object is the gate's
// id. The object's version grows with each write of its row; the audit log has a row for each
// change by an operator.
const GateObject ObjectKind = "gate"

// Gate is the stored state of a gate. Each part is nil if it is not set. The gate is open while all
// its parts are open.
type Gate struct {
	Pause   *Pause   `json:"pause,omitempty"`
	Limit   *Limit   `json:"limit,omitempty"`
	Rate    *Rate    `json:"rate,omitempty"`
	Breaker *Breaker `json:"breaker,omitempty"`
	// Resource is set in gates of resources.
	Resource *Resource `json:"resource,omitempty"`
	// Replaced is set while some replaced executions of the limit are not cancelled yet.
	Replaced *Replaced `json:"replaced,omitempty"`
	// Done are the last changes by operators, the newest last.
	Done []gateDone `json:"done,omitempty"`
}

// Pause is an operator's order to keep a gate shut.
type Pause struct {
	Since  Time   `json:"since"`
	Until  Time   `json:"until,omitzero"` // 0 until an operator ends it
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Limit is the number of places of a gate.
type Limit struct {
	Named int `json:"named,omitempty"` // the limit that executions name when they are submitted
	Set   int `json:"set,omitempty"`   // the limit that an operator has set, 0 for none; it applies instead of Named
	// SetBy says who set Set; nil if Set is 0.
	SetBy *SetBy `json:"set_by,omitempty"`
}

// SetBy says which operator set a limit or a rate, when and why.
type SetBy struct {
	Since  Time   `json:"since"`
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// max is the number of places that applies.
func (l *Limit) max() int {
	if l.Set > 0 {
		return l.Set
	}
	return l.Named
}

var gateCodec = codec[Gate]{GateObject}

// GateRef is the name of a gate's object.
func GateRef(id belay.GateID) ObjectRef { return gateCodec.ref(string(id)) }

// ReadGate decodes the gate that the object stores.
func ReadGate(o *Object) (*Gate, error) { return gateCodec.decode(o) }

// GateCount is the number of rows that a store found for a gate.
type GateCount struct {
	Gate belay.GateID
	Held int // places that are taken
	Line int // executions that wait at the gate, counted up to MaxHeads + 1
	// Members is the number of executions that name the gate as their limit and have not ended,
	// counted up to Further.CountMembers.
	Members int
}

// gate is a gate while one batch of commands is applied.
type gate struct {
	Gate
	id      belay.GateID
	row     *Object // nil if the store has no row for the gate
	held    int
	line    int
	members int
	more    bool // more executions may wait than the number in line, because the store has not counted all of them
	counted bool // the batch has read held, line and members
	err     error

	notes []Audit // the actions of the system that the audit records

	dirty  bool // the stored state of the gate has changed
	terms  bool // an execution has set the limit or rate; it is stored once an execution waits or has a place
	looked bool // lookBy has set lineAt
	lineAt Time // when an Admit for the executions in line is due, 0 for never
}

// gateless reports whether no gate concerns the batch, which is the usual case.
func (w *world) gateless() bool { return len(w.Objects)+len(w.Counts)+len(w.gateOrder) == 0 }

// gate returns a gate in its state after the earlier commands of the batch, nil if the batch has not
// read the gate.
func (w *world) gate(id belay.GateID) *gate {
	if g := w.gates[id]; g != nil {
		return g
	}
	g := &gate{id: id}
	for i := range w.Counts {
		if c := &w.Counts[i]; c.Gate == id {
			g.held, g.line, g.members, g.counted = c.Held, c.Line, c.Members, true
			g.more = c.Line > MaxHeads
		}
	}
	if g.row = w.object(GateRef(id)); g.row != nil {
		body, err := ReadGate(g.row)
		if g.err = err; err == nil {
			g.Gate = *body
			g.dirty = g.Rate != nil && g.Rate.limit(w.Now)
		}
	} else if !g.counted {
		return nil
	}
	w.gates[id] = g
	w.gateOrder = append(w.gateOrder, g)
	return g
}

// shut returns the reason for which the gate lets nothing through now, "" if the gate is open.
// until is the time at which the gate opens without an operator, 0 if there is no such time.
func (g *gate) shut(now Time) (why string, until Time) {
	switch {
	case g.err != nil:
		return g.err.Error(), 0
	case g.paused(now):
		return "it is paused", g.Pause.Until
	case g.Breaker != nil && g.Breaker.State != BreakerClosed:
		return "its circuit breaker is " + strings.ReplaceAll(string(g.Breaker.State), "_", " "), g.Breaker.NextRetryAt
	case g.Resource != nil:
		return g.Resource.refuses(g.Resource.Mode, g.held, now)
	case g.Limit != nil && g.held >= g.Limit.max():
		if g.Limit.max() == 1 {
			return "its only place is taken", 0
		}
		return fmt.Sprintf("all of its %d places are taken", g.Limit.max()), 0
	case g.Rate != nil:
		if next := g.Rate.next(now, g.kept()); next != now {
			pace := g.Rate.pace()
			return fmt.Sprintf("its rate of %d per %s is used up", pace.Max, pace.Per.D()), next
		}
	}
	return "", 0
}

// closed reports whether the gate is shut for an execution that it has let through and that has not
// started a run since.
func (g *gate) closed(now Time) bool {
	return g.err != nil || g.paused(now) || g.Breaker != nil && g.Breaker.State == BreakerOpen ||
		g.id.Kind() == belay.GateRate && g.Rate != nil && g.Rate.tokens(now) < 1
}

func (g *gate) paused(now Time) bool {
	return g.Pause != nil && (g.Pause.Until == 0 || g.Pause.Until > now)
}

// room is the number of executions that the gate can let through now.
func (g *gate) room(now Time) int {
	n := belay.MaxConcurrency
	switch {
	case g.err != nil || g.paused(now):
		return 0
	case g.Resource != nil && g.held > 0 && g.Resource.wanted(g.held, now) == "":
		return 0
	case g.Breaker != nil && g.Breaker.State != BreakerClosed:
		n = g.Breaker.probes(g.held)
	}
	if g.Limit != nil {
		n = min(n, g.Limit.max()-g.held)
	}
	if g.Rate != nil {
		n = min(n, g.Rate.tokens(now)-g.kept())
	}
	return max(0, n)
}

// kept is the number of tokens of a rate that are reserved for executions which the gate has let
// through. In gates of other kinds, places reserve no tokens.
func (g *gate) kept() int {
	if g.id.Kind() == belay.GateRate {
		return g.held
	}
	return 0
}

// lineLook is the longest time between two checks of a gate at which executions wait. A check finds
// free places even if the Admit command for these places was lost.
const lineLook = time.Second

// waits reports whether executions wait at the gate, or may wait there without having been counted.
func (g *gate) waits() bool {
	return g.line > 0 || g.more || g.Resource != nil && (len(g.Resource.Wants) > 0 || g.Resource.Swap != nil)
}

// note records an action of the system on the gate in the audit.
func (g *gate) note(action, reason string) {
	g.notes = append(g.notes, Audit{Actor: System, Action: action, Reason: clip(reason, belay.MaxName)})
	g.dirty = true
}

// lookBy sets the time of the next check of the executions that wait at the gate, 0 for never.
func (g *gate) lookBy(at Time) { g.lineAt, g.looked = at, true }

// pass applies the changes that are due by now: it ends a pause whose time is over, and lets the
// circuit breaker proceed.
func (g *gate) pass(now Time) {
	if g.Pause != nil && !g.paused(now) {
		g.Pause, g.dirty = nil, true
	}
	if g.Breaker != nil && g.Breaker.pass(now, g.held) {
		g.dirty = true
	}
}

// lookAt is the time of the next check of the executions that wait at the gate.
func (g *gate) lookAt(now Time) Time {
	at := now.Add(lineLook)
	if r := g.Resource; r != nil {
		for _, t := range r.times(now) {
			if t > now && t < at {
				at = max(t, now.Add(rateLook))
			}
		}
		return at
	}
	if _, until := g.shut(now); until > now && until < at {
		return max(until, now.Add(rateLook))
	}
	return at
}

// rateLook is the least time between two checks of one rate. Each check gives out the tokens that
// have been added to the rate's bucket since the last check.
const rateLook = 20 * time.Millisecond

// nextAt is when the sweeper must check the gate again, 0 for never.
func (g *gate) nextAt() Time {
	var at Time
	if g.Pause != nil {
		at = g.Pause.Until
	}
	if g.Breaker != nil {
		at = first(at, g.Breaker.NextRetryAt)
	}
	if g.Replaced != nil {
		at = first(at, g.Replaced.RetryAt)
	}
	switch {
	case g.looked:
		at = first(at, g.lineAt)
	case g.row != nil && (g.waits() || !g.counted):
		at = first(at, g.row.NextAt)
	}
	return at
}

// writeGates adds the gates that the batch has changed to its changes.
func (w *world) writeGates() {
	for _, g := range w.gateOrder {
		if g.err != nil {
			continue
		}
		next, was := g.nextAt(), Time(0)
		if g.row != nil {
			was = g.row.NextAt
		}
		// the check that is planned for the time was will plan the next check
		later := was != 0 && was > w.Now && next > was
		if !g.dirty && (next == was || later) {
			continue
		}
		body, err := gateCodec.encode(&g.Gate)
		if err != nil {
			panic(err) // numbers and short texts can always be encoded
		}
		o := w.rewrite(GateRef(g.id))
		o.Version, o.NextAt, o.UpdatedAt, o.Body = o.Version+1, next, w.Now, body
		for i := range g.notes {
			a := &g.notes[i]
			o.Version += int64(min(i, 1)) // the audit has one row for each version
			a.At, a.ObjectRef, a.Version = w.Now, o.ObjectRef, o.Version
			w.out.Audit = append(w.out.Audit, a)
		}
	}
}
