package machine

import "github.com/belaydev/belay"

// checkGates checks guarantee G16 for all gates and their places: a gate never lets through more
// than its limit, each place belongs to an execution that may have it, and an execution waits only
// at a gate that has a time for its next check.
func checkGates(f *faults, k *keeper) {
	next := make(map[belay.GateID]Time)
	for ref, o := range k.objects {
		if ref.Kind != GateObject {
			continue
		}
		g, err := ReadGate(o)
		if err != nil {
			f.add("G16", "gate %s cannot be read: %v", o.Name, err)
			continue
		}
		if r := g.Replaced; r != nil && (len(r.By) == 0 || o.NextAt == 0 || o.NextAt > r.RetryAt) {
			f.add("G16", "%s is checked at %d, and %d cancels must be repeated at %d", o.Name, o.NextAt, len(r.By),
				r.RetryAt)
		}
		next[belay.GateID(o.Name)] = o.NextAt
		k.checkResource(f, belay.GateID(o.Name), g.Resource)
	}
	for key, has := range k.places {
		e := k.records[key.execution].execution
		if e == nil {
			f.add("G16", "%s has a place of %s, which is not there", key.gate, key.execution)
			continue
		}
		fits := false
		for p := PlaceLimit; p <= lastPlace; p <<= 1 {
			if mayHave(e, p) && e.gateOf(p) == key.gate {
				fits = has == (e.Places&p != 0) && (has || p == PlaceLimit)
			}
		}
		if !fits || e.State.Terminal() {
			f.add("G16", "%s has a row of %s (held %t), which is %s with places %b", key.gate, e.ID, has, e.State,
				e.Places)
		}
	}
	for _, e := range k.where(func(*Execution) bool { return true }) {
		k.checkEntered(f, e, next)
	}
}

// checkLimits checks that a batch gave out no place beyond a limit. Executions keep their places
// when a limit is lowered.
func checkLimits(f *faults, before, after *keeper) {
	for ref, o := range after.objects {
		if ref.Kind != GateObject {
			continue
		}
		gate := belay.GateID(ref.Name)
		g, err := ReadGate(o)
		had, _ := before.held(gate)
		has, _ := after.held(gate)
		if err == nil && g.Limit != nil && len(has) > g.Limit.max() && len(has) > len(had) {
			f.add("G16", "%s has %d places, and %d are taken, %d before", gate, g.Limit.max(), len(has), len(had))
		}
	}
}

// checkEntered checks that the row of one execution agrees with its places and its position at a
// gate.
func (k *keeper) checkEntered(f *faults, e *Execution, next map[belay.GateID]Time) {
	owned := e.State == belay.Running || e.State == belay.Scheduled
	for p := PlaceLimit; p <= lastPlace; p <<= 1 {
		if e.Places&p != 0 && (!mayHave(e, p) || !k.places[PlaceKey{e.gateOf(p), e.ID}]) {
			f.add("G16", "%s has the place %b and no row of it", e.ID, p)
		}
	}
	if e.Gates != nil && e.Gates.Concurrency != nil && !e.State.Terminal() {
		if _, there := k.places[PlaceKey{e.gateOf(PlaceLimit), e.ID}]; !there {
			f.add("G16", "%s is not among the members of its limit", e.ID)
		}
	}
	unused := e.admitted()
	if e.Gate.Kind() == belay.GateRate {
		unused &^= PlaceLimit
	}
	if e.Gate != "" && unused != 0 {
		f.add("G16", "%s waits at %s and keeps the unused places %b", e.ID, e.Gate, unused)
	}
	rests := e.State == belay.Pending || e.State == belay.Waiting
	switch {
	case owned && e.Gates != nil && e.Gates.Concurrency != nil && e.Places&PlaceLimit == 0:
		f.add("G16", "%s runs without a place in its limit", e.ID)
	case !owned && e.Places&(PlaceQueue|PlaceWorkflow) != 0:
		f.add("G16", "%s does not run and has places of a run: %b", e.ID, e.Places)
	case !owned && e.Places&(PlaceRate|PlaceTarget|PlaceResource) != 0 && (e.AdmitBy == 0 || e.CheckAt == 0) &&
		e.Gate == "":
		f.add("G16", "%s was let through for ever: %b", e.ID, e.Places)
	case e.AdmitBy != 0 && (!rests || e.Gate != "" || e.CheckAt == 0 || e.CheckAt > e.AdmitBy):
		f.add("G16", "%s is let through until %d and %s, gate %q, checked at %d", e.ID, e.AdmitBy, e.State, e.Gate,
			e.CheckAt)
	case owned && e.Gates != nil && e.Gates.Requires != nil && e.Places&PlaceResource == 0:
		f.add("G13", "%s runs without a place at its resource", e.ID)
	case e.Gate != "" && (!rests || e.DueAt == 0):
		f.add("G16", "%s is parked at %s and %s", e.ID, e.Gate, e.State)
	case e.Gate != "" && next[e.WaitsAt()] == 0:
		f.add("G5", "%s is parked at %s, at which nothing looks again", e.ID, e.Gate)
	}
}

// mayHave reports whether an execution may have a place of a kind at all.
func mayHave(e *Execution, p Places) bool {
	switch g := e.Gates; p {
	case PlaceLimit:
		return g != nil && g.Concurrency != nil
	case PlaceRate:
		return g != nil && g.Rate != nil
	case PlaceTarget:
		return g != nil && g.Target != ""
	case PlaceResource:
		return g != nil && g.Requires != nil
	}
	return true
}

// checkResource checks guarantee G13: the executions that use a resource use it in its present mode,
// nothing uses it while its mode changes, and at most one execution changes its mode.
func (k *keeper) checkResource(f *faults, gate belay.GateID, r *Resource) {
	swaps := k.where(func(e *Execution) bool {
		return e.isSwap() && !e.State.Terminal() && belay.Gate(belay.GateResource, e.Gates.Swap) == gate
	})
	switch {
	case r == nil && len(swaps) > 0, len(swaps) > 1:
		f.add("G13", "%d executions change the mode of %s", len(swaps), gate)
	case r == nil:
		return
	case len(swaps) == 1 && (r.Swap == nil || r.Swap.Execution != swaps[0].ID):
		f.add("G13", "%s changes the mode of %s, whose row says %+v", swaps[0].ID, gate, r.Swap)
	}
	held, _ := k.held(gate)
	for _, id := range held {
		e := k.records[id].execution
		if e == nil || e.Gates == nil || e.Gates.Requires == nil {
			continue // checkGates reports it
		}
		if mode := e.Gates.Requires.Mode; r.Swap != nil || mode != r.Mode {
			f.add("G13", "%s uses %s in the mode %q, which has the mode %q and the swap %+v", id, gate, mode, r.Mode,
				r.Swap)
		}
	}
}
