package storetest

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// webhook gives a submission an actor and the payload of a trigger.
func webhook(actor, payload string) func(*belay.Submission) {
	return func(s *belay.Submission) {
		s.Actor, s.TriggerPayload = actor, []byte(payload)
	}
}

// spec reads the newest spec of an execution.
func (e *env) spec(id belay.ExecutionID) *machine.Spec {
	e.Helper()
	return e.read(store.Read{Execution: id, Spec: true}).Spec
}

// detail reads the measures of an execution and its newest action.
func (e *env) detail(id belay.ExecutionID) (*machine.Measures, *machine.Deed) {
	e.Helper()
	rec := e.read(store.Read{Execution: id, Detail: true})
	if rec.Measures == nil {
		e.Fatal("no measures")
	}
	return rec.Measures, rec.Act
}

var detailCases = []testCase{
	{"a submission keeps its actor and its trigger payload; lists, claims and later events leave the payload out",
		func(e *env) {
			id := e.submit(webhook("ci", `{"ref": "main"}`))
			s := e.spec(id)
			e.same("spec", []string{"ci", `{"ref": "main"}`}, []string{s.CreatedBy, string(s.TriggerPayload)})
			for _, payloads := range []bool{false, true} {
				list, err := e.store.List(e.Context(), store.List{Limit: 10, Payloads: payloads})
				if err != nil || len(list.Records) != 1 {
					e.Fatalf("%+v, %v", list, err)
				}
				s := list.Records[0].Spec
				if s.CreatedBy != "ci" || len(s.TriggerPayload) > 0 != payloads {
					e.Errorf("a list with payloads %v has %+v", payloads, s)
				}
			}
			ready := e.rows(machine.Need{Ready: []machine.ReadyQuery{{Lane: lane.ID, Limit: 1}}}).Specs
			if len(ready) != 1 || ready[0].CreatedBy != "ci" || ready[0].TriggerPayload != nil {
				e.Errorf("a claim loads %+v", ready)
			}
			for after, want := range []string{"ci", ""} {
				rec := e.read(store.Read{Execution: id, History: true, After: int64(after)})
				e.same("actor of the first event", want, rec.CreatedBy)
			}
		}},
	{"a new input keeps the actor and the trigger payload, a fork only the payload, and a child has no actor",
		func(e *env) {
			worker := e.open()
			l := e.run(worker, 1, webhook("ci", `1`))
			child := e.child(l, "kid", webhook("worker", `2`))
			e.settle(l, belay.OutcomeFailed)
			e.ok(&machine.Act{Control: belay.Control{
				Execution: l.Execution, Action: belay.ActionRequeue, Input: []byte(`7`), Actor: "me", Op: e.id(),
			}})
			fork := e.id()
			// The claim loads the spec of the ready execution without the payload, which the fork needs.
			replies := e.fold(e.claims(worker, 2, 10), &machine.Act{Control: belay.Control{
				Execution: l.Execution, Action: belay.ActionFork, Fork: fork, Actor: "you", Op: e.id(),
			}})
			if replies[1].Err != nil {
				e.Fatal(replies[1].Err)
			}
			for _, c := range []struct {
				id             belay.ExecutionID
				actor, payload string
				generation     int
			}{{l.Execution, "ci", `1`, 2}, {fork, "you", `1`, 1}, {child, "", `2`, 1}} {
				s := e.spec(c.id)
				if s.CreatedBy != c.actor || string(s.TriggerPayload) != c.payload || s.Generation != c.generation {
					e.Errorf("%+v, want %+v", s, c)
				}
			}
		}},
	{"measures count the runs, steps and children of an execution", func(e *env) {
		worker := e.open()
		id := e.submit(func(s *belay.Submission) { s.Policy = belay.Policy{MaxAttempts: 1} })
		e.same("before the first run", &machine.Measures{}, first(e.detail(id)))
		e.clock.Advance(2 * time.Second)
		l := e.take(worker, 1, id)
		begun := e.now()
		e.same("in the first run", &machine.Measures{
			FirstRun: begun, Runs: map[belay.Outcome]int{0: 1},
		}, first(e.detail(id)))
		e.save(l, belay.KindStep, "a", `1`)
		e.save(l, belay.KindStep, "b", `1`)
		e.save(l, belay.KindStep, "b", `2`)
		e.save(l, belay.KindState, "state", `1`)
		kids := e.open(func(s *belay.WorkerSpec) { s.Workflows[0].Workflow = "kid" })
		of := func(s *belay.Submission) { s.Workflow = "kid" }
		e.child(l, "waits", of)
		e.child(l, "ends", of)
		lanes := []machine.Lane{machine.NewLane("default", "kid", "", 0, nil)}
		claims := e.ok(&machine.Claim{
			ClaimRequest: belay.ClaimRequest{Worker: kids, Number: 1, Slots: 1}, Lanes: lanes, Idle: true,
			Secrets: []belay.Secret{e.id()},
		}).Claims
		if len(claims) != 1 {
			e.Fatalf("%d claims", len(claims))
		}
		kid := leaseOf(&claims[0].Execution)
		e.clock.Advance(3 * time.Second)
		e.ok(&machine.Settle{Settlement: belay.Settlement{
			Lease: kid, Op: e.id(), Outcome: belay.OutcomeSucceeded, CostTokens: 25_001,
		}})
		e.clock.Advance(time.Second)
		e.ok(&machine.Settle{Settlement: belay.Settlement{
			Lease: l, Op: e.id(), Outcome: belay.OutcomeSuspended, SignalSeen: e.row(id).SignalSeq, Wait: time.Second,
		}})
		e.clock.Advance(2 * time.Second)
		l = e.take(worker, 2, id)
		e.clock.Advance(500 * time.Millisecond)
		want := &machine.Measures{
			FirstRun: begun, Runs: map[belay.Outcome]int{belay.OutcomeSuspended: 1, 0: 1}, Running: 4 * time.Second,
			Steps: 2, Children: map[belay.State]int{belay.Pending: 1, belay.Succeeded: 1}, ChildCost: 25_001,
			ChildRuns: 1, ChildRunning: 3 * time.Second,
		}
		e.same("in the second run", want, first(e.detail(id)))
		e.settle(l, belay.OutcomeFailed)
		want.Runs = map[belay.Outcome]int{belay.OutcomeSuspended: 1, belay.OutcomeFailed: 1}
		want.Running += 500 * time.Millisecond
		e.same("at the end", want, first(e.detail(id)))
		e.ok(&machine.Act{Control: belay.Control{
			Execution: id, Action: belay.ActionRequeue, Input: []byte(`7`), Op: e.id(),
		}})
		want.Steps = 0
		got, _ := e.detail(id)
		got.Children = want.Children // the children of the earlier generation are cancelled by and by
		e.same("after another input", want, got)
	}},
	{"the newest action is that of a person or program, and not of Belay itself", func(e *env) {
		id := e.submit()
		if _, act := e.detail(id); act != nil {
			e.Errorf("an action before the first one: %+v", act)
		}
		e.control(id, belay.ActionPause)
		paused := e.now()
		e.clock.Advance(time.Second)
		e.mustWrite(&machine.Changes{Deeds: []*machine.Deed{
			{Execution: id, Seq: 9, Kind: "timeout", Actor: machine.System, At: e.now()},
		}})
		_, act := e.detail(id)
		if act == nil || act.Kind != "pause" || act.Actor != "me" || act.At != paused {
			e.Errorf("%+v, want the pause", act)
		}
		e.mustWrite(&machine.Changes{Deeds: []*machine.Deed{{Execution: id, Seq: 10, Kind: "resume", At: e.now()}}})
		if _, act = e.detail(id); act == nil || act.Kind != "resume" || act.Actor != "" {
			e.Errorf("%+v, want the resume without an actor", act)
		}
	}},
	{"measures count a limited number of rows of each kind, and say so", func(e *env) {
		l := e.run(e.open(), 1)
		at := e.now()
		rows := &machine.Changes{}
		for i := range belay.MaxMeasured {
			rows.Runs = append(rows.Runs, &machine.Run{
				Execution: l.Execution, Token: l.Token + belay.Token(i) + 1, StartedSeq: int64(i) + 10, StartedAt: at,
				EndedSeq: int64(i) + 11, EndedAt: at + 1, Outcome: belay.OutcomeLost, New: true,
			})
			rows.Checkpoints = append(rows.Checkpoints, &machine.Checkpoint{
				Execution: l.Execution, Seq: int64(i) + 100, Kind: belay.KindStep, Key: named("k", i%3), At: at,
			})
		}
		e.mustWrite(&machine.Changes{Runs: rows.Runs[:len(rows.Runs)-1], Checkpoints: rows.Checkpoints})
		if m, _ := e.detail(l.Execution); m.Truncated || m.Steps != 3 || m.FirstRun != at {
			e.Errorf("%+v with exactly as many rows as are counted", m)
		}
		e.mustWrite(&machine.Changes{Runs: rows.Runs[len(rows.Runs)-1:], Checkpoints: []*machine.Checkpoint{{
			Execution: l.Execution, Seq: 99, Kind: belay.KindStep, Key: "older", At: at,
		}}})
		m, _ := e.detail(l.Execution)
		if !m.Truncated || m.Steps != 3 || m.Runs[belay.OutcomeLost] != belay.MaxMeasured ||
			m.Running != belay.MaxMeasured*time.Microsecond {
			e.Errorf("%+v with one row more than is counted", m)
		}
	}},
}

func first[A, B any](a A, _ B) A { return a }
