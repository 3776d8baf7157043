package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// maxSlots is the maximum number of slots of one claim.
const maxSlots = 10_000

// Claim takes due executions for a worker's free slots. If no execution is due, Claim waits up to
// r.Wait for an execution.
func (e *Engine) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	if r.Slots < 0 || r.Slots > maxSlots {
		return belay.ClaimReply{}, &belay.Error{
			Code: belay.CodeInvalid, Op: "claim", Message: fmt.Sprintf("%d slots; a claim may ask for 0 to %d", r.Slots,
				maxSlots),
		}
	}
	s, err := e.dispatcher.session(ctx, r.Worker)
	if err != nil {
		return belay.ClaimReply{}, err
	}
	c := &claim{request: r, session: s, notify: make(chan struct{}, 1)}
	reply, err := e.dispatcher.wait(ctx, c)
	if err != nil {
		return belay.ClaimReply{}, err
	}
	if reply == nil {
		return belay.ClaimReply{}, nil
	}
	if reply.Claims == nil {
		return belay.ClaimReply{Attention: true}, nil
	}
	return e.assignments(ctx, reply.Claims)
}

// wait parks the claim until one of three things happens: the claim has won executions; its worker
// has a reason to send a heartbeat (the reply has no claims then); or its time is over (the reply
// is nil).
func (d *dispatcher) wait(ctx context.Context, c *claim) (*machine.Reply, error) {
	timer := time.NewTimer(c.request.Wait)
	defer timer.Stop()
	d.park(c)
	defer d.unpark(c)
	over := false
	for first := true; ; first = false {
		switch next, sent := d.step(c, first, over); next {
		case heartbeatNow:
			return &machine.Reply{}, nil
		case timeOver:
			return nil, nil
		case engineStops:
			return nil, errClosed
		case awaitAnswer:
			r, err := d.engine.awaitClaim(ctx, sent)
			if err != nil || len(r.Claims) > 0 {
				d.won(c, sent, r.Claims)
				return r, err
			}
			if d.answered(c, r); r.Heartbeat.Drain {
				return &machine.Reply{}, nil // another server has drained the session
			}
			continue
		case stay:
		}
		select {
		case <-c.notify:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true // if a command was sent, the loop still waits for its answer
		}
	}
}

// cancelledClaim is how long a claim whose caller has cancelled it waits for the answer to its command. A worker in the
// same process gets the executions that the command has won, so that they need not be released.
const cancelledClaim = time.Second

// awaitClaim waits for the answer to the command of a claim, and for cancelledClaim after the caller has cancelled it.
func (e *Engine) awaitClaim(ctx context.Context, sent *call) (*machine.Reply, error) {
	patient, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		late := time.AfterFunc(cancelledClaim, func() { cancel(context.Cause(ctx)) })
		context.AfterFunc(patient, func() { late.Stop() })
	})
	defer stop()
	return e.await(patient, sent)
}

// move is the next action of a parked claim (a claim that waits for work).
type move uint8

const (
	stay         move = iota
	awaitAnswer       // wait for the answer of the command that was sent
	heartbeatNow      // answer, because the worker should send a heartbeat
	timeOver          // answer, because the claim's time is over
	engineStops       // answer, because the engine stops
)

// step decides the next action of a parked claim. If a lane (the executions with equal queue,
// workflow, version, priority and labels) may have work, it sends the claim's command, together with
// the commands of the other woken claims. If the claim is about to be answered, step removes it from
// the parked claims: a later batch must not win executions for it, because no reply would bring them
// to the worker.
func (d *dispatcher) step(c *claim, first, over bool) (move, *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.sent != nil {
		return awaitAnswer, c.sent
	}
	gone := d.sessions[c.session.spec.ID] != c.session
	repeat := first && c.request.Repeat // its worker waits for an answer to an earlier try, which comes before any news
	switch {
	case c.session.attention && !gone && !repeat:
		c.session.attention = false
		d.unparkLocked(c)
		return heartbeatNow, nil
	case d.stopped:
		d.unparkLocked(c)
		return engineStops, nil
	case over && !first:
		d.unparkLocked(c)
		return timeOver, nil
	case gone || repeat || first && c.session.noClaims:
		c.sent = d.engine.committer.send(d.commandLocked(c, nil))
		return awaitAnswer, c.sent
	}
	if now := d.engine.store.Now(); d.mayWinLocked(c, now) {
		d.sendLocked(c, now)
		return awaitAnswer, c.sent
	}
	return stay, nil
}

// won records in the session how many executions its claim won, and the queue of the last of these
// executions.
func (d *dispatcher) won(c *claim, sent *call, won []machine.Claimed) {
	if r, ok := sent.command.(*machine.Claim); ok && len(won) >= r.Slots {
		d.engine.committer.noteLargeClaim(len(won))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c.session.won = len(won)
	if len(won) > 0 {
		c.session.turn = won[len(won)-1].Execution.Queue
	}
}

// answered makes a claim that has won nothing wait again. The reply to its command says whether the
// worker is draining, cordoned or unhealthy.
func (d *dispatcher) answered(c *claim, r *machine.Reply) {
	d.mu.Lock()
	c.sent = nil
	c.session.draining = c.session.draining || r.Heartbeat.Drain
	c.session.noClaims = r.NoClaims
	d.mu.Unlock()
}

func (d *dispatcher) park(c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.arrived++
	c.arrived = d.arrived
	d.parked = append(d.parked, c)
	c.session.waiting = c
	if d.shared && len(d.parked) == 1 {
		d.nudge() // the dispatcher has to poll the store for the claim
	}
}

func (d *dispatcher) unpark(c *claim) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unparkLocked(c)
}

func (d *dispatcher) unparkLocked(c *claim) {
	if i := slices.Index(d.parked, c); i >= 0 {
		d.parked = slices.Delete(d.parked, i, i+1)
	}
	if c.session.waiting == c {
		c.session.waiting = nil
	}
	if c.woken {
		c.woken = false
		d.woken = slices.DeleteFunc(d.woken, func(x *claim) bool { return x == c })
	}
}
