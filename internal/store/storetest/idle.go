package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// gate adds the row of a gate that has not changed for long.
func (e *env) gate(id belay.GateID, body string, with ...func(*machine.Object)) {
	e.Helper()
	o := object(machine.GateObject, string(id), body)
	for _, w := range with {
		w(o)
	}
	e.mustWrite(&machine.Changes{Objects: []*machine.Object{o}})
}

// gateNames lists the gates.
func (e *env) gateNames() (names []string) {
	e.Helper()
	all, err := store.All(e.Context(), e.store, machine.GateObject)
	if err != nil {
		e.Fatal(err)
	}
	for _, o := range all {
		names = append(names, o.Name)
	}
	return names
}

// idle rewrites the row of a gate to the state of an unused gate that has not changed for long.
func (e *env) idle(id belay.GateID) {
	e.Helper()
	o := e.query(store.Query{Of: store.OneGate, Gate: id}).Gate.Object
	if o == nil {
		e.Fatalf("there is no gate %s", id)
	}
	o.Was, o.Version, o.NextAt, o.UpdatedAt, o.Body = o.Version, o.Version+1, 0, 1, []byte("{}")
	e.mustWrite(&machine.Changes{Objects: []*machine.Object{o}})
}

var idleCases = []testCase{
	{"a gate that no operator has set and no execution uses is deleted", func(e *env) {
		e.gate("limit:a", `{"limit":{"named":2}}`)
		e.gate("queue:a", `{}`)
		e.gate("rate:a", `{"rate":{"named":{"max":1,"per":"1s"},"full":5}}`)
		e.gate("target:a", `{"breaker":{"state":"closed","failure_count":0,"success_count":0}}`)
		e.gate("target:b", `{"breaker":{"state":"closed","failure_count":4,"success_count":0,"window_start":5}}`)
		e.mustWrite(&machine.Changes{Objects: []*machine.Object{object("other", "queue:a", "{}")}})
		l := e.run(e.open(), 1, limited("used", 1))
		e.settle(l, belay.OutcomeSucceeded)
		e.clock.Advance(time.Minute)
		if p := e.pruned(0); p.Gates != 6 || p.More {
			e.Errorf("deleted %+v, want 6 gates", p)
		}
		e.same("gates that are left", []string(nil), e.gateNames())
		if n := len(e.query(store.Query{Of: store.Objects, Kind: "other"}).Objects); n != 1 {
			e.Errorf("%d objects of another kind are left", n)
		}
		e.run(e.open(), 1, limited("used", 3)) // the deleted gate is made again, with new terms
		used := e.query(store.Query{Of: store.OneGate, Gate: "limit:used"}).Gate.Object
		if g, err := machine.ReadGate(used); err != nil || g.Limit.Named != 3 {
			e.Errorf("the new gate is %+v, %v", g, err)
		}
	}},
	{"a gate that an operator has set, or that is not as new, is kept", func(e *env) {
		now := e.now()
		e.gate("limit:set", `{"limit":{"named":2,"set":3}}`)
		e.gate("queue:broken", `?`)
		e.gate("queue:checked", `{}`, func(o *machine.Object) { o.NextAt = 1 })
		e.gate("queue:paused", `{"pause":{"since":1}}`)
		e.gate("queue:recent", `{}`, func(o *machine.Object) { o.UpdatedAt = now })
		e.gate("rate:set", `{"rate":{"named":{"max":1,"per":"1s"},"set":{"max":1,"per":"1s"}}}`)
		e.gate("rate:spent", fmt.Sprintf(`{"rate":{"named":{"max":1,"per":"1h"},"full":%d}}`, now.Add(time.Hour)))
		e.gate("target:failing", fmt.Sprintf(`{"breaker":{"state":"closed","failure_count":1,"window_start":%d}}`, now))
		e.gate("target:forced", `{"breaker":{"state":"closed","forced":true}}`)
		e.gate("target:half-open", `{"breaker":{"state":"half_open"}}`)
		e.gate("target:open", `{"breaker":{"state":"open","next_retry_at":1}}`)
		before := e.gateNames()
		p, err := e.store.Prune(e.Context(), store.Retention{Before: now, Letters: now}, 0)
		if err != nil || p.Gates != 0 {
			e.Errorf("deleted %+v, %v", p, err)
		}
		e.same("gates that are left", before, e.gateNames())
	}},
	{"a gate with a place, a member or an execution that waits is kept", func(e *env) {
		worker := e.open()
		e.parked(worker, func(*belay.Submission) {})
		e.submit(limited("member", 1))
		e.ok(&machine.SetGate{GateChange: belay.GateChange{Gate: "target:waits", Action: belay.GateForceOpen}})
		e.ok(&machine.SetGate{GateChange: belay.GateChange{Gate: "queue:q", Action: belay.GateSetLimit, Max: 5}})
		waits := e.submit(func(s *belay.Submission) { s.Target = "waits" })
		e.fold(e.claims(worker, 3, 10))
		if e.row(waits).Gate != "target:waits" {
			e.Fatalf("%s is not parked", waits)
		}
		e.mustWrite(&machine.Changes{Places: []*machine.Place{{Gate: "queue:q", Execution: waits, Held: true}}})
		want := []string{"limit:member", "limit:x", "queue:q", "target:waits"}
		for _, name := range want {
			e.idle(belay.GateID(name))
		}
		e.clock.Advance(time.Hour)
		for range 3 {
			if p := e.pruned(0); p.Gates != 0 {
				e.Errorf("deleted %+v", p)
			}
		}
		e.same("gates that are left", want, e.gateNames())
	}},
	{"a gate remembers an operator's change for a day", func(e *env) {
		change := func(a belay.GateAction) *machine.SetGate {
			return &machine.SetGate{GateChange: belay.GateChange{Gate: "queue:q", Action: a, Op: belay.OpID(e.id())}}
		}
		pause := change(belay.GatePause)
		e.ok(pause)
		e.ok(change(belay.GateResume))
		e.clock.Advance(23 * time.Hour)
		e.pruned(0)
		if r := e.ok(pause); !r.Replayed {
			e.Errorf("the repetition paused it again: %+v", r)
		}
		e.clock.Advance(2 * time.Hour)
		if p := e.pruned(0); p.Gates != 1 {
			e.Errorf("deleted %+v a day later", p)
		}
	}},
	{"one call reads and deletes a limited number of gates", func(e *env) {
		const all = 2*store.GateStride + 50
		var objects []*machine.Object
		for n := range all {
			objects = append(objects, object(machine.GateObject, fmt.Sprintf("queue:%04d", n), "{}"))
		}
		kept := object(machine.GateObject, "queue:0100k", `{"pause":{"since":1}}`)
		e.mustWrite(&machine.Changes{Objects: append(objects, kept)})
		if p := e.pruned(7); p.Gates != 7 || !p.More {
			e.Errorf("deleted %+v, want 7 gates", p)
		}
		var gone []int
		for more := true; more; {
			p := e.pruned(0)
			gone, more = append(gone, p.Gates), p.More
		}
		rest := all + 1 - 7 - 2*store.GateStride
		e.same("deleted by each call", []int{store.GateStride - 1, store.GateStride, rest}, gone)
		e.same("gates that are left", []string{"queue:0100k"}, slices.Clip(e.gateNames()))
	}},
}
