package storetest

import (
	"cmp"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

func limited(name string, n int) func(*belay.Submission) {
	return func(s *belay.Submission) { s.Concurrency = &belay.Concurrency{Name: name, Max: n} }
}

// parked runs an execution that has the only place of the limit "x". For each element of with it
// submits another execution under this limit, which waits for the place. It returns the lease of
// the first execution and the ids of the executions that wait.
func (e *env) parked(worker belay.WorkerID, with ...func(*belay.Submission)) (belay.Lease, []belay.ExecutionID) {
	e.Helper()
	holder := e.run(worker, 1, limited("x", 1))
	var ids []belay.ExecutionID
	for _, w := range with {
		ids = append(ids, e.submit(limited("x", 1), w))
	}
	e.fold(e.claims(worker, 2, 10))
	for _, id := range ids {
		if e.row(id).Gate != "limit:x" {
			e.Fatalf("%s is not parked", id)
		}
	}
	return holder, ids
}

func (e *env) counts(gates ...belay.GateID) []machine.GateCount {
	e.Helper()
	counts := e.rows(machine.Need{Counts: gates, CountMembers: 9}).Counts
	slices.SortFunc(counts, func(a, b machine.GateCount) int { return cmp.Compare(a.Gate, b.Gate) })
	return counts
}

var gateCases = []testCase{
	{"what a gate holds is counted: places, members, its line", func(e *env) {
		nothing := func(*belay.Submission) {}
		holder, _ := e.parked(e.open(), nothing, nothing)
		e.submit(limited("y", 3))
		e.same("counts", []machine.GateCount{
			{Gate: "limit:nothing"}, {Gate: "limit:x", Held: 1, Members: 3, Line: 2}, {Gate: "limit:y", Members: 1},
		}, e.counts("limit:x", "limit:y", "limit:nothing", "limit:x"))
		e.settle(holder, belay.OutcomeSucceeded)
		e.same("after the end", []machine.GateCount{{Gate: "limit:x", Members: 2, Line: 2}}, e.counts("limit:x"))
	}},
	{"the members of a gate are counted up to the number that is needed", func(e *env) {
		for range 3 {
			e.submit(limited("x", 1))
		}
		for need, want := range []int{0: 0, 1: 1, 2: 2, 3: 3, 4: 3} {
			rows := e.rows(machine.Need{Counts: []belay.GateID{"limit:x"}, CountMembers: need})
			e.same("counts", []machine.GateCount{{Gate: "limit:x", Members: want}}, rows.Counts)
		}
	}},
	{"the head of a line is found in its order, and comes with its executions", func(e *env) {
		priority := func(n int) func(*belay.Submission) { return func(s *belay.Submission) { s.Priority = n } }
		later := func(s *belay.Submission) { s.DueAt = e.now().Add(time.Millisecond).Time() }
		worker := e.open()
		holder := e.run(worker, 1, limited("x", 1))
		var ids []belay.ExecutionID
		for _, with := range []func(*belay.Submission){later, priority(0), priority(-1), priority(1), priority(0)} {
			ids = append(ids, e.submit(limited("x", 1), with))
		}
		e.clock.Advance(time.Second)
		claim := e.claims(worker, 2, 10)
		claim.Lanes = nil
		for _, n := range []int{1, 0, -1} {
			claim.Lanes = append(claim.Lanes, machine.NewLane("default", "w", "", n, nil))
		}
		e.fold(claim)
		want := []belay.ExecutionID{ids[3], ids[1], ids[4], ids[0], ids[2]}
		for _, n := range []int{1, 3, 9} {
			lines := []machine.LineQuery{{Gate: "limit:none", Limit: 2}, {Gate: "limit:x", Limit: n}}
			rows := e.rows(machine.Need{Lines: lines})
			e.same("line", []machine.GateLine{{Gate: "limit:none"}, {Gate: "limit:x", Heads: want[:min(n, 5)]}},
				rows.Lines)
			if len(rows.Executions) != min(n, 5) {
				e.Errorf("%d executions came with a line of %d", len(rows.Executions), n)
			}
		}
		e.same("ready", []machine.ReadyLane{{}},
			e.rows(machine.Need{Ready: []machine.ReadyQuery{{Lane: lane.ID, Limit: 9}}}).Ready)
		e.settle(holder, belay.OutcomeSucceeded)
		e.ok(&machine.Admit{Gate: "limit:x", Heads: 1})
		if r := e.row(ids[3]); r.Gate != "" || r.Places != machine.PlaceLimit || r.AdmitBy == 0 || r.CheckAt == 0 {
			e.Errorf("the head was not let through: %+v", *r)
		}
	}},
	{"the lines of the modes of a resource are apart", func(e *env) {
		in := func(mode string) func(*belay.Submission) {
			return func(s *belay.Submission) { s.Requires = &belay.Requires{Resource: "gpu", Mode: mode} }
		}
		worker := e.open()
		holder := e.run(worker, 1, in("A"))
		ids := []belay.ExecutionID{e.submit(in("B")), e.submit(in("C")), e.submit(in("B"))}
		e.fold(e.claims(worker, 2, 10))
		const gate, b, c = belay.GateID("resource:gpu"), "resource:gpu\x1fB", "resource:gpu\x1fC"
		e.same("counts", []machine.GateCount{{Gate: gate, Held: 1, Members: 1}, {Gate: b, Line: 2}, {Gate: c, Line: 1}},
			e.counts(gate, b, c))
		rows := e.rows(machine.Need{Lines: []machine.LineQuery{{Gate: b, Limit: 9}, {Gate: c, Limit: 9}}})
		e.same("lines", []machine.GateLine{
			{Gate: b, Heads: []belay.ExecutionID{ids[0], ids[2]}}, {Gate: c, Heads: ids[1:2]},
		}, rows.Lines)
		e.same("members", []machine.Place{{Gate: gate, Execution: holder.Execution, Held: true}},
			e.rows(machine.Need{Members: []machine.MemberQuery{{Gate: gate, Limit: 9}}}).Members)
		e.settle(holder, belay.OutcomeSucceeded) // a crash loses the command that follows
		e.clock.Advance(time.Second)
		e.same("due", []machine.ObjectRef{machine.GateRef(gate)}, refsOf(e.due(0)))
		for queue := []machine.Command{&machine.Admit{Gate: gate, Heads: 1}}; len(queue) > 0; queue = queue[1:] {
			queue = append(queue, e.ok(queue[0]).Follow...)
		}
		for i, want := range []belay.GateID{"", c, ""} {
			if r := e.row(ids[i]); r.Gate != want || (r.Places != 0) != (want == "") {
				e.Errorf("execution %d waits at %q with the places %b", i, r.Gate, r.Places)
			}
		}
	}},
	{"the execution that changes the mode of a resource is stored with the gate", func(e *env) {
		const gate = belay.GateID("resource:gpu")
		e.ok(&machine.SetGate{GateChange: belay.GateChange{
			Gate: gate, Action: belay.GateSetResource, Actor: "ann",
			Resource: &belay.ResourceTerms{Swap: &belay.ResourceSwapper{Workflow: "w"}},
		}})
		e.submit(func(s *belay.Submission) { s.Requires = &belay.Requires{Resource: "gpu", Mode: "A"} })
		worker := e.open()
		e.fold(e.claims(worker, 1, 10))
		begin := &machine.BeginSwap{Gate: gate, To: "A", Execution: e.id()}
		e.ok(begin)
		if x := e.row(begin.Execution); x.Gates == nil || x.Gates.Swap != "gpu" || x.Ready() == 0 {
			e.Errorf("its row is %+v", *x)
		}
		if won := e.claim(worker, 2, 1); len(won) != 1 || won[0].Execution != begin.Execution {
			e.Fatalf("the worker claims %v", won)
		}
		if got := e.ok(&machine.EndSwap{Gate: gate, Execution: begin.Execution}); !got.Replayed {
			e.Errorf("the swap ended while its execution runs")
		}
		trail := e.query(store.Query{Of: store.Trail, Limit: 9}).Trail
		if len(trail) != 2 || trail[0].Action != "swap" || trail[0].Actor != machine.System ||
			trail[0].Name != string(gate) {
			e.Errorf("the audit says %+v", trail)
		}
	}},
	{"a gate is read with what it holds", func(e *env) {
		nothing := func(*belay.Submission) {}
		holder, ids := e.parked(e.open(), nothing, nothing)
		for _, limit := range []int{1, 9} {
			got := e.query(store.Query{Of: store.OneGate, Gate: "limit:x", Limit: limit}).Gate
			if got.Object == nil || got.Object.Name != "limit:x" {
				e.Errorf("its row: %+v", got.Object)
			}
			got.Object = nil
			e.same("gate", store.GateRow{
				Count:   machine.GateCount{Gate: "limit:x", Held: 1, Line: 2},
				Holders: []belay.ExecutionID{holder.Execution}, Heads: ids[:min(limit, 2)],
			}, got)
		}
		e.same("nothing", store.GateRow{Count: machine.GateCount{Gate: "limit:y"}},
			e.query(store.Query{Of: store.OneGate, Gate: "limit:y"}).Gate)
	}},
	{"the members of a limit are found, the oldest first", func(e *env) {
		nothing := func(*belay.Submission) {}
		holder, ids := e.parked(e.open(), nothing, nothing)
		for n, want := range [][]machine.Place{
			1: {{Gate: "limit:x", Execution: holder.Execution, Held: true}},
			2: {{Gate: "limit:x", Execution: holder.Execution, Held: true}, {Gate: "limit:x", Execution: ids[0]}},
		} {
			if n > 0 {
				rows := e.rows(machine.Need{Members: []machine.MemberQuery{{Gate: "limit:x", Limit: n}}})
				e.same("members", want, rows.Members)
			}
		}
		rows := e.rows(machine.Need{Members: []machine.MemberQuery{
			{Gate: "limit:x", After: holder.Execution, Limit: 1}, {Gate: "limit:x", Limit: 1},
		}})
		e.same("members of two queries", []machine.Place{
			{Gate: "limit:x", Execution: ids[0]}, {Gate: "limit:x", Execution: holder.Execution, Held: true},
		}, rows.Members)
	}},
	{"the cancels that a submission orders under its limit survive a crash", func(e *env) {
		worker := e.open()
		running, waits := e.run(worker, 1, limited("x", 2)), e.submit(limited("x", 2))
		for range 2 { // the server crashes before it sends the follow-up commands, which cancel the replaced executions
			e.submit(limited("x", 2), func(s *belay.Submission) { s.Concurrency.WhenFull = belay.ReplaceWhenFull })
		}
		if d := e.due(0); len(d.Objects) > 0 {
			e.Errorf("due at once: %+v", d.Objects)
		}
		e.clock.Advance(time.Second)
		gate := machine.GateRef("limit:x")
		e.same("due", []machine.ObjectRef{gate}, refsOf(e.due(0)))
		for _, c := range e.ok(&machine.Admit{Gate: "limit:x", Heads: 1}).Follow {
			e.ok(c)
		}
		if r := e.row(running.Execution); r.CancelBy == 0 {
			e.Errorf("the running execution goes on: %+v", *r)
		}
		if r := e.row(waits); r.State != belay.Cancelled {
			e.Errorf("the waiting execution is %s", r.State)
		}
		e.clock.Advance(time.Second)
		e.same("afterwards", []machine.ObjectRef(nil), refsOf(e.due(0)))
	}},
	{"the gates of what is due, and of what an owner may get, come with what they hold", func(e *env) {
		id := e.submit(limited("x", 2), func(s *belay.Submission) {
			s.Target, s.Rate = "t", &belay.Rate{Name: "r", Max: 1, Per: belay.Duration(time.Second)}
		})
		e.ok(&machine.SetGate{GateChange: belay.GateChange{Gate: "queue:default", Action: belay.GatePause}})
		e.ok(&machine.SetGate{GateChange: belay.GateChange{Gate: "target:t", Action: belay.GateForceOpen}})
		for name, need := range map[string]machine.Need{
			"due": {
				Ready:     []machine.ReadyQuery{{Lane: lane.ID, Limit: 9}},
				LaneGates: []belay.GateID{"queue:default", "workflow:w", "queue:default"},
			},
			"owner": {Executions: []belay.ExecutionID{id}, Entering: []belay.ExecutionID{id}},
		} {
			rows := e.rows(need)
			var objects []string
			for _, o := range rows.Objects {
				objects = append(objects, o.Name)
			}
			slices.Sort(objects)
			e.same(name+": objects", []string{"limit:x", "queue:default", "rate:r", "target:t"}, objects)
			counted := func(id belay.GateID) bool {
				return slices.ContainsFunc(rows.Counts, func(c machine.GateCount) bool { return c.Gate == id })
			}
			if !counted("limit:x") || !counted("rate:r") || !counted("target:t") || !counted("queue:default") ||
				rows.Now == 0 {
				e.Errorf("%s: counted %+v at %d", name, rows.Counts, rows.Now)
			}
		}
	}},
	{"places are put as the changes say", func(e *env) {
		a, b := e.submit(), e.submit()
		put := func(places ...machine.Place) {
			c := &machine.Changes{}
			for _, p := range places {
				c.Places = append(c.Places, &p)
			}
			e.mustWrite(c)
		}
		put(machine.Place{Gate: "limit:x", Execution: a}, machine.Place{Gate: "limit:x", Execution: b, Held: true},
			machine.Place{Gate: "limit:y", Execution: a, Held: true})
		e.same("put", []machine.GateCount{
			{Gate: "limit:x", Held: 1, Members: 2}, {Gate: "limit:y", Held: 1, Members: 1},
		}, e.counts("limit:x", "limit:y"))
		put(machine.Place{Gate: "limit:x", Execution: a, Held: true},
			machine.Place{Gate: "limit:x", Execution: b, Gone: true},
			machine.Place{Gate: "limit:y", Execution: a}, machine.Place{Gate: "limit:z", Execution: b, Gone: true})
		e.same("put again", []machine.GateCount{{Gate: "limit:x", Held: 1, Members: 1}, {Gate: "limit:y", Members: 1}},
			e.counts("limit:x", "limit:y"))
	}},
	{"objects whose moment has come are due, the longest due first", func(e *env) {
		var refs []machine.ObjectRef
		for i, after := range []time.Duration{3 * time.Second, time.Second, 0, time.Minute} {
			o := object("a", string(rune('w'+i)), "1")
			if after != 0 {
				o.NextAt = e.now().Add(after)
			}
			refs = append(refs, o.ObjectRef)
			e.mustWrite(&machine.Changes{Objects: []*machine.Object{o}})
		}
		if d := e.due(10); len(d.Objects) > 0 || d.NextObject != e.now().Add(time.Second) {
			e.Errorf("%+v are due, the next at %d", d.Objects, d.NextObject)
		}
		e.clock.Advance(3 * time.Second)
		d := e.due(10)
		e.same("due", []machine.ObjectRef{refs[1], refs[0]}, refsOf(d))
		e.same("the first that is due", refs[1:2], refsOf(e.due(1)))
		if d.NextObject != e.now().Add(57*time.Second) {
			e.Errorf("the next is due in %s", d.NextObject.Sub(e.now()))
		}
	}},
	{"schedules that are due come with their bodies", func(e *env) {
		for _, kind := range []machine.ObjectKind{"a", machine.ScheduleObject} {
			o := object(kind, "x", `{"edit": 7}`)
			o.NextAt = e.now().Add(time.Second)
			e.mustWrite(&machine.Changes{Objects: []*machine.Object{o}})
		}
		e.clock.Advance(time.Second)
		for _, o := range e.due(0).Objects {
			want := ""
			if o.Kind == machine.ScheduleObject {
				want = `{"edit": 7}`
			}
			if string(o.Body) != want || o.NextAt != e.now() {
				e.Errorf("%s is due at %d with %s", o.Kind, o.NextAt, o.Body)
			}
		}
	}},
}

// refsOf names the objects that are due.
func refsOf(d store.Due) (refs []machine.ObjectRef) {
	for _, o := range d.Objects {
		refs = append(refs, o.ObjectRef)
	}
	return refs
}
