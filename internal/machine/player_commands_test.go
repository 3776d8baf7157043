package machine

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// policies are the policies of the submitted executions.
var policies = []belay.Policy{
	{}, {OnNoWorker: belay.FailNoWorker}, {MaxAttempts: 2}, {MaxLosses: 2}, {OnLost: belay.Fail}, {Abandon: true},
	{RunTimeout: within(5 * time.Second), CancelGrace: within(time.Second), MaxAttempts: 2},
	{IdleTimeout: within(3 * time.Second)}, {Timeout: within(20 * time.Second), CancelGrace: within(2 * time.Second)},
	{StartTimeout: within(10 * time.Second)}, {ScheduledTimeout: within(4 * time.Second), OnExpired: belay.FailExpired},
	{ScheduledTimeout: within(4 * time.Second)}, {LockDelay: within(2 * time.Second), MaxLosses: 3},
	{NoDeadLetters: true, MaxAttempts: 1}, {MaxAttempts: 1},
}

// maxExecutions is the largest number of executions in one history.
const maxExecutions = 9

// step sends one command, or the commands of a sweep.
func (p *player) step() {
	steps := []func(){
		p.submit, p.submit, p.child, p.child, p.claim, p.claim, p.claim, p.claim, p.schedule, p.accept,
		p.save, p.save, p.consume, p.settle, p.settle, p.settle, p.signal, p.beat, p.beat, p.act, p.act,
		p.lock, p.lock, p.renew, p.renew, p.vacate,
		p.gate, p.gate, p.gate, p.takeBack, p.takeBack, p.session, p.session, p.repeat, p.repeat, p.sendDelayed,
		p.append, p.append, p.sweep, p.sweep,
	}
	steps[p.n(len(steps))]()
}

func (p *player) submit() {
	s := belay.Submission{ID: belay.ExecutionID(p.id()), Workflow: "job", Policy: policies[p.n(len(policies))]}
	switch p.n(8) {
	case 0:
		s.IdempotencyKey = string(rune('a' + p.n(3)))
	case 1:
		s.DueAt = p.now.Add(time.Duration(p.n(20)) * time.Second).Time()
	case 2:
		s.Priority = p.n(3) - 1
	case 3:
		s.External = p.n(3) == 0
	case 4:
		if id := p.execution(); !id.IsZero() {
			s.ID = id // a submission under an id in use, probably with another body
		}
	case 5:
		s.Idempotency, s.Policy = belay.IdempotencyByContent, belay.Policy{}
	}
	s.Notify = notificationsBy(s.ID)
	if p.targets != nil && s.ID[15]%2 == 1 {
		s.Labels = map[string]string{"odd": "yes"}
	}
	if p.n(4) == 0 {
		s.Budget = &belay.Budget{Cost: belay.Cost(1+p.n(4)) * 5000}
	}
	s.Gates = p.gates()
	if len(p.executions) < maxExecutions {
		joined := p.n(8) == 0
		p.send(&Submit{Submission: s, Joined: joined})
		if p.n(8) == 0 { // the client got no answer and submits again
			p.send(&Submit{Submission: s, Joined: joined})
		}
	}
}

// gates returns the gates that an execution names. Most executions name none. The others name some
// of a few gates, so that several executions name the same gate.
func (p *player) gates() (g belay.Gates) {
	which := p.n(16)
	if which&1 != 0 && which < 12 {
		n := p.n(2) // executions mostly name the same limit under the same name
		g.Concurrency = &belay.Concurrency{Name: string(rune('x' + n)), Max: 1 + n + p.n(16)/15}
		if p.n(3) == 0 {
			g.Concurrency.WhenFull = []belay.WhenFull{belay.RejectWhenFull, belay.ReplaceWhenFull}[p.n(2)]
		}
	}
	if which&2 != 0 && which < 12 {
		g.Rate = &belay.Rate{Name: "r", Max: 1 + p.n(16)/15, Per: within(time.Second)}
	}
	if which&4 != 0 && which < 12 {
		g.Target = string(rune('t' + p.n(2)))
	}
	if which >= 12 && which <= 14 {
		g.Requires = &belay.Requires{Resource: "gpu", Mode: string(rune('A' + p.n(3))), Preemptible: p.n(3) > 0}
	}
	return g
}

// gate sends an operator's change of a gate, or an Admit as the sweeper does.
func (p *player) gate() {
	c := belay.GateChange{
		Gate: []belay.GateID{
			"limit:x", "limit:y", "rate:r", "target:t", "target:u", "queue:default", "workflow:job", "resource:gpu",
			"resource:gpu",
		}[p.n(9)],
		Action: []belay.GateAction{
			belay.GatePause, belay.GateResume, belay.GateResume, belay.GateSetLimit, belay.GateUnsetLimit,
			belay.GateSetRate,
			belay.GateUnsetRate, belay.GateForceOpen, belay.GateForceClosed, belay.GateAutomatic, belay.GateAutomatic,
			belay.GateSetResource, belay.GateSetResource, belay.GateSetResource, belay.GateUnsetResource,
		}[p.n(15)],
		Max: 1 + p.n(3), Per: within(time.Second), Op: p.op(),
	}
	if c.Action == belay.GatePause && p.n(2) == 0 {
		c.Until = p.now.Add(time.Duration(1+p.n(20)) * time.Second).Time()
	}
	if c.Action == belay.GateSetResource {
		c.Gate, c.Resource = "resource:gpu", &belay.ResourceTerms{
			MinResidency: within(time.Duration(p.n(3)) * time.Second),
			MaxWait:      within(time.Duration(2+p.n(2)) * time.Second),
		}
		if p.n(3) > 0 {
			c.Resource.Swap = &belay.ResourceSwapper{Workflow: "job"}
		}
	}
	switch p.n(5) {
	case 0:
		p.send(&Admit{Gate: c.Gate, Heads: 1 + p.n(3)})
	case 1:
		p.send(&Outcome{Target: c.Gate.Name(), Failed: p.n(4) > 0, Probe: p.n(2) == 0})
	case 2:
		p.send(&CallTarget{belay.TargetCall{
			Lease: p.lease(), Target: string(rune('t' + p.n(2))), Step: string(rune('a' + p.n(2))),
			Outcome: []belay.Outcome{0, 0, belay.OutcomeFailed, belay.OutcomeFailed, belay.OutcomeSucceeded,
				belay.OutcomeReleased}[p.n(6)],
		}})
	default:
		p.send(&SetGate{c})
	}
}

func (p *player) child() {
	l := p.lease()
	e := p.row(l.Execution)
	if e == nil || len(p.executions) >= 2*maxExecutions {
		return
	}
	k := string(rune('x' + p.n(3)))
	p.send(&Submit{Submission: belay.Submission{
		ID: belay.ChildID(l.Execution, e.Generation, k), Workflow: "job", Parent: &l, ParentKey: k,
		Policy: policies[p.n(len(policies))], Gates: p.gates(),
	}})
}

func (p *player) claim() {
	w := p.worker()
	last := p.claims[w]
	c := &Claim{ClaimRequest: belay.ClaimRequest{Worker: w, Number: 1, Slots: 1 + p.n(3)}}
	if last != nil {
		c.Number = last.Number + 1
		if p.n(5) == 0 { // the reply to the last claim was lost
			again := *last
			again.Repeat = true
			p.send(&again)
			return
		}
	}
	p.fillClaim(c)
	for i := range c.Secrets {
		c.Secrets[i] = belay.Secret(p.id())
	}
	p.claims[w] = c
	p.send(c)
}

func (p *player) lock() {
	id := belay.WorkerID(p.id())
	if l := p.lease(); p.n(3) == 0 {
		id = l.Worker // probably an id that is in use
	}
	ttl := within(time.Duration(p.n(40)) * time.Second)
	if x := p.keeper.workers[id]; x != nil { // repeats the original request
		ttl = x.Spec.TTL
	}
	p.send(&Lock{belay.LockRequest{ID: id, Execution: p.execution(), Owner: "out", TTL: ttl, Reopen: p.n(2) == 0},
		belay.Secret(p.id())})
}

func (p *player) renew() {
	l := p.lease()
	switch p.n(8) {
	case 0:
		l.Secret = belay.Secret(p.id())
	case 1, 2, 3:
		l.Token = 0
	}
	p.send(&Renew{Lease: l})
}

func (p *player) vacate() { p.send(&Vacate{p.lease().Worker, "its run was ended"}) }

func (p *player) schedule() {
	if p.n(4) == 0 {
		w := p.worker()
		p.send(&Mailbox{w, "a queue"})
		c := &Claim{ClaimRequest: belay.ClaimRequest{Worker: w, Slots: 1 + p.n(3)}, Assign: true}
		p.fillClaim(c)
		for i := range c.Secrets {
			c.Secrets[i] = belay.Secret(p.id())
		}
		p.send(c)
		if p.n(4) == 0 {
			p.send(&Mailbox{Worker: w})
		}
		return
	}
	p.send(&Schedule{Execution: p.execution(), Worker: p.worker(), Secret: belay.Secret(p.id())})
}

func (p *player) accept() {
	l := p.lease()
	for _, e := range p.where(func(e *Execution) bool { return e.State == belay.Scheduled }) {
		l = leaseOf(e)
	}
	if p.ids%5 == 0 {
		p.send(&Undeliver{l.Execution, l.Worker, l.Token, time.Duration(p.ids%3) * time.Second})
		return
	}
	p.accepts++
	p.send(&Accept{l.Worker, l.Execution, l.Token, p.accepts - int64(p.ids%2)})
}

func (p *player) save() {
	p.operate(&Save{Save: belay.Save{
		Lease: p.lease(), Op: p.op(), Kind: belay.KindStep + belay.CheckpointKind(p.n(3)),
		Key:  string(rune('a' + p.n(2))),
		Data: json.RawMessage(fmt.Sprint(p.ids)), CostTokens: belay.Cost(p.n(3)) * 4999,
	}})
}

func (p *player) consume() {
	l := p.lease()
	var some []int64
	for _, s := range p.records[l.Execution].signals {
		if p.n(2) == 0 {
			some = append(some, s.Seq)
		}
	}
	if len(some) == 0 {
		return
	}
	p.operate(&Save{Save: belay.Save{
		Lease: l, Op: p.op(), Kind: belay.KindWait, Key: "w", Consumes: some[0], AlsoConsumes: some[1:],
	}})
}

func (p *player) settle() {
	s := belay.Settlement{Lease: p.lease(), Op: p.op(), Outcome: belay.Outcome(p.n(9)), Output: json.RawMessage(`1`)}
	s.CostTokens = belay.Cost(s.Outcome) * 3333
	switch p.n(4) {
	case 0:
		s.Wait = time.Duration(p.n(10)) * time.Second
	case 1:
		s.Failure = &belay.Failure{Class: belay.Class(p.n(6)), Message: "m"}
		if p.n(2) == 0 {
			s.Outcome = belay.OutcomeFailed
		}
		if s.Failure.Class == belay.ClassCircuitOpen && p.n(3) > 0 {
			s.Failure.Target = string(rune('t' + p.n(2)))
		}
	case 2:
		s.RetryAfter = time.Duration(p.n(10)) * time.Second
	}
	if e := p.row(s.Lease.Execution); e != nil && p.n(2) == 0 {
		s.SignalSeen = e.SignalSeq
	}
	if e := p.row(s.Lease.Execution); e != nil && e.CancelBy != 0 && p.n(3) == 0 {
		s.Outcome = belay.OutcomeCancelled
	}
	p.operate(&Settle{Settlement: s, Jitter: float64(p.n(256)) / 256})
}

func (p *player) signal() {
	s := belay.SignalRequest{Execution: p.execution(), Name: "s", Op: p.op()}
	if s.Op[len(s.Op)-1]%2 == 0 {
		s.Actor = "ann"
	}
	p.operate(&Deliver{SignalRequest: s})
}

func (p *player) act() {
	// The last action is delete, which takeBack sends.
	c := belay.Control{Execution: p.execution(), Action: actions[p.n(len(actions)-1)], Op: p.op()}
	switch c.Action {
	case belay.ActionFork:
		if c.Fork, c.UpTo = belay.ExecutionID(p.id()), int64(p.n(10)); len(p.executions) >= maxExecutions {
			return
		}
	case belay.ActionRequeue:
		if p.n(2) == 0 {
			c.Input = json.RawMessage(`{"again":true}`)
		}
	case belay.ActionRetry:
		if p.n(3) > 0 {
			p.discard(&c)
		}
	case belay.ActionBudget:
		c.Budget = &belay.Budget{Cost: belay.Cost(p.n(9)) * 5000}
	case belay.ActionCancel:
		c.Grace = within(time.Duration(p.n(3)) * time.Second)
	}
	p.operate(&Act{c})
}

// discard makes a retry discard a step, usually of an execution that has failed or was cancelled.
func (p *player) discard(c *belay.Control) {
	c.From = []string{"a", "b", "w"}[p.n(3)]
	ended := p.where(func(e *Execution) bool {
		return e.Checkpoints > 0 && e.Parent.IsZero() && (e.State == belay.Failed || e.State == belay.Cancelled)
	})
	if len(ended) > 0 {
		c.Execution = ended[p.n(len(ended))].ID
		c.From = recent(p, p.records[c.Execution].checkpoints).Key
	}
}

// operate sends a command and remembers it for a repetition. Sometimes it sends the repetition of a
// Save at once, and sendDelayed sends the first try later.
func (p *player) operate(c Command) {
	if save, is := c.(*Save); is && p.n(4) == 0 {
		again := *save
		again.Repeat = true
		p.late = append(p.late, c)
		p.past = append(p.past, &again)
		p.send(&again)
		return
	}
	p.past = append(p.past, c)
	p.send(c)
}

// sendDelayed sends the first try of a Save whose repetition was sent before. A first try arrives at
// most once: only repetitions, which are marked as such, may arrive again.
func (p *player) sendDelayed() {
	if len(p.late) > 0 {
		c := recent(p, p.late)
		p.late = slices.DeleteFunc(p.late, func(late Command) bool { return late == c })
		p.send(c)
	}
}

func (p *player) repeat() {
	switch c := recent(p, p.past).(type) {
	case *Save:
		again := *c
		again.Repeat = true
		p.send(&again)
	case *Settle:
		again := *c
		again.Repeat = true
		p.send(&again)
	case *Deliver, *Act:
		p.send(c)
	}
}

func (p *player) append() {
	c := belay.Chunk{Lease: p.lease(), Name: "log", N: int64(p.n(5)), Data: []byte{byte(p.n(2))}}
	if p.n(4) == 0 {
		c.DropFrom, c.DropTo = c.N/2, c.N
	}
	p.send(&Append{Chunk: c})
}

// beat sends a heartbeat that names some of the runs that the worker has ever owned.
func (p *player) beat() {
	h := belay.Heartbeat{Worker: p.worker()}
	if c := p.claims[h.Worker]; c != nil {
		h.ClaimSeen = c.Number - int64(p.n(2))
	}
	h.AcceptSeen = max(0, p.accepts-int64(p.ids%3))
	forget := p.n(6) == 0
	for _, l := range p.leases {
		if l.Worker == h.Worker && (!forget || p.n(2) == 0) {
			h.Holds = append(h.Holds, belay.Held{
				Execution: l.Execution, Token: l.Token, Idle: time.Duration(p.n(5)) * time.Second,
			})
		}
	}
	p.send(&Heartbeat{Heartbeat: h})
}

func (p *player) takeBack() {
	l := p.lease()
	if p.n(8) == 0 {
		p.send([]Command{
			&BeginSwap{"resource:gpu", string(rune('A' + p.n(3))), belay.ExecutionID(p.id())},
			&EndSwap{"resource:gpu", l.Execution}, &EndSwap{"resource:gpu", p.execution()},
			&AskHolders{Gate: "resource:gpu"},
			&Yield{"resource:gpu", l.Execution},
		}[p.n(5)])
		return
	}
	p.send([]Command{
		&Lose{
			l.Execution, l.Token, l.Worker, false, true, false,
		}, &Release{l.Execution, l.Token, l.Worker, 0}, &CancelChild{l.Execution}, &Part{l.Execution, 5},
		&Tick{Execution: l.Execution}, &Progress{
			l.Execution, l.Token, p.now.Add(-time.Second),
		}, &Forget{l.Execution, p.now.Add(-5 * time.Second)},
		&Act{belay.Control{Execution: l.Execution, Action: belay.ActionDelete, Actor: "ann"}},
		&CancelReplaced{belay.GateID("limit:" + string(rune('x'+p.n(2)))), l.Execution},
	}[p.n(9)])
}

func (p *player) session() {
	i := p.n(len(p.workers))
	if n := slices.Index(p.workers[:], belay.WorkerID{}); n >= 0 {
		i = n
	}
	w := p.workers[i]
	switch x := p.keeper.workers[w]; {
	case x == nil || x.State.Ended() || p.n(3) == 0:
		if x == nil || x.State.Ended() {
			p.workers[i] = belay.WorkerID(p.id())
		}
		p.send(&Open{belay.WorkerSpec{
			ID: p.workers[i], Name: "w", Workflows: served,
			TTL: within(time.Duration(5+15*i) * time.Second), Health: ":9090",
		}})
	default:
		p.send([]Command{
			&Drain{w}, &End{Worker: w}, &End{Worker: w, Dead: "it is dead"}, &Mark{}, &Expire{w},
			&Cordon{belay.Cordon{Worker: w, Reason: [...]string{"", "why"}[p.now%2]}}, &Probe{w, otherHealth(x)},
			&Cordon{belay.Cordon{Worker: w, Off: true}},
		}[p.n(8)])
	}
}

// otherHealth is the result of a probe that changes the health of a session.
func otherHealth(x *Worker) string {
	if _, failure := x.Failing(); failure != "" {
		return ""
	}
	return "503"
}

// sweep sends the commands that are due by the rows, as the engine's sweeper does.
func (p *player) sweep() {
	for id, x := range ordered(p.keeper.workers) {
		if !x.State.Ended() && x.ExpiresAt <= p.now {
			p.send(&Expire{id})
		}
	}
	for _, e := range p.where(func(*Execution) bool { return true }) {
		if x := p.keeper.workers[e.Worker]; !e.Worker.IsZero() && (x == nil || x.State.Ended()) {
			p.send(&Lose{e.ID, e.Token, e.Worker, false, true, false})
		}
		if e.CheckAt != 0 && e.CheckAt <= p.now {
			p.send(&Tick{Execution: e.ID, Jitter: 0.3})
		}
		if parent := p.row(e.Parent); parent != nil && !e.State.Terminal() && e.CancelBy == 0 &&
			!(e.Policy != nil && e.Policy.Abandon) &&
			(parent.State.Terminal() || parent.CancelBy != 0 || e.ParentGen != parent.Generation) {
			p.send(&CancelChild{e.ID})
		}
		if r := p.row(e.SpentBy); !e.SpentBy.IsZero() && !e.Parent.IsZero() &&
			(r == nil || r.State.Terminal() || r.Cost < r.Budget) {
			p.send(&Unspend{e.ID})
		}
	}
	needing := func(e *Execution) bool { return e.NeedsWorker() && e.Ready() <= p.now && e.ID[15]%4 == 0 }
	for _, e := range p.where(needing) {
		p.send(&NoWorker{e.ID, e.Seq})
	}
	for _, e := range p.where(func(e *Execution) bool { return e.Parting() != 0 }) {
		p.send(&Part{e.ID, e.Parting()})
	}
	for _, ref := range slices.SortedFunc(maps.Keys(p.objects), ObjectRef.Compare) {
		if o := p.objects[ref]; ref.Kind == GateObject && o.NextAt.over(p.now) {
			p.send(&Admit{Gate: belay.GateID(ref.Name), Heads: MaxHeads})
		}
	}
}

// ordered iterates over sessions in the order of their ids.
func ordered(m map[belay.WorkerID]*Worker) iter.Seq2[belay.WorkerID, *Worker] {
	return func(yield func(belay.WorkerID, *Worker) bool) {
		for _, id := range slices.SortedFunc(maps.Keys(m), func(a, b belay.WorkerID) int {
			return slices.Compare(a[:], b[:])
		}) {
			if !yield(id, m[id]) {
				return
			}
		}
	}
}
