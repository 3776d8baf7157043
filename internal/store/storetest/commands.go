package storetest

import (
	"encoding/binary"
	"math/rand/v2"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"pgregory.net/rapid"
)

// command draws a command that is likely to be accepted but may be refused. A tenth of the commands
// repeat an earlier command.
func (w *walker) command() machine.Command {
	w.seed()
	switch {
	case len(w.sent) > 0 && w.chance(10):
		return again(one(w, w.sent...))
	case w.living() < 2 && w.chance(3):
		return w.openWorker()
	case w.running() < 2 && w.chance(3):
		return w.claim()
	}
	often := one(w, w.submit, w.submitChild, w.claim, w.claim, w.save, w.save, w.settle, w.settle, w.act, w.act,
		w.heartbeat)
	seldom := one(w, w.lock, w.lock, w.renew, w.renew, w.vacate, w.openWorker, w.schedule, w.accept, w.accept,
		w.appendChunk, w.appendChunk, w.progress, w.release, w.lose, w.deliver, w.cancelChild, w.tick)
	rarely := one(w, w.setGate, w.setGate, w.resource, w.resource, w.admit,
		w.cancelReplaced, w.outcome, w.callTarget, w.createKey, w.revokeKey, w.applyDocument,
		w.changeDocument,
		w.openWorker, w.end, w.expire, w.drain)
	c := one(w, often, often, often, often, often, seldom, seldom, rarely)()
	w.sent = append(w.sent, c)
	return c
}

// again returns the command that a client sends to repeat c after it got no reply.
func again(c machine.Command) machine.Command {
	switch c := c.(type) {
	case *machine.Claim:
		next := *c
		next.Repeat = true
		return &next
	case *machine.Save:
		next := *c
		next.Repeat = true
		return &next
	case *machine.Settle:
		next := *c
		next.Repeat = true
		return &next
	}
	return c
}

func (w *walker) submit() machine.Command {
	s := belay.Submission{
		ID: w.fresh(), Workflow: one(w, "w", "w", "v"), Queue: one(w, "", "", "q"),
		Priority: one(w, 0, 0, 1), Input: w.payload(), Policy: w.policy(), External: w.chance(12),
	}
	if w.chance(8) {
		s.ID = w.execution(0)
	}
	if w.chance(3) {
		s.Gates = w.gates()
	}
	if w.chance(4) {
		s.IdempotencyKey, s.Input = one(w, "k0", "k1"), nil
	} else if w.chance(4) {
		s.Idempotency, s.Input = belay.IdempotencyByContent, []byte(one(w, "", "1", "1.0", "2"))
		s.Policy, s.External = belay.Policy{}, false
	}
	if w.chance(8) {
		s.DueAt = w.clock.Now().Add(2 * time.Second)
	}
	if w.chance(4) {
		s.Labels = map[string]string{"a": "1"}
	}
	if w.chance(8) {
		s.WorkerLabels = map[string]string{"gpu": "yes"}
	}
	if w.chance(6) {
		reported(&s)
		for i := range s.Notify {
			w.known = add(w.known, belay.NotificationID(s.ID, 1, i))
		}
	}
	if w.chance(6) {
		s.Trace = belay.Trace{Parent: traceparent, State: one(w, "", "vendor=1")}
	}
	w.known = add(w.known, s.ID)
	c := &machine.Submit{Submission: s}
	for _, key := range machine.NeedOf([]machine.Command{c}).Keys {
		w.asked.keys = add(w.asked.keys, key)
	}
	return c
}

func (w *walker) submitChild() machine.Command {
	parent, key := w.lease(), one(w, "a", "b")
	s := belay.Submission{Workflow: "w", ParentKey: key, Parent: &parent, Policy: w.policy(), ID: w.fresh()}
	if x := w.row(parent.Execution); x != nil && !w.chance(10) {
		s.ID = belay.ChildID(x.ID, x.Generation, key)
	}
	w.known = add(w.known, s.ID)
	return &machine.Submit{Submission: s}
}

func (w *walker) policy() belay.Policy {
	if w.chance(2) {
		return belay.Policy{}
	}
	second := belay.Duration(time.Second)
	return belay.Policy{
		MaxAttempts: w.number(0, 2), MaxLosses: w.number(0, 2), BackoffBase: second,
		OnLost: one(w, "", belay.Requeue, belay.Fail), NoDeadLetters: w.chance(6), Abandon: w.chance(4),
		OnExpired:  one(w, "", belay.Reschedule, belay.FailExpired),
		RunTimeout: one(w, 0, 0, 5*second), IdleTimeout: one(w, 0, 4*second),
		StartTimeout: one(w, 0, 0, 8*second), Timeout: one(w, 0, 0, 20*second),
		LockDelay: one(w, 0, 2*second), OnNoWorker: one(w, "", "", belay.WaitForWorker, belay.FailNoWorker),
	}
}

func (w *walker) openWorker() machine.Command {
	s := belay.WorkerSpec{
		ID: w.fresh(), Name: "worker", Queues: []string{"default", "q"}, Capacity: 4,
		Workflows: []belay.Registration{{Workflow: "w"}, {Workflow: "v"}},
		TTL:       one(w, 0, 2*belay.Duration(time.Second)), Health: ":9090",
	}
	if w.chance(4) {
		s.Labels = map[string]string{"gpu": "yes"}
	}
	if w.chance(4) {
		s.ID = w.worker()
	}
	w.workers = add(w.workers, s.ID)
	return &machine.Open{WorkerSpec: s}
}

func (w *walker) claim() machine.Command {
	c := &machine.Claim{ClaimRequest: belay.ClaimRequest{Worker: w.worker(), Slots: w.number(0, 4)}}
	c.Number = 1 + int64(w.number(0, 4))
	var spec belay.WorkerSpec
	if x := w.session(c.Worker); x != nil {
		spec = x.Spec
		if !w.chance(8) {
			c.Number = max(x.ClaimNo, x.ClaimFloor) + 1
		} else if w.chance(2) {
			c.Number, c.Repeat = x.ClaimNo, true
		}
	}
	for p := 1; p >= 0; p-- {
		for _, l := range w.now.Lanes {
			if l.Priority == p && (l.Takes(spec) || w.chance(10)) {
				c.Lanes = append(c.Lanes, l)
			}
		}
	}
	for range c.Slots {
		c.Secrets = append(c.Secrets, w.fresh())
	}
	return c
}

func (w *walker) lock() machine.Command {
	r := belay.LockRequest{
		ID: w.fresh(), Execution: w.execution(one(w, belay.Pending, belay.Waiting, belay.Failed, belay.Running)),
		Owner: "out", TTL: one(w, 0, 2*belay.Duration(time.Second)), Reopen: w.chance(2),
	}
	if w.chance(6) {
		r.ID = w.worker()
	}
	w.workers = add(w.workers, r.ID)
	return &machine.Lock{LockRequest: r, Secret: w.fresh()}
}

func (w *walker) renew() machine.Command {
	l := w.lease()
	if w.chance(3) {
		l.Token = 0
	}
	return &machine.Renew{Lease: l}
}

func (w *walker) vacate() machine.Command { return &machine.Vacate{Worker: w.worker(), Why: "taken"} }

// gates draws the gates that an execution names.
func (w *walker) gates() (g belay.Gates) {
	if w.chance(2) {
		n := w.number(0, 1) // mostly the same limit under the same name
		g.Concurrency = &belay.Concurrency{
			Name: []string{"x", "y"}[n], Max: 1 + n + w.number(0, 8)/8,
			WhenFull: one(w, "", belay.WaitWhenFull, belay.RejectWhenFull, belay.ReplaceWhenFull),
		}
	}
	if w.chance(4) {
		g.Rate = &belay.Rate{Name: "r", Max: 2 + w.number(0, 8)/8, Per: belay.Duration(time.Second)}
	}
	if w.chance(3) {
		g.Target = one(w, "t", "u")
	}
	if w.chance(4) {
		g.Requires = &belay.Requires{Resource: "gpu", Mode: one(w, "A", "B"), Preemptible: w.chance(2)}
	}
	return g
}

func (w *walker) gate() belay.GateID {
	return one[belay.GateID](w, "limit:x", "limit:y", "rate:r", "target:t", "target:u", "queue:default", "queue:q",
		"workflow:w", "resource:gpu", "resource:gpu")
}

// resource draws a command that concerns a resource: a change of its terms, or a command that usually
// follows from another one.
func (w *walker) resource() machine.Command {
	const gpu = belay.GateID("resource:gpu")
	terms := &belay.ResourceTerms{MaxWait: belay.Duration(time.Second)}
	if w.chance(2) {
		terms.Swap = &belay.ResourceSwapper{Workflow: "w"}
	}
	begin := &machine.BeginSwap{Gate: gpu, To: one(w, "A", "B"), Execution: w.fresh()}
	w.known = add(w.known, begin.Execution)
	return one[machine.Command](w,
		&machine.SetGate{GateChange: belay.GateChange{Gate: gpu, Action: belay.GateSetResource, Resource: terms}},
		&machine.SetGate{GateChange: belay.GateChange{Gate: gpu, Action: belay.GateUnsetResource}},
		&machine.Admit{Gate: gpu, Heads: 9, Modes: []string{"A", "B"}, Lead: one(w, "A", "B")},
		&machine.EndSwap{Gate: gpu, Execution: w.execution(0)}, begin, begin,
		&machine.AskHolders{Gate: gpu}, &machine.Yield{Gate: gpu, Execution: w.execution(0)},
	)
}

func (w *walker) setGate() machine.Command {
	return &machine.SetGate{GateChange: belay.GateChange{
		Gate: w.gate(), Max: w.number(1, 3), Per: belay.Duration(time.Second), Actor: one(w, "", "ann"),
		Action: one(w, belay.GatePause, belay.GateResume, belay.GateResume, belay.GateSetLimit, belay.GateUnsetLimit,
			belay.GateSetRate, belay.GateUnsetRate, belay.GateForceOpen, belay.GateForceClosed, belay.GateAutomatic),
	}}
}

func (w *walker) admit() machine.Command {
	return &machine.Admit{Gate: w.gate(), Heads: w.number(1, 3)}
}

func (w *walker) outcome() machine.Command {
	return &machine.Outcome{Target: one(w, "t", "u"), Failed: w.chance(2), Probe: w.chance(2)}
}

func (w *walker) callTarget() machine.Command {
	return &machine.CallTarget{TargetCall: belay.TargetCall{
		Lease: w.lease(), Target: one(w, "t", "u"), Step: one(w, "a", "b"),
		Outcome: one(w, 0, 0, belay.OutcomeFailed, belay.OutcomeFailed, belay.OutcomeSucceeded, belay.OutcomeReleased),
	}}
}

func (w *walker) createKey() machine.Command {
	return &machine.CreateKey{
		KeySpec: belay.KeySpec{
			Name: "ci", Scopes: []belay.Scope{belay.ScopeRead, one(w, belay.ScopeSubmit, belay.ScopeRead)},
		},
		ID: w.fresh(), Hash: [32]byte{byte(w.number(0, 255))},
	}
}

func (w *walker) revokeKey() machine.Command {
	if len(w.now.Objects) == 0 || w.chance(8) {
		return &machine.RevokeKey{Revocation: belay.Revocation{Key: w.fresh()}}
	}
	k, err := machine.ReadAPIKey(one(w, w.now.Objects...))
	if err != nil {
		w.rt.Fatal(err)
	}
	return &machine.RevokeKey{Revocation: belay.Revocation{Key: k.ID, Actor: "me"}}
}

func (w *walker) schedule() machine.Command {
	return &machine.Schedule{Execution: w.execution(belay.Pending), Worker: w.worker(), Secret: w.fresh()}
}

func (w *walker) accept() machine.Command {
	l := w.leaseIn(belay.Scheduled)
	if w.chance(4) {
		return &machine.Undeliver{
			Execution: l.Execution, Worker: l.Worker, Token: l.Token,
			Waited: time.Duration(w.number(0, 2)) * time.Second,
		}
	}
	return &machine.Accept{Worker: l.Worker, Execution: l.Execution, Token: l.Token, Number: int64(w.number(1, 4))}
}

func (w *walker) save() machine.Command {
	if len(w.late) > 0 && w.chance(3) {
		return &machine.Save{Save: one(w, w.late...)}
	}
	s := belay.Save{
		Lease: w.lease(), Kind: belay.CheckpointKind(w.number(1, 3)), Key: one(w, "a", "b", "c"), Data: w.payload(),
		CostTokens: belay.Cost(w.number(0, 3)) * 4999, Took: time.Duration(w.number(0, 2)) * time.Second,
		Attempt: w.number(0, 2), Steps: w.reports(),
	}
	used := len(w.ops)
	s.Op, s.Repeat = w.op()
	if s.Repeat && len(w.ops) > used { // the first try arrives after its repetition
		first := s
		first.Repeat = false
		w.late = append(w.late, first)
	}
	if w.chance(4) {
		s.Kind, s.Consumes = belay.KindWait, w.signalSeq(s.Lease.Execution)
		if w.chance(2) {
			s.AlsoConsumes = []int64{w.signalSeq(s.Lease.Execution)}
		}
	}
	w.asked.ops = add(w.asked.ops, machine.OpRef{Execution: s.Lease.Execution, Op: s.Op})
	return &machine.Save{Save: s}
}

func (w *walker) appendChunk() machine.Command {
	c := belay.Chunk{Lease: w.lease(), Name: one(w, "log", "out"), N: int64(w.number(0, 4)), Data: []byte("text")}
	if w.chance(5) {
		c.Data = []byte("other")
	}
	if w.chance(4) {
		c.DropTo = c.N
	}
	w.asked.chunks = add(w.asked.chunks, machine.ChunkRef{Execution: c.Lease.Execution, Name: c.Name})
	return &machine.Append{Chunk: c}
}

func (w *walker) progress() machine.Command {
	l := w.lease()
	return &machine.Progress{
		Execution: l.Execution, Token: l.Token, At: w.oracle.Now().Add(time.Duration(w.number(-2, 1)) * time.Second),
	}
}

func (w *walker) settle() machine.Command {
	s := belay.Settlement{
		Lease: w.lease(), Outcome: one(w,
			belay.OutcomeSucceeded, belay.OutcomeFailed, belay.OutcomeFailed, belay.OutcomeTimedOut, belay.OutcomeLost,
			belay.OutcomeSuspended,
			belay.OutcomeSuspended, belay.OutcomePreempted, belay.OutcomeReleased, belay.OutcomeCancelled,
		),
		Output: w.payload(), SignalSeen: int64(w.number(0, 6)), CostTokens: belay.Cost(w.number(0, 3)) * 4999,
		Wait: one(w, 0, 3*time.Second), WaitText: "for it", RetryAfter: one(w, 0, 0, 4*time.Second),
		Steps: w.reports(),
	}
	s.Op, s.Repeat = w.op()
	if x := w.row(s.Lease.Execution); x != nil && x.CancelBy != 0 && w.chance(2) {
		s.Outcome = belay.OutcomeCancelled
	}
	if s.Outcome == belay.OutcomeFailed {
		s.Failure = &belay.Failure{Class: belay.Class(w.number(0, 5)), Message: "broken", Stack: "at main"}
		if s.Failure.Class == belay.ClassCircuitOpen && w.chance(2) {
			s.Failure.Target = one(w, "t", "u")
		}
	}
	return &machine.Settle{Settlement: s, Jitter: 0.25}
}

func (w *walker) release() machine.Command {
	l := w.lease()
	return &machine.Release{Execution: l.Execution, Token: l.Token, Worker: l.Worker}
}

func (w *walker) lose() machine.Command {
	l := w.lease()
	return &machine.Lose{Execution: l.Execution, Token: l.Token, Worker: l.Worker}
}

func (w *walker) expire() machine.Command { return &machine.Expire{Worker: w.worker()} }

func (w *walker) end() machine.Command {
	if w.chance(2) {
		return &machine.End{Worker: w.worker(), Dead: "its process is gone"}
	}
	return &machine.End{Worker: w.worker()}
}

func (w *walker) drain() machine.Command {
	if w.chance(2) {
		c := belay.Cordon{Worker: w.worker(), Off: w.chance(2), Actor: "ann"}
		if w.chance(2) {
			c.Reason = "its disk is failing"
		}
		return &machine.Cordon{Cordon: c}
	}
	if w.chance(2) {
		return &machine.Probe{Worker: w.worker(), Error: one(w, "", "refused", "503 \x1b[2Jno disk")}
	}
	return &machine.Drain{Worker: w.worker()}
}

func (w *walker) heartbeat() machine.Command {
	h := belay.Heartbeat{Worker: w.worker(), ClaimSeen: int64(w.number(0, 4)), AcceptSeen: int64(w.number(0, 4))}
	for _, l := range w.leases {
		if l.Worker == h.Worker && !w.chance(3) || w.chance(20) {
			h.Holds = append(h.Holds, belay.Held{
				Execution: l.Execution, Token: l.Token, Idle: time.Duration(w.number(0, 2)) * time.Second,
				Steps: w.reports(),
			})
		}
	}
	return &machine.Heartbeat{Heartbeat: h}
}

// reports draws steps that a worker reports, mostly none.
func (w *walker) reports() []belay.StepReport {
	var all []belay.StepReport
	for range w.number(0, 3) - 1 {
		all = append(all, belay.StepReport{
			Kind: one(w, belay.KindStep, belay.KindWait), Name: one(w, "a", "b", ""), Attempt: w.number(0, 2),
			Ago: time.Duration(w.number(0, 5)) * time.Second, Over: w.chance(2), Error: one(w, "", "no"),
		})
	}
	return all
}

func (w *walker) deliver() machine.Command {
	s := belay.SignalRequest{Execution: w.execution(0), Name: one(w, "s", "t"), Payload: w.payload()}
	if w.chance(2) {
		s.Actor = "ann"
	}
	if w.chance(2) {
		s.Op, _ = w.op()
		w.asked.ops = add(w.asked.ops, machine.OpRef{Execution: s.Execution, Op: s.Op})
	}
	return &machine.Deliver{SignalRequest: s}
}

func (w *walker) act() machine.Command {
	c := belay.Control{
		Action: one(w,
			belay.ActionCancel, belay.ActionPause, belay.ActionPause, belay.ActionResume, belay.ActionResume,
			belay.ActionRetry,
			belay.ActionRequeue, belay.ActionFork, belay.ActionSteal, belay.ActionPreempt, belay.ActionDelete, "dance",
		),
		Actor: "me", Reason: "because", Grace: one(w, 0, belay.Duration(time.Second)),
	}
	c.Execution = w.execution(map[belay.Action]belay.State{
		belay.ActionResume: belay.Paused, belay.ActionRetry: belay.Failed, belay.ActionRequeue: belay.Failed,
		belay.ActionSteal: belay.Running, belay.ActionPreempt: belay.Running, belay.ActionDelete: belay.Succeeded,
	}[c.Action])
	if w.chance(2) {
		c.Op, _ = w.op()
		w.asked.ops = add(w.asked.ops, machine.OpRef{Execution: c.Execution, Op: c.Op})
	}
	if c.Action == belay.ActionRequeue || c.Action == belay.ActionFork && w.chance(2) {
		c.Input = []byte(`{"again":true}`)
	}
	if c.Action == belay.ActionRetry && w.chance(2) {
		c.From = one(w, "a", "b", "c")
	}
	if c.Action == belay.ActionFork {
		c.Fork = w.fresh()
		if w.chance(2) {
			c.UpTo = int64(w.number(0, 6))
		} else {
			c.At = one(w, "a", "b", "c")
		}
		if w.chance(8) {
			c.Fork = w.execution(0)
		}
		w.known = add(w.known, c.Fork)
	}
	return &machine.Act{Control: c}
}

func (w *walker) cancelReplaced() machine.Command {
	return &machine.CancelReplaced{Gate: w.gate(), Execution: w.execution(0)}
}

func (w *walker) cancelChild() machine.Command {
	return &machine.CancelChild{Execution: w.execution(0)}
}

func (w *walker) tick() machine.Command {
	return &machine.Tick{Execution: w.execution(0), Jitter: 0.5}
}

// seed draws one number from rapid, which determines all choices for the next command. So the
// choices are evenly distributed, unlike the numbers that rapid itself draws, and rapid can still
// shorten a failing walk by whole commands.
func (w *walker) seed() {
	seed := rapid.Uint64().Draw(w.rt, "seed")
	w.rand = rand.New(rand.NewPCG(seed, 0))
}

// number chooses a number between least and most, both included.
func (w *walker) number(least, most int) int { return least + w.rand.IntN(most-least+1) }

// chance returns true with a probability of one in n.
func (w *walker) chance(n int) bool { return w.rand.IntN(n) == 0 }

func one[T any](w *walker, from ...T) T { return from[w.rand.IntN(len(from))] }

// add adds a value unless the list has it.
func add[T comparable](all []T, v T) []T {
	for _, have := range all {
		if have == v {
			return all
		}
	}
	return append(all, v)
}

// fresh is a new id.
func (w *walker) fresh() (id [16]byte) {
	w.made++
	binary.BigEndian.PutUint64(id[:], 0x0193_0000_0000_7000+w.made<<16)
	binary.BigEndian.PutUint64(id[8:], 1<<63|w.made)
	return id
}
