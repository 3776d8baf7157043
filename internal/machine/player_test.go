package machine

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// player turns a string of bytes into a history: commands about a few executions, children and
// workers. The commands are valid or absurd, current or stale, and are applied in batches of any
// size, while the clock advances, stands still and jumps. After each batch the checkers check the
// rows and the replies.
type player struct {
	*keeper
	src []byte
	ids uint64

	executions []belay.ExecutionID
	leases     []belay.Lease // all leases so far
	workers    [4]belay.WorkerID
	claims     map[belay.WorkerID]*Claim
	accepts    int64     // number of the newest accept
	past       []Command // operations to repeat
	late       []Command // first tries whose repetition was sent before
	queue      []Command

	healing bool // faults have stopped: no follow-up is lost any more

	replies     replyLog
	seen        map[string]int // how often each event happened
	onlyPromise string         // only faults of this promise end the history; empty for all
}

func newPlayer(k *keeper, src []byte) *player {
	return &player{
		keeper: k, src: src, claims: make(map[belay.WorkerID]*Claim),
		replies: newReplyLog(), seen: make(map[string]int),
	}
}

func play(k *keeper, src []byte) (*player, error) {
	p := newPlayer(k, src)
	err := p.play()
	return p, err
}

func (p *player) play() error {
	for range p.workers {
		p.session()
	}
	for len(p.src) > 0 {
		p.step()
		if len(p.queue) > 6 || p.n(3) == 0 {
			if err := p.flush(); err != nil {
				return err
			}
			p.tick()
		}
	}
	if err := p.flush(); err != nil {
		return err
	}
	if err := p.heal(); err != nil && (p.onlyPromise == "" || about(err, p.onlyPromise)) {
		return err
	}
	return nil
}

// n returns a number below limit, from the next byte of the source.
func (p *player) n(limit int) int {
	if len(p.src) == 0 {
		return 0
	}
	b := int(p.src[0])
	p.src = p.src[1:]
	return b % limit
}

func (p *player) id() (id [16]byte) {
	p.ids++
	binary.BigEndian.PutUint64(id[8:], p.ids)
	id[0], id[6] = 2, 0x70
	return id
}

// recent picks an element of a list, the last elements more often than the first.
func recent[T any](p *player, all []T) (v T) {
	if len(all) == 0 {
		return v
	}
	i := p.n(2 * len(all))
	if i >= len(all) {
		i = len(all) - 1 - p.n(min(4, len(all)))
	}
	return all[i]
}

// lease picks a lease of this history, usually a valid lease.
func (p *player) lease() belay.Lease {
	if p.n(3) == 0 {
		return recent(p, p.leases)
	}
	held := p.where(func(e *Execution) bool { return !e.Worker.IsZero() })
	if len(held) == 0 {
		return recent(p, p.leases)
	}
	return leaseOf(held[p.n(len(held))])
}

func (p *player) execution() belay.ExecutionID        { return recent(p, p.executions) }
func (p *player) worker() belay.WorkerID              { return p.workers[p.n(len(p.workers))] }
func (p *player) op() belay.OpID                      { return belay.OpID(p.id()) }
func (p *player) send(c Command)                      { p.queue = append(p.queue, c) }
func (p *player) row(id belay.ExecutionID) *Execution { return p.records[id].execution }

// tick moves the clock: a little, to the next deadline in the rows, by a session's TTL, or by a
// time in which no server writes a mark of life (a time that shows that it runs).
func (p *player) tick() {
	switch p.n(16) {
	default:
		p.now = p.now.Add(time.Duration(p.n(200)) * time.Millisecond)
	case 11, 12:
		next := Time(0)
		for _, e := range p.where(func(*Execution) bool { return true }) {
			next = first(next, after(e.CheckAt, p.now), after(e.Ready(), p.now))
		}
		for _, x := range p.keeper.workers {
			if !x.State.Ended() {
				next = first(next, after(x.ExpiresAt, p.now))
			}
		}
		p.now = max(p.now, next)
	case 13:
		p.now = p.now.Add(time.Duration(1+p.n(16)) * time.Second)
	case 14:
		p.now = p.now.Add(time.Duration(p.n(40)) * time.Second)
		return // a stall: no server has written a mark
	case 15:
		p.epoch += belay.Token(p.n(20)/19) << 32
	}
	p.mark = p.now
}

func after(t, now Time) Time {
	if t <= now {
		return 0
	}
	return t
}

// flush applies the queued commands and runs all checkers.
func (p *player) flush() error {
	if len(p.queue) == 0 {
		return nil
	}
	commands := p.queue
	p.queue = nil
	before := p.keeper.clone()
	changes, replies, err := p.fold(commands...)
	if err == nil {
		err = errors.Join(p.check(), p.replies.step(before, p.keeper, commands, replies))
	}
	if err == nil && p.onRead == nil && p.onWrite == nil {
		err = oneByOne(before, p.keeper, commands, replies)
	}
	if err != nil && (p.onlyPromise == "" || about(err, p.onlyPromise)) {
		return fmt.Errorf("folding %s: %w", list(commands, replies), err)
	}
	p.learn(commands, replies)
	if changes.Grace != 0 {
		p.seen["grace"]++
	}
	return nil
}

// learn remembers the ids and leases in the replies, and counts events.
func (p *player) learn(commands []Command, replies []Reply) {
	for i, r := range replies {
		what := fmt.Sprintf("%T", commands[i])[len("*machine."):]
		var e *belay.Error
		switch {
		case errors.As(r.Err, &e):
			p.seen[what+" refused: "+string(e.Code)+string(e.Cause)]++
			continue
		case r.Replayed:
			p.seen[what+" repeated"]++
		default:
			p.seen[what]++
		}
		switch c := commands[i].(type) {
		case *Submit:
			p.addExecution(r.ID)
		case *Act:
			if c.Action == belay.ActionFork {
				p.addExecution(r.ID)
			}
			p.seen["control "+string(c.Action)]++
		case *BeginSwap:
			if !r.Replayed {
				p.addExecution(r.ID)
				p.seen["a swap began"]++
			}
		case *Settle:
			p.seen["settle as "+c.Outcome.String()]++
		case *Lock:
			if s := r.Claims[0].Execution; c.Reopen && s.Generation > 1 {
				p.seen["reopened by a lock"]++
			}
		case *Schedule:
			p.leases = append(p.leases, leaseOf(r.Execution))
		}
		if _, accepted := commands[i].(*Accept); !accepted {
			for _, c := range r.Claims {
				p.leases = append(p.leases, leaseOf(&c.Execution))
			}
		}
		for _, c := range r.Follow {
			if p.healing || p.n(4) != 0 { // in the other cases a crash loses the follow-up
				if b, ok := c.(*BeginSwap); ok {
					b.Execution = belay.ExecutionID(p.id())
				}
				p.send(c)
			}
		}
	}
	for _, r := range p.records {
		p.seen["state "+r.execution.State.String()]++
		if last := len(r.runs) - 1; last >= 0 && r.runs[last].Outcome == belay.OutcomeLost &&
			p.outside(r.runs[last].Worker) {
			p.seen["lost outside"]++
		}
		for _, d := range r.letters {
			p.seen["letter "+d.Reason]++
		}
	}
}

func (p *player) addExecution(id belay.ExecutionID) {
	for _, known := range p.executions {
		if known == id {
			return
		}
	}
	p.executions = append(p.executions, id)
}

// heal ends a history: faults stop, operators resume paused executions, a worker with enough slots
// finishes every execution, and signals arrive. Then every execution must end (guarantee G5).
func (p *player) heal() error {
	p.healing = true
	w := belay.WorkerID(p.id())
	p.send(&Open{belay.WorkerSpec{
		ID: w, Name: "healer", Workflows: served,
		TTL: within(1000 * hour),
	}})
	for _, ref := range slices.SortedFunc(maps.Keys(p.objects), ObjectRef.Compare) {
		if ref.Kind != GateObject {
			continue
		}
		gate, actions := belay.GateID(ref.Name), []belay.GateAction{belay.GateResume}
		switch gate.Kind() {
		case belay.GateTarget:
			actions = append(actions, belay.GateForceClosed)
		case belay.GateLimit:
			actions = append(actions, belay.GateUnsetLimit)
		case belay.GateResource:
			actions = append(actions, belay.GateUnsetResource)
		case belay.GateRate:
			actions = append(actions, belay.GateUnsetRate)
		}
		for _, a := range actions {
			p.send(&SetGate{belay.GateChange{Gate: gate, Action: a, Op: p.op()}})
		}
	}
	for round := range 90 {
		open := p.where(func(e *Execution) bool { return !e.State.Terminal() })
		if len(open) == 0 {
			return nil
		}
		for _, e := range open {
			switch {
			case e.External && round > 3:
				p.send(&Act{belay.Control{Execution: e.ID, Action: belay.ActionCancel, Op: p.op()}})
			case e.overBudget():
				p.send(&Act{belay.Control{
					Execution: e.ID, Action: belay.ActionBudget, Budget: &belay.Budget{Cost: belay.MaxCost}, Op: p.op(),
				}})
			case !e.SpentBy.IsZero(): // a raise of the budget resumes this execution
			case e.State == belay.Paused:
				p.send(&Act{belay.Control{Execution: e.ID, Action: belay.ActionResume, Op: p.op()}})
			case e.State == belay.Waiting:
				p.send(&Deliver{SignalRequest: belay.SignalRequest{Execution: e.ID, Name: "wake", Op: p.op()}})
			case e.State == belay.Running && e.Worker == w:
				p.send(&Settle{
					Settlement: belay.Settlement{Lease: leaseOf(e), Op: p.op(), Outcome: belay.OutcomeSucceeded},
				})
			}
		}
		p.sweep()
		if err := p.flush(); err != nil { // executions that gates let through must be claimed soon
			return err
		}
		c := &Claim{ClaimRequest: belay.ClaimRequest{Worker: w, Number: int64(round + 1), Slots: 2 * maxExecutions}}
		if p.keeper.workers[w] != nil {
			p.fillClaim(c)
			p.send(c)
		}
		if err := p.flush(); err != nil {
			return err
		}
		p.now = p.now.Add(time.Minute)
		p.mark = p.now
	}
	var f faults
	for _, e := range p.where(func(e *Execution) bool { return !e.State.Terminal() }) {
		f.add("G5", "%s stays %s though all faults are over: %+v", e.ID, describe(e, p.now), *e)
	}
	return errors.Join(f...)
}

func list(commands []Command, replies []Reply) string {
	s := ""
	for i, c := range commands {
		b, _ := json.Marshal(c)
		s += fmt.Sprintf("\n  %T %s", c, b)
		if i < len(replies) {
			s += fmt.Sprintf(" → seq %d, %d claims, %v", replies[i].Seq, len(replies[i].Claims), replies[i].Err)
		}
	}
	return s
}

// served are the workflows that the workers of random histories run: with those of deliveries.
var served = []belay.Registration{{Workflow: "job"}, {Workflow: "http"}, {Workflow: belay.PublishWorkflow}}
