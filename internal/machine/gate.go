package machine

import (
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// GateObject is the kind of objects that keep gates. An object's name is the gate's id.
// Its version grows with each write of its row; the audit has a row for each change that
// an operator made.
const GateObject ObjectKind = "gate"

// Gate is what is kept of a gate: the parts that were set. A gate is open while all its
// parts are.
type Gate struct {
	Pause   *Pause   `json:"pause,omitempty"`
	Limit   *Limit   `json:"limit,omitempty"`
	Rate    *Rate    `json:"rate,omitempty"`
	Breaker *Breaker `json:"breaker,omitempty"`
}

// Pause shuts a gate because an operator says so.
type Pause struct {
	Since  Time   `json:"since"`
	Until  Time   `json:"until,omitzero"` // 0 until an operator ends it
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Limit is how many places a gate has.
type Limit struct {
	Named int `json:"named,omitempty"` // by the executions under it
	Set   int `json:"set,omitempty"`   // by an operator, which counts before what is named
}

// max is how many executions or runs may have a place at once.
func (l *Limit) max() int {
	if l.Set > 0 {
		return l.Set
	}
	return l.Named
}

var gateCodec = codec[Gate]{GateObject}

// GateRef names the object of a gate.
func GateRef(id belay.GateID) ObjectRef { return gateCodec.ref(string(id)) }

// ReadGate reads the gate that an object is.
func ReadGate(o *Object) (*Gate, error) { return gateCodec.decode(o) }

// GateCount is what a store counts of a gate.
type GateCount struct {
	Gate belay.GateID
	Held int // places that are taken
	Line int // executions parked at the gate, counted up to MaxHeads + 1
	// Members are the executions that name a limit and have not ended.
	Members int
}

// gate is a gate in a fold.
type gate struct {
	Gate
	id      belay.GateID
	row     *Object // nil if the store has none
	held    int
	line    int
	members int
	counted bool // the three were read
	err     error

	dirty  bool // the body changed
	terms  bool // the body has the terms of an execution, which count once it takes a place
	looked bool // lineAt is set
	lineAt Time // when the rules must look at it because of its line, 0 for never
}

// gateless reports whether the fold has met no gate at all, which is the usual case.
func (w *world) gateless() bool { return len(w.Objects)+len(w.Counts)+len(w.gateOrder) == 0 }

// gate is a gate at this point of the fold; nil if the fold has not read it.
func (w *world) gate(id belay.GateID) *gate {
	if g := w.gates[id]; g != nil {
		return g
	}
	g := &gate{id: id}
	for i := range w.Counts {
		if c := &w.Counts[i]; c.Gate == id {
			g.held, g.line, g.members, g.counted = c.Held, c.Line, c.Members, true
		}
	}
	if g.row = w.object(GateRef(id)); g.row != nil {
		body, err := ReadGate(g.row)
		if g.err = err; err == nil {
			g.Gate = *body
		}
	} else if !g.counted {
		return nil
	}
	w.gates[id] = g
	w.gateOrder = append(w.gateOrder, g)
	return g
}

// shut says why the gate lets nothing through at the moment, "" if it may, and the moment
// from which time alone opens it, 0 for none.
func (g *gate) shut(now Time) (why string, until Time) {
	switch {
	case g.err != nil:
		return g.err.Error(), 0
	case g.paused(now):
		return "it is paused", g.Pause.Until
	case g.Breaker != nil && g.Breaker.State != BreakerClosed:
		return "its circuit breaker is " + string(g.Breaker.State), g.Breaker.NextRetryAt
	case g.Limit != nil && g.held >= g.Limit.max():
		return fmt.Sprintf("all of its %d places are taken", g.Limit.max()), 0
	case g.Rate != nil:
		if next := g.Rate.next(now); next > now {
			pace := g.Rate.pace()
			return fmt.Sprintf("its rate of %d per %s is used up", pace.Max, pace.Per.D()), next
		}
	}
	return "", 0
}

func (g *gate) paused(now Time) bool {
	return g.Pause != nil && (g.Pause.Until == 0 || g.Pause.Until > now)
}

// room is how many the gate lets through at the moment.
func (g *gate) room(now Time) int {
	n := belay.MaxConcurrency
	switch {
	case g.err != nil || g.paused(now):
		return 0
	case g.Breaker != nil && g.Breaker.State != BreakerClosed:
		n = g.Breaker.probes(g.held)
	}
	if g.Limit != nil {
		n = min(n, g.Limit.max()-g.held)
	}
	if g.Rate != nil {
		n = min(n, g.Rate.tokens(now))
	}
	return max(0, n)
}

// lineLook is how soon the rules look again at a gate at which executions are parked,
// whatever else wakes them.
const lineLook = time.Second

// lookBy has the rules look at the line of the gate by a moment, 0 for never.
func (g *gate) lookBy(at Time) { g.lineAt, g.looked = at, true }

// pass does what time does to the gate.
func (g *gate) pass(now Time) {
	if g.Pause != nil && !g.paused(now) {
		g.Pause, g.dirty = nil, true
	}
	if g.Breaker != nil && g.Breaker.pass(now) {
		g.dirty = true
	}
}

// lookAt is when the line of the gate is looked at next.
func (g *gate) lookAt(now Time) Time {
	at := now.Add(lineLook)
	if _, until := g.shut(now); until > now && until < at {
		return max(until, now.Add(rateLook))
	}
	return at
}

// rateLook is how far looks at one rate are apart: the tokens of that time are given out
// together.
const rateLook = 20 * time.Millisecond

// nextAt is when the rules must look at the gate again, 0 for never. The row is not
// written for a look that is a little sooner than planned.
func (g *gate) nextAt() Time {
	var at Time
	if g.Pause != nil {
		at = g.Pause.Until
	}
	if g.Breaker != nil {
		at = first(at, g.Breaker.NextRetryAt)
	}
	switch {
	case g.looked:
		at = first(at, g.lineAt)
	case g.row != nil && (g.line > 0 || !g.counted):
		at = first(at, g.row.NextAt)
	}
	return at
}

// writeGates adds the gates that the fold has changed to the changes.
func (w *world) writeGates() {
	for _, g := range w.gateOrder {
		if g.err != nil {
			continue
		}
		next, was := g.nextAt(), Time(0)
		if g.row != nil {
			was = g.row.NextAt
		}
		later := was != 0 && was > w.Now && next > was // it is looked at before that
		if !g.dirty && (next == was || later) {
			continue
		}
		body, err := gateCodec.encode(&g.Gate)
		if err != nil {
			panic(err) // it holds numbers and short texts
		}
		o := w.rewrite(GateRef(g.id))
		o.Version, o.NextAt, o.UpdatedAt, o.Body = o.Version+1, next, w.Now, body
	}
}
