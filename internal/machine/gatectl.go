package machine

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// SetGate changes a gate as an operator requests.
type SetGate struct{ belay.GateChange }

// Need asks the store for the gate, with the counts of its places and executions.
func (c *SetGate) Need(n *Need) {
	n.Counts = append(n.Counts, c.Gate)
	// a gate without members may forget its terms, so the store counts whether there are members
	n.CountMembers = max(n.CountMembers, 1)
}

func (c *SetGate) apply(w *world) (Reply, error) {
	op := string(c.Action) + " gate"
	if err := c.check(op); err != nil {
		return Reply{}, err
	}
	g := w.gate(c.Gate)
	switch {
	case g == nil:
		return Reply{}, refuse(belay.CodeInternal, op, "the gate %s was not read", c.Gate)
	case g.err != nil:
		return Reply{}, g.err
	}
	if done := c.done(); !c.Op.IsZero() {
		for _, d := range g.Done {
			switch {
			case d == done:
				return Reply{Replayed: true, Object: w.object(GateRef(g.id)).copy()}, nil
			case d.Op == c.Op:
				return Reply{}, refuse(belay.CodeIdempotencyMismatch, op,
					"the operation %s was another change of the gate %s", c.Op, c.Gate)
			}
		}
	}
	g.pass(w.Now)
	was, err := gateCodec.encode(&g.Gate)
	if err != nil {
		return Reply{}, err
	}
	changed := g.Gate
	if err := c.change(w, op, &changed, g.members == 0 && !g.waits()); err != nil {
		return Reply{}, err
	}
	body, err := gateCodec.encode(&changed)
	if err != nil {
		return Reply{}, err
	}
	if bytes.Equal(body, was) {
		r := Reply{Replayed: true, Object: &Object{ObjectRef: GateRef(g.id), Body: body}}
		if g.row != nil {
			r.Object = g.row.copy()
		}
		return r, nil
	}
	if !c.Op.IsZero() {
		kept := changed.Done[max(0, len(changed.Done)-maxDone+1):]
		changed.Done = append(slices.Clone(kept), c.done())
		if body, err = gateCodec.encode(&changed); err != nil {
			return Reply{}, err
		}
	}
	g.Gate = changed
	expected := int64(0)
	if g.row != nil {
		expected = w.object(g.row.ObjectRef).Version
	}
	r, err := w.put(op, put{
		ref: GateRef(g.id), expected: expected, next: g.nextAt(), body: body, action: string(c.Action), actor: c.Actor,
		reason: c.why(), op: c.Op,
	})
	if err != nil {
		return Reply{}, err
	}
	g.row, g.dirty = w.object(GateRef(g.id)), false
	if g.waits() && g.room(w.Now) > 0 {
		r.Follow = append(r.Follow, &Admit{Gate: g.id, Heads: MaxHeads})
	}
	return r, nil
}

// why is the reason in the audit: what the operator has set, and the reason that the operator has given.
func (c *SetGate) why() string {
	about := ""
	switch {
	case c.Action == belay.GateSetLimit:
		about = fmt.Sprintf("to %d", c.Max)
	case c.Action == belay.GateSetRate:
		about = fmt.Sprintf("to %d per %s", c.Max, c.Per.D())
	case c.Action == belay.GatePause && !c.Until.IsZero():
		about = "until " + c.Until.UTC().Format(time.RFC3339)
	}
	if about == "" || c.Reason == "" {
		return about + c.Reason
	}
	return about + ": " + c.Reason
}

// gateDone is a change that an operator has made. Its repetition, after its reply was lost, must not
// undo the change of another operator.
type gateDone struct {
	Op     belay.OpID       `json:"op"`
	Action belay.GateAction `json:"action"`
	Until  Time             `json:"until,omitzero"`
	Max    int              `json:"max,omitempty"`
	Per    belay.Duration   `json:"per,omitempty"`
	Terms  string           `json:"terms,omitempty"` // of a resource
}

// maxDone is how many changes a gate remembers.
const maxDone = 8

func (c *SetGate) done() gateDone {
	d := gateDone{Op: c.Op, Action: c.Action, Until: At(c.Until), Max: c.Max, Per: c.Per}
	if c.Resource != nil {
		d.Terms = c.Resource.Text()
	}
	return d
}

// parts lists, for each action, the kinds of gates that have the part which the action changes.
var parts = map[belay.GateAction][]string{
	belay.GatePause:       gateKinds,
	belay.GateResume:      gateKinds,
	belay.GateSetLimit:    {belay.GateLimit, belay.GateQueue, belay.GateWorkflow},
	belay.GateUnsetLimit:  {belay.GateLimit, belay.GateQueue, belay.GateWorkflow},
	belay.GateSetRate:     {belay.GateRate, belay.GateQueue, belay.GateWorkflow},
	belay.GateUnsetRate:   {belay.GateRate, belay.GateQueue, belay.GateWorkflow},
	belay.GateForceOpen:   {belay.GateTarget},
	belay.GateForceClosed: {belay.GateTarget},
	belay.GateAutomatic:   {belay.GateTarget},

	belay.GateSetResource:   {belay.GateResource},
	belay.GateUnsetResource: {belay.GateResource},
}

var gateKinds = []string{
	belay.GateLimit, belay.GateRate, belay.GateTarget, belay.GateQueue, belay.GateWorkflow, belay.GateResource,
}

func (c *SetGate) check(op string) error {
	kinds, there := parts[c.Action]
	if !there {
		return refuse(belay.CodeInvalid, op, "there is no action %q on a gate", c.Action)
	}
	fits := false
	for _, k := range kinds {
		fits = fits || k == c.Gate.Kind()
	}
	if !fits {
		return refuse(belay.CodeInvalid, op,
			"the action %q is not possible on a gate of kind %q, only on gates of kind %s", c.Action,
			c.Gate.Kind(), oneOf(kinds))
	}
	for _, n := range []struct {
		what, s string
		needed  bool
	}{{"the gate's name", c.Gate.Name(), true}, {"the actor", c.Actor, false}, {"the reason", c.Reason, false}} {
		if err := checkName(op, n.what, n.s, n.needed); err != nil {
			return err
		}
	}
	if err := c.checkResource(op); err != nil {
		return err
	}
	switch c.Action {
	case belay.GateSetLimit:
		return checkLimit(op, c.Max)
	case belay.GateSetRate:
		return checkRate(op, c.Max, c.Per)
	case belay.GatePause:
		if c.Until.After(latest.Time()) {
			return refuse(belay.CodeInvalid, op, "until lies beyond the year 9999")
		}
	default:
	}
	return nil
}

// change applies the action to the parts of the gate. unused says that no execution has a row in the
// gate or waits at it. When an operator unsets the limit or the rate of an unused gate, the gate also
// forgets the terms that submissions have named, so that the next submission sets them anew.
func (c *SetGate) change(w *world, op string, g *Gate, unused bool) error {
	switch c.Action {
	case belay.GatePause:
		until := At(c.Until)
		if !c.Until.IsZero() && until <= w.Now {
			return refuse(belay.CodeInvalid, op, "until is %s, which has passed",
				c.Until.UTC().Format("2006-01-02 15:04:05 MST"))
		}
		since := w.Now
		if g.Pause != nil { // the action repeats the pause, or changes its reason or end
			since = g.Pause.Since
		}
		g.Pause = &Pause{Since: since, Until: until, By: c.Actor, Reason: c.Reason}
	case belay.GateResume:
		g.Pause = nil
	case belay.GateSetLimit, belay.GateUnsetLimit:
		l := Limit{}
		if g.Limit != nil {
			l = *g.Limit
		}
		l.Set, l.SetBy = c.Max, c.setBy(l.SetBy, l.Set == c.Max, w.Now)
		if g.Limit = &l; c.Action == belay.GateUnsetLimit {
			if l.Set, l.SetBy = 0, nil; unused {
				l.Named = 0
			}
		}
		if l == (Limit{}) {
			g.Limit = nil
		}
	case belay.GateSetRate, belay.GateUnsetRate:
		r := Rate{}
		if g.Rate != nil {
			r = *g.Rate
		}
		set := Pace{c.Max, c.Per}
		r.Set, r.SetBy = &set, c.setBy(r.SetBy, r.Set != nil && *r.Set == set, w.Now)
		if g.Rate = &r; c.Action == belay.GateUnsetRate {
			// else the rate would forget which tokens are taken
			if r.Set, r.SetBy = nil, nil; unused && r.Full <= w.Now {
				r.Named = nil
			}
		}
		if r.Set == nil && r.Named == nil {
			g.Rate = nil
		} else {
			r.limit(w.Now)
		}
	case belay.GateSetResource, belay.GateUnsetResource:
		c.changeResource(g, w.gate(c.Gate).held, w.Now)
	case belay.GateForceOpen, belay.GateForceClosed, belay.GateAutomatic:
		b := Breaker{State: BreakerClosed}
		if g.Breaker != nil {
			b = *g.Breaker
		}
		b.force(&c.GateChange, w.Now)
		g.Breaker = &b
	}
	return nil
}

// setBy returns the record of the operator who now sets a limit or a rate. If the operator sets the
// same value again, the record keeps the time since which the value applies.
func (c *SetGate) setBy(was *SetBy, same bool, now Time) *SetBy {
	s := &SetBy{Since: now, By: c.Actor, Reason: c.Reason}
	if same && was != nil {
		s.Since = was.Since
	}
	return s
}

// CheckGate refuses an id that cannot be the id of a gate.
func CheckGate(op string, id belay.GateID) error {
	if !slices.Contains(gateKinds, id.Kind()) {
		return refuse(belay.CodeInvalid, op,
			"%q is not the id of a gate: an id is a kind, a colon and a name; the kinds are %s", id, oneOf(gateKinds))
	}
	return checkName(op, "the gate's name", id.Name(), true)
}

// CheckGateKind refuses a word that is not a kind of gates.
func CheckGateKind(op, kind string) error {
	if !slices.Contains(gateKinds, kind) {
		return refuse(belay.CodeInvalid, op, "there is no kind %q of gates; the kinds are %s", kind, oneOf(gateKinds))
	}
	return nil
}

func oneOf(words []string) string {
	text := words[0]
	for i, w := range words[1:] {
		if i == len(words)-2 {
			text += " and " + w
		} else {
			text += ", " + w
		}
	}
	return text
}

func checkLimit(op string, limit int) error {
	if limit < 1 || limit > belay.MaxConcurrency {
		return refuse(belay.CodeInvalid, op, "a limit of %d is not between 1 and %d", limit, belay.MaxConcurrency)
	}
	return nil
}

func checkRate(op string, n int, per belay.Duration) error {
	if n < 1 || n > belay.MaxRate {
		return refuse(belay.CodeInvalid, op, "a rate of %d is not between 1 and %d", n, belay.MaxRate)
	}
	if per < belay.MinRatePer || per > belay.MaxRatePer {
		return refuse(belay.CodeInvalid, op, "the time of a rate, %s, is not between %s and %s", per.D(),
			belay.MinRatePer.D(), belay.MaxRatePer.D())
	}
	return nil
}

// Outcome reports to the circuit breaker of a target how a run that named the target ended. The
// command that ends the run carries out the Outcome too; if its batch has not read the gate, the
// Outcome is sent as a follow-up command. If a crash loses the follow-up, a failure is not counted,
// and a probe counts as slow when its time is over.
type Outcome struct {
	Target string
	Failed bool
	// Probe says that the run was a probe: a half-open breaker had let it through.
	Probe bool
}

func (c *Outcome) gate() belay.GateID { return belay.Gate(belay.GateTarget, c.Target) }

// Need asks the store for the gate of the target, with the counts of its places and executions.
func (c *Outcome) Need(n *Need) { n.Counts = append(n.Counts, c.gate()) }

func (c *Outcome) apply(w *world) (Reply, error) {
	g := w.gate(c.gate())
	if g == nil {
		return Reply{}, nil
	}
	if g.err != nil {
		return Reply{}, g.err
	}
	c.count(w, g)
	return Reply{}, nil
}

// count changes the circuit breaker of the gate.
func (c *Outcome) count(w *world, g *gate) {
	b := g.breaker(w.Now)
	switch {
	case c.Failed && (c.Probe || b.State == BreakerClosed):
		b.failed(w.Now)
	case !c.Failed && c.Probe:
		b.succeeded()
	}
	w.setBreaker(g, b)
}
