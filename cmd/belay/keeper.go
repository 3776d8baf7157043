package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/host"
	runs "github.com/belaydev/belay/internal/run"
	"github.com/belaydev/belay/worker"
)

// keeper renews the lock of belay lock exec while the command runs. It freezes the command before
// another owner could get the execution: it measures the lease from the moment at which it sent
// each heartbeat, with a clock that also runs while the machine sleeps.
type keeper struct {
	b    belay.Backend
	say  func(format string, args ...any)
	held belay.Lock    // the lock
	sent time.Duration // the time, by host.Boottime, at which the call that took the lock was sent

	cancelled bool  // the execution was cancelled
	released  bool  // an operator paused, preempted or drained the execution, so keeper must release the lock
	lost      error // the reason why the lock was lost
}

// lock acquires the lock on the execution from the server or engine.
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

// keep renews the lock until the command has ended. When two thirds of the lock's time have passed
// since the last acknowledged heartbeat was sent, a timer (the fence) freezes the command. keep
// kills the command when the lock is lost.
func (k *keeper) keep(tree *process.Tree, end context.CancelCauseFunc) {
	gaveUp := make(chan error, 1) // the reason why keep ends the command although the lock may still be valid
	giveUp := func(why error) {
		select {
		case gaveUp <- why:
		default:
		}
	}
	fence := runs.NewFence(host.Boottime, newAlarm, k.sent, k.held.ExpiresIn, worker.DefaultMaxFreeze, func() {
		giveUp(errors.New("frozen for too long"))
	})
	defer fence.Close()
	failed := func(err error) {
		if !errors.Is(err, os.ErrProcessDone) { // if the command has ended, tree.Done tells it
			giveUp(err)
		}
	}
	fence.OnFreeze(func() {
		if err := tree.Freeze(context.Background()); err != nil {
			failed(err)
			return
		}
		k.say("no heartbeat reaches the server, so the command is frozen")
	}, func() {
		if err := tree.Thaw(context.Background()); err != nil {
			failed(err)
			return
		}
		k.say("the server is back, and the lock is still valid: the command goes on")
	})
	due, answer := make(chan struct{}, 1), make(chan reply, 1)
	beat := host.NewAlarm(host.Boottime, func() { due <- struct{}{} })
	defer beat.Stop()
	beat.Reset(k.held.Heartbeat)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		select {
		case <-tree.Done():
			return
		case <-due:
			go func() { answer <- k.renew(ctx) }()
		case r := <-answer:
			beat.Reset(k.heard(tree, fence, end, r))
		case why := <-gaveUp:
			select {
			case <-tree.Done(): // the command has ended too, so there is nothing to kill
				return
			default:
			}
			k.kill(tree, &belay.Error{
				Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Message: "cut off from the server", Err: why,
			})
		}
	}
}

func newAlarm(fire func()) runs.Alarm { return host.NewAlarm(host.Boottime, fire) }

// kill kills the command because the lock was lost; why is the reason for the loss.
func (k *keeper) kill(tree *process.Tree, why error) {
	k.lost = cmp.Or(k.lost, why)
	tree.Kill(k.lost)
}

// reply is the result of a heartbeat that was sent at the time sent, by host.Boottime.
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

// heard handles the result of a heartbeat: it postpones the fence, or ends or kills the command. It
// returns the time until the next heartbeat.
func (k *keeper) heard(tree *process.Tree, fence *runs.Fence, end context.CancelCauseFunc, r reply) time.Duration {
	switch {
	case belay.CodeOf(r.err) == belay.CodeLeaseLost && r.err != nil:
		k.kill(tree, r.err)
		return k.held.Heartbeat
	case r.err != nil:
		return min(k.held.Heartbeat, 500*time.Millisecond)
	}
	fence.Renew(r.sent, k.held.ExpiresIn)
	switch {
	case len(r.Cancel) > 0 && !k.cancelled:
		k.cancelled = true
		k.say("the execution was cancelled")
		end(errors.New("the execution was cancelled"))
	case (len(r.Pause) > 0 || len(r.Preempt) > 0 || r.Drain) && !k.released:
		k.released = true
		k.say("an operator has paused, preempted or drained the execution, so the command is stopped")
		end(errors.New("an operator has paused, preempted or drained the execution"))
	}
	return k.held.Heartbeat
}
