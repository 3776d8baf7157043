package main

import (
	"context"
	"errors"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/worker"
)

// keeper keeps a lock while a command runs under it. It counts the lock's time
// from the sending of each heartbeat, on a clock that goes on while the machine
// sleeps, and stops the command before anybody else may own what it works on.
type keeper struct {
	b    belay.Backend
	say  func(format string, args ...any)
	held belay.Lock
	sent time.Duration // when the last acknowledged heartbeat was sent, by host.Boottime

	frozen    time.Duration // when it was frozen; 0 while it is not
	cancelled bool          // the execution was cancelled
	released  bool          // an operator wants it back
	lost      error         // why the lock is lost
}

// lock takes the lock.
func (k *keeper) lock(ctx context.Context, r belay.LockRequest) error {
	r.ID = belay.WorkerID(embedded.NewID())
	sent := host.Boottime()
	held, err := k.b.Lock(ctx, r)
	if err == nil {
		err = held.Complete(ctx, k.b)
	}
	if err != nil {
		return err
	}
	k.held, k.sent = held, sent
	k.say("%s is owned by %s, token %d", held.Execution.ID, r.Owner, uint64(held.Lease.Token))
	return nil
}

// keep renews the lock until the command has ended. It freezes the command at the
// fence, two thirds of the lock's time after the last heartbeat that was
// acknowledged, and kills it when the lock is lost.
func (k *keeper) keep(tree *process.Tree, end context.CancelCauseFunc) {
	beat := time.NewTimer(k.held.Heartbeat)
	defer beat.Stop()
	look := time.NewTicker(min(k.held.ExpiresIn/20, 100*time.Millisecond))
	defer look.Stop()
	answer := make(chan reply, 1)
	asking, asked := false, host.Boottime()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		due := false
		select {
		case <-tree.Done():
			return
		case <-beat.C:
			due = true
		case r := <-answer:
			asking = false
			beat.Reset(k.heard(tree, end, r))
		case <-look.C:
			k.fence(tree)
			due = host.Boottime()-asked > k.held.Heartbeat+time.Second // the machine slept, and the timer did too
		}
		if due && !asking {
			asking, asked = true, host.Boottime()
			go func() { answer <- k.renew(ctx) }()
		}
	}
}

// reply is what came of a heartbeat.
type reply struct {
	belay.HeartbeatReply
	sent time.Duration
	err  error
}

func (k *keeper) renew(ctx context.Context) reply {
	ctx, cancel := context.WithTimeout(ctx, k.held.ExpiresIn/2)
	defer cancel()
	r := reply{sent: host.Boottime()}
	r.HeartbeatReply, r.err = k.b.Renew(ctx, k.held.Lease)
	return r
}

// heard acts on what came of a heartbeat, and answers when the next is due.
func (k *keeper) heard(tree *process.Tree, end context.CancelCauseFunc, r reply) time.Duration {
	switch {
	case belay.CodeOf(r.err) == belay.CodeLeaseLost && r.err != nil:
		k.lost = r.err
		tree.Kill(r.err)
		return k.held.Heartbeat
	case r.err != nil:
		return min(k.held.Heartbeat, 500*time.Millisecond)
	}
	k.sent = r.sent
	if k.frozen != 0 && !k.closed(host.Boottime()) && tree.Thaw(context.Background()) == nil {
		k.frozen = 0
		k.say("the server is back, and the lock holds: the command goes on")
	}
	switch {
	case len(r.Cancel) > 0 && !k.cancelled:
		k.cancelled = true
		k.say("the execution was cancelled")
		end(errors.New("the execution was cancelled"))
	case (len(r.Pause) > 0 || len(r.Preempt) > 0 || r.Drain) && !k.released:
		k.released = true
		k.say("the execution is wanted back")
		end(errors.New("the execution is wanted back"))
	}
	return k.held.Heartbeat
}

// fence freezes the command when the lock may be over soon, and gives it up when
// that lasts.
func (k *keeper) fence(tree *process.Tree) {
	now := host.Boottime()
	switch {
	case k.frozen == 0 && k.closed(now):
		k.frozen = now
		k.say("no heartbeat gets through: the command is frozen")
		if err := tree.Freeze(context.Background()); err != nil {
			k.give(tree, err)
		}
	case k.frozen != 0 && now-k.frozen > worker.DefaultMaxFreeze:
		k.give(tree, errors.New("frozen for too long"))
	}
}

// closed reports whether the fence is: the machine may have slept since the heartbeat was sent
// that was acknowledged last.
func (k *keeper) closed(now time.Duration) bool { return now-k.sent > k.held.ExpiresIn*2/3 }

// give gives the lock up without knowing whether it holds.
func (k *keeper) give(tree *process.Tree, why error) {
	if k.lost == nil {
		k.lost = &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Message: "cut off from the server", Err: why}
		tree.Kill(k.lost)
	}
}
