package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// maxSlots bounds what one claim may ask for.
const maxSlots = 10_000

// Claim wins executions for a worker's free slots, waiting for them if need be.
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

// wait parks the claim until it won something, its worker has a reason to
// heartbeat (a reply without claims), or its time is over (no reply).
func (d *dispatcher) wait(ctx context.Context, c *claim) (*machine.Reply, error) {
	timer := time.NewTimer(c.request.Wait)
	defer timer.Stop()
	d.park(c)
	defer d.unpark(c)
	over := false
	for first := true; ; first = false {
		switch next, sent := d.step(c, first, over); next {
		case haveNews:
			return &machine.Reply{}, nil
		case giveUp:
			return nil, nil
		case endWith:
			return nil, errClosed
		case awaitAnswer:
			r, err := d.engine.await(ctx, sent)
			if err != nil || len(r.Claims) > 0 {
				d.won(c, sent, r.Claims)
				return r, err
			}
			if d.answered(c, r.Heartbeat.Drain); r.Heartbeat.Drain {
				return &machine.Reply{}, nil // drained through another server
			}
			continue
		case stay:
		}
		select {
		case <-c.notify:
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true // a command that is on its way is waited for above
		}
	}
}

// move is what a parked claim does next.
type move uint8

const (
	stay        move = iota
	awaitAnswer      // of the command that is on its way
	haveNews         // for its worker's next heartbeat
	giveUp           // its time is over
	endWith          // the engine stops
)

// step decides what a parked claim does next, and sends its command if there is
// hope. A claim that is to be answered is parked no more from that moment on:
// what a batch won for it would reach nobody.
func (d *dispatcher) step(c *claim, first, over bool) (move, *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.sent != nil {
		return awaitAnswer, c.sent
	}
	gone := d.sessions[c.session.spec.ID] != c.session
	repeat := first && c.request.Repeat // has its answer already; that comes before news
	switch {
	case c.session.attention && !gone && !repeat:
		c.session.attention = false
		d.unparkLocked(c)
		return haveNews, nil
	case d.stopped:
		d.unparkLocked(c)
		return endWith, nil
	case over && !first:
		d.unparkLocked(c)
		return giveUp, nil
	case gone || repeat || d.hopefulLocked(c, d.engine.store.Now()):
		c.sent = d.engine.committer.send(d.commandLocked(c, nil))
		return awaitAnswer, c.sent
	}
	return stay, nil
}

// won notes how many a claim won, and which queue had the last turn.
func (d *dispatcher) won(c *claim, sent *call, won []machine.Claimed) {
	if r, ok := sent.command.(*machine.Claim); ok && len(won) >= r.Slots {
		d.engine.committer.hungry(len(won))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	c.session.won = len(won)
	if len(won) > 0 {
		c.session.turn = won[len(won)-1].Execution.Queue
	}
}

// answered lets a claim that won nothing wait again, and remembers if its worker
// may not claim at all.
func (d *dispatcher) answered(c *claim, draining bool) {
	d.mu.Lock()
	c.sent = nil
	c.session.draining = c.session.draining || draining
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
		d.nudge() // it has to look for the claim now and then
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
}
