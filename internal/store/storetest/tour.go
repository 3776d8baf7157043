package storetest

import (
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// guide leads the tour: the first part of the test, in which every command is accepted.
type guide struct {
	*walker
	claims int64
}

// tour sends every command in a situation in which it must be accepted, and repeats some commands.
func tour(w *walker) {
	defer w.close()
	g := &guide{walker: w}
	worker := belay.WorkerID(w.fresh())
	open := &machine.Open{WorkerSpec: belay.WorkerSpec{
		ID: worker, Name: "worker", Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 9,
		Health: ":9090",
	}}
	g.must(open)
	g.must(open)
	g.ownership(worker)
	g.outcomes(worker)
	g.control(worker)
	g.outside()
	g.keys()
	g.documents()
	g.resources(worker)
	g.gated(worker)
	g.sessions(worker)
	w.clock.Advance(time.Hour)
	w.latest = w.clock.Now()
	w.prune(w.rt)
	w.compare(w.rt, allExecutions)
}

// gated sends the commands that concern gates.
func (g *guide) gated(worker belay.WorkerID) {
	limited := func() belay.ExecutionID {
		return g.must(&machine.Submit{Submission: belay.Submission{ID: g.fresh(), Workflow: "w", Gates: belay.Gates{
			Concurrency: &belay.Concurrency{Name: "x", Max: 1}, Target: "t",
			Rate: &belay.Rate{Name: "r", Max: 5, Per: belay.Duration(time.Second)},
		}}}).ID
	}
	limited()
	first := g.next(worker)
	limited()
	g.claims++
	g.must(&machine.Claim{
		ClaimRequest: belay.ClaimRequest{Worker: worker, Number: g.claims, Slots: 1}, Lanes: lanes,
		Secrets: []belay.Secret{g.fresh()},
	})
	end := &machine.Settle{Settlement: belay.Settlement{Lease: first, Op: g.fresh(), Outcome: belay.OutcomeSucceeded}}
	for _, c := range g.must(end).Follow {
		g.must(c)
	}
	pause := &machine.SetGate{
		GateChange: belay.GateChange{Gate: "queue:default", Action: belay.GatePause, Op: g.fresh()},
	}
	g.must(pause)
	g.must(pause)
	g.must(&machine.SetGate{GateChange: belay.GateChange{Gate: "queue:default", Action: belay.GateResume}})
	g.must(&machine.Outcome{Target: "t", Failed: true})
	last := g.next(worker)
	g.must(&machine.CallTarget{TargetCall: belay.TargetCall{Lease: last, Target: "t", Outcome: belay.OutcomeFailed}})
	g.must(&machine.Settle{Settlement: belay.Settlement{
		Lease: last, Op: g.fresh(), Outcome: belay.OutcomeFailed,
		Failure: &belay.Failure{Class: belay.ClassPermanent},
	}})
	for range 2 {
		replacing := &machine.Submit{Submission: belay.Submission{ID: g.fresh(), Workflow: "w", Gates: belay.Gates{
			Concurrency: &belay.Concurrency{Name: "z", Max: 1, WhenFull: belay.ReplaceWhenFull},
		}}}
		for _, c := range g.must(replacing).Follow {
			g.must(c)
		}
	}
}

// resources sends the commands that concern resources.
func (g *guide) resources(worker belay.WorkerID) {
	needs := func(mode string) {
		g.must(&machine.Submit{Submission: belay.Submission{ID: g.fresh(), Workflow: "w", Gates: belay.Gates{
			Requires: &belay.Requires{Resource: "gpu", Mode: mode, Preemptible: true},
		}}})
	}
	g.must(&machine.SetGate{GateChange: belay.GateChange{
		Gate: "resource:gpu", Action: belay.GateSetResource, Op: g.fresh(), Resource: &belay.ResourceTerms{
			MaxWait: belay.Duration(time.Millisecond), Swap: &belay.ResourceSwapper{Workflow: "w"},
		},
	}})
	needs("A")
	g.drained(worker)
	g.ended(g.next(worker)) // the swap
	first := g.next(worker)
	needs("B")
	g.drained(worker)
	g.clock.Advance(time.Second)
	g.followed(&machine.Admit{Gate: "resource:gpu", Heads: 1}) // asks the first one to yield
	g.followed(&machine.Settle{Settlement: belay.Settlement{
		Lease: first, Op: g.fresh(), Outcome: belay.OutcomePreempted,
	}})
	g.ended(g.next(worker)) // the second swap
	g.drained(worker)       // the first one waits for its mode
	g.ended(g.next(worker))
}

// drained makes the worker claim, where it wins nothing, and sends what follows.
func (g *guide) drained(worker belay.WorkerID) {
	g.claims++
	g.followed(&machine.Claim{
		ClaimRequest: belay.ClaimRequest{Worker: worker, Number: g.claims, Slots: 1}, Lanes: lanes,
		Secrets: []belay.Secret{g.fresh()},
	})
}

// ended ends a run and sends what follows.
func (g *guide) ended(l belay.Lease) {
	g.followed(&machine.Settle{Settlement: belay.Settlement{Lease: l, Op: g.fresh(), Outcome: belay.OutcomeSucceeded}})
}

// followed sends a command and the commands that follow from it.
func (g *guide) followed(c machine.Command) {
	for queue := []machine.Command{c}; len(queue) > 0; queue = queue[1:] {
		if s, ok := queue[0].(*machine.BeginSwap); ok {
			s.Execution = g.fresh()
		}
		queue = append(queue, g.must(queue[0]).Follow...)
	}
}

// must sends a command that must not be refused.
func (g *guide) must(c machine.Command) machine.Reply {
	g.t.Helper()
	replies := g.send(g.rt, []machine.Command{c})
	if replies[0].Err != nil {
		g.rt.Fatalf("%s: %v", describe([]machine.Command{c}), replies[0].Err)
	}
	g.check(g.rt)
	return replies[0]
}

// submitted submits a root execution.
func (g *guide) submitted(p belay.Policy) belay.ExecutionID {
	return g.must(&machine.Submit{Submission: belay.Submission{ID: g.fresh(), Workflow: "w", Policy: p}}).ID
}

// won submits an execution and wins it.
func (g *guide) won(worker belay.WorkerID, p belay.Policy) belay.Lease {
	g.submitted(p)
	return g.next(worker)
}

// next wins the execution that is due first.
func (g *guide) next(worker belay.WorkerID) belay.Lease {
	g.claims++
	c := &machine.Claim{
		ClaimRequest: belay.ClaimRequest{
			Worker: worker, Number: g.claims, Slots: 1,
		}, Lanes: lanes, Idle: true, Secrets: []belay.Secret{g.fresh()},
	}
	won := g.must(c).Claims
	if len(won) != 1 {
		g.rt.Fatalf("claim %d won nothing", g.claims)
	}
	g.must(again(c))
	return leaseOf(&won[0].Execution)
}

// ownership sends the commands of owners.
func (g *guide) ownership(worker belay.WorkerID) {
	keyed := belay.Submission{ID: g.fresh(), Workflow: "other", IdempotencyKey: "k"}
	g.must(&machine.Submit{Submission: keyed})
	keyed.ID = g.fresh()
	g.must(&machine.Submit{Submission: keyed})
	for range 2 { // the second execution takes the key of the first
		alike := belay.Submission{ID: g.fresh(), Workflow: "other", Idempotency: belay.IdempotencyByContent}
		first := g.must(&machine.Submit{Submission: alike}).ID
		alike.ID = g.fresh()
		g.must(&machine.Submit{Submission: alike})
		g.must(&machine.Act{Control: belay.Control{Execution: first, Action: belay.ActionCancel}})
	}
	s := &machine.Submit{Submission: belay.Submission{
		ID: g.fresh(), Workflow: "w", Policy: belay.Policy{IdleTimeout: belay.Duration(time.Minute)},
	}}
	g.must(s)
	g.must(s)
	l := g.next(worker)
	for _, kind := range []belay.CheckpointKind{belay.KindStep, belay.KindState, belay.KindState, belay.KindWait} {
		save := &machine.Save{
			Save: belay.Save{Lease: l, Op: g.fresh(), Kind: kind, Key: "a", Data: []byte(`1`), CostTokens: 1},
		}
		g.must(save)
		g.must(again(save))
	}
	signal := &machine.Deliver{
		SignalRequest: belay.SignalRequest{
			Execution: l.Execution, Name: "s", Actor: "ann", Op: g.fresh(), Payload: []byte(`1`),
		},
	}
	seq := g.must(signal).Seq
	g.must(signal)
	g.must(&machine.Save{Save: belay.Save{Lease: l, Op: g.fresh(), Kind: belay.KindWait, Key: "b", Consumes: seq}})
	for n := range int64(3) {
		c := &machine.Append{Chunk: belay.Chunk{Lease: l, Name: "log", N: n, Data: []byte("text"), DropTo: n / 2}}
		g.asked.chunks = add(g.asked.chunks, machine.ChunkRef{Execution: l.Execution, Name: "log"})
		g.must(c)
		g.must(c)
	}
	g.clock.Advance(time.Second)
	g.must(&machine.Progress{Execution: l.Execution, Token: l.Token, At: g.oracle.Now()})
	g.must(&machine.Heartbeat{
		Heartbeat: belay.Heartbeat{Worker: worker, Holds: []belay.Held{{Execution: l.Execution, Token: l.Token}}},
	})
	// no server was alive, so no worker could renew its session: the session is extended by the gap
	g.clock.Advance(time.Minute)
	g.must(&machine.Heartbeat{
		Heartbeat: belay.Heartbeat{Worker: worker, Holds: []belay.Held{{Execution: l.Execution, Token: l.Token}}},
	})
	key := belay.ChildID(l.Execution, 1, "child")
	child := &machine.Submit{Submission: belay.Submission{ID: key, Workflow: "w", Parent: &l, ParentKey: "child"}}
	g.must(child)
	g.must(child)
	g.settled(l, belay.OutcomeSucceeded)
	g.must(&machine.CancelChild{Execution: key})
}

func (g *guide) settled(l belay.Lease, o belay.Outcome) {
	s := &machine.Settle{Settlement: belay.Settlement{
		Lease: l, Op: g.fresh(), Outcome: o, Output: []byte(`"out"`), Wait: time.Hour,
	}, Jitter: 0.5}
	g.must(s)
	g.must(again(s))
}

// outcomes ends runs with each outcome.
func (g *guide) outcomes(worker belay.WorkerID) {
	for _, o := range []belay.Outcome{
		belay.OutcomeFailed, belay.OutcomeTimedOut, belay.OutcomeSuspended, belay.OutcomePreempted,
		belay.OutcomeReleased,
	} {
		l := g.won(worker, belay.Policy{MaxAttempts: 1})
		g.settled(l, o)
		if o != belay.OutcomeFailed && o != belay.OutcomeTimedOut {
			g.act(l.Execution, belay.ActionCancel)
		}
	}
	l := g.won(worker, belay.Policy{})
	g.act(l.Execution, belay.ActionCancel)
	g.settled(l, belay.OutcomeCancelled)
	lost := g.won(worker, belay.Policy{})
	g.must(&machine.Heartbeat{Heartbeat: belay.Heartbeat{Worker: worker, ClaimSeen: g.claims}})
	g.must(&machine.Release{Execution: lost.Execution, Token: lost.Token, Worker: worker})
	g.act(lost.Execution, belay.ActionCancel)
	late := g.submitted(belay.Policy{StartTimeout: belay.Duration(time.Second)})
	g.clock.Advance(2 * time.Second)
	g.must(&machine.Tick{Execution: late})
}

// act carries out an action, and repeats it under the same operation id.
func (g *guide) act(id belay.ExecutionID, action belay.Action) {
	c := &machine.Act{Control: belay.Control{Execution: id, Action: action, Op: g.fresh(), Actor: "me"}}
	if action == belay.ActionFork {
		c.Fork = g.fresh()
	}
	g.must(c)
	g.must(c)
}

// control sends the commands of operators.
func (g *guide) control(worker belay.WorkerID) {
	id := g.submitted(belay.Policy{})
	g.act(id, belay.ActionPause)
	g.act(id, belay.ActionResume)
	l := g.next(worker)
	g.act(l.Execution, belay.ActionPreempt)
	g.act(l.Execution, belay.ActionSteal)
	g.act(id, belay.ActionCancel)
	g.act(id, belay.ActionRetry)
	g.act(id, belay.ActionCancel)
	g.act(id, belay.ActionRequeue)
	g.act(id, belay.ActionFork)
	g.act(id, belay.ActionCancel)
	for _, rec := range g.now.Listed {
		if x := rec.Execution; x.Workflow == "w" && !x.State.Terminal() {
			g.act(x.ID, belay.ActionCancel)
		}
	}
}

// outside sends the commands of external owners.
func (g *guide) outside() {
	id := g.must(&machine.Submit{Submission: belay.Submission{ID: g.fresh(), Workflow: "w", External: true}}).ID
	lock := func() (*machine.Lock, belay.Lease) {
		r := belay.LockRequest{
			ID: g.fresh(), Execution: id, Owner: "out", TTL: 2 * belay.Duration(time.Second), Reopen: true,
		}
		c := &machine.Lock{LockRequest: r, Secret: g.fresh()}
		return c, leaseOf(&g.must(c).Claims[0].Execution)
	}
	first, l := lock()
	g.must(first)
	l.Token = 0
	g.must(&machine.Renew{Lease: l})
	g.act(id, belay.ActionSteal)
	g.must(&machine.Vacate{Worker: l.Worker, Why: "taken"})
	_, l = lock()
	g.settled(l, belay.OutcomeSuspended)
	_, l = lock()
	g.clock.Advance(2 * time.Second)
	g.must(&machine.Expire{Worker: l.Worker})
	g.must(&machine.Lose{Execution: id, Token: l.Token, Worker: l.Worker})
	_, l = lock()
	g.settled(l, belay.OutcomeSucceeded)
}

// keys creates API keys and revokes them.
func (g *guide) keys() {
	id := belay.KeyID(g.fresh())
	g.must(&machine.CreateKey{
		KeySpec: belay.KeySpec{Name: "ci", Scopes: []belay.Scope{belay.ScopeAdmin}}, ID: id, Hash: [32]byte{1},
	})
	g.must(&machine.RevokeKey{Revocation: belay.Revocation{Key: id}})
	g.must(&machine.RevokeKey{Revocation: belay.Revocation{Key: id}})
}

// sessions ends sessions in each way, with the executions that they own.
func (g *guide) sessions(worker belay.WorkerID) {
	id := g.submitted(belay.Policy{})
	lost := g.must(&machine.Schedule{Execution: id, Worker: worker, Secret: g.fresh()}).Execution
	g.must(&machine.Undeliver{Execution: id, Worker: worker, Token: lost.Token})
	lane := machine.NewLane(lost.Queue, lost.Workflow, lost.Version, 0, nil)
	for _, c := range g.must(&machine.Claim{
		ClaimRequest: belay.ClaimRequest{Worker: worker, Slots: 1}, Lanes: []machine.Lane{lane},
		Secrets: []belay.Secret{g.fresh()}, Assign: true,
	}).Claims {
		e := &c.Execution
		g.must(&machine.Undeliver{Execution: e.ID, Worker: worker, Token: e.Token})
	}
	scheduled := g.must(&machine.Schedule{Execution: id, Worker: worker, Secret: g.fresh()}).Execution
	accept := &machine.Accept{Worker: worker, Execution: id, Token: scheduled.Token, Number: 1}
	g.must(accept)
	g.must(accept)
	g.must(&machine.Cordon{Cordon: belay.Cordon{Worker: worker}})
	g.must(&machine.Cordon{Cordon: belay.Cordon{Worker: worker, Off: true}})
	g.must(&machine.Probe{Worker: worker, Error: "refused"})
	g.must(&machine.Probe{Worker: worker})
	g.must(&machine.Drain{Worker: worker})
	g.must(&machine.End{Worker: worker})
	alone := g.submitted(belay.Policy{OnNoWorker: belay.FailNoWorker})
	g.must(&machine.NoWorker{Execution: alone, Seq: 1})
	g.must(&machine.Lose{Execution: id, Token: scheduled.Token, Worker: worker})
	for _, dead := range []string{"its process is gone", ""} {
		w := belay.WorkerID(g.fresh())
		g.must(&machine.Open{WorkerSpec: belay.WorkerSpec{ID: w, Name: "worker", TTL: belay.Duration(time.Second)}})
		if dead != "" {
			g.must(&machine.End{Worker: w, Dead: dead})
			continue
		}
		g.clock.Advance(2 * time.Second)
		g.must(&machine.Expire{Worker: w})
	}
}
