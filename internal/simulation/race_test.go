package simulation

import (
	"context"
	"slices"
	"testing"

	"github.com/belaydev/belay"
)

// Known races of durable execution services. The test tries each race in every order, with one call
// that fails or loses its answer, and in a long run with two such calls.

// claimed makes the worker the owner of one execution.
func claimed(g *rig) {
	g.open()
	g.id = g.submit(nil)
	g.lease = g.mustClaim(1).Lease
}

// A signal that arrives while its execution suspends is not lost: the execution is due at once,
// and the next claim gets the signal.
func TestRaceSignalAgainstSuspend(t *testing.T) { explore(t, signalAgainstSuspend) }

var signalAgainstSuspend = race{
	before: claimed,
	calls: [2]func(context.Context, *rig) error{suspends, func(ctx context.Context, g *rig) error {
		return g.link("client").Signal(ctx, belay.SignalRequest{Execution: g.id, Name: signalName, Op: belay.OpID{1}})
	}},
	after: func(g *rig) {
		g.check(g.errs[0])
		g.check(g.errs[1])
		if a := g.mustClaim(2); len(a.Signals) != 1 || a.Signals[0].Name != signalName {
			g.fail("the next claim got the signals %v", a.Signals)
		}
	},
}

// If the test tries all orders of two calls, it finds a planted bug that loses a wake-up in only one
// of these orders.
func TestRaceFindsALostWakeUp(t *testing.T) {
	i := slices.IndexFunc(mutants, func(m *mutant) bool { return m.name == "wake-up lost when suspended" })
	if n, failed := tryAll(t, mutants[i], 0, signalAgainstSuspend); len(failed) == 0 {
		t.Errorf("not found in %d orders", n)
	}
}

func suspends(ctx context.Context, g *rig) error {
	return g.settle(ctx, g.lease, belay.OpID{2}, belay.OutcomeSuspended)
}

// The end of a child that arrives while its parent suspends is not lost.
func TestRaceChildEndAgainstSuspend(t *testing.T) {
	explore(t, race{
		before: func(g *rig) {
			claimed(g)
			g.submit(&g.lease)
			g.child = g.mustClaim(2).Lease
		},
		calls: [2]func(context.Context, *rig) error{suspends, func(ctx context.Context, g *rig) error {
			return g.settle(ctx, g.child, belay.OpID{3}, belay.OutcomeSucceeded)
		}},
		after: func(g *rig) {
			g.check(g.errs[0])
			g.check(g.errs[1])
			if a := g.mustClaim(3); len(a.Signals) != 1 || a.Signals[0].Child != g.child.Execution {
				g.fail("the next claim got the signals %v", a.Signals)
			}
		},
	})
}

// An execution whose cancel was acknowledged ends as cancelled. If the execution ended before the
// cancel, the cancel is refused.
func TestRaceCancelAgainstComplete(t *testing.T) {
	explore(t, race{
		before: claimed,
		calls: [2]func(context.Context, *rig) error{
			func(ctx context.Context, g *rig) error {
				return g.settle(ctx, g.lease, belay.OpID{2}, belay.OutcomeSucceeded)
			},
			func(ctx context.Context, g *rig) error {
				_, err := g.link("client").Control(ctx, belay.Control{
					Execution: g.id, Action: belay.ActionCancel, Op: belay.OpID{1},
				})
				return err
			},
		},
		after: func(g *rig) {
			g.check(g.errs[0])
			switch x := g.state(g.id); {
			case g.errs[1] == nil && x.State != belay.Cancelled:
				g.fail("the cancel was acknowledged and the execution is %s", x.State)
			case g.errs[1] != nil && (belay.CodeOf(g.errs[1]) != belay.CodeConflict || x.State != belay.Succeeded):
				g.fail("the cancel was refused with %v and the execution is %s", g.errs[1], x.State)
			}
		},
	})
}

// If an execution is paused while a worker claims it, either the claim does not win the execution,
// or the execution's owner gets the request to pause.
func TestRacePauseAgainstClaim(t *testing.T) {
	explore(t, race{
		before: func(g *rig) {
			g.open()
			g.id = g.submit(nil)
		},
		calls: [2]func(context.Context, *rig) error{claims, func(ctx context.Context, g *rig) error {
			_, err := g.link("client").Control(ctx, belay.Control{
				Execution: g.id, Action: belay.ActionPause, Op: belay.OpID{1},
			})
			return err
		}},
		after: func(g *rig) {
			g.check(g.errs[0])
			g.check(g.errs[1])
			h, err := g.link("worker").Heartbeat(context.Background(), heldBy(g))
			g.check(err)
			switch x := g.state(g.id); {
			case len(g.won) == 0 && x.State != belay.Paused:
				g.fail("no claim won it and it is %s", x.State)
			case len(g.won) == 1 && (x.State != belay.Running || len(h.Pause) != 1):
				g.fail("it was claimed, is %s, and the requests to pause are %v", x.State, h.Pause)
			}
		},
	})
}

// claims sends a claim as the SDK does: if the last try failed, it repeats the claim with the same
// number and marks it as a repeat.
func claims(ctx context.Context, g *rig) error {
	a, err := g.claim(ctx, 1, g.repeats)
	g.repeats = err != nil
	if err == nil {
		g.won = a
	}
	return err
}

// heldBy returns a heartbeat that names the runs that the worker won.
func heldBy(g *rig) belay.Heartbeat {
	h := belay.Heartbeat{Worker: g.worker}
	for _, a := range g.won {
		h.ClaimSeen = 1
		h.Holds = append(h.Holds, belay.Held{Execution: a.Lease.Execution, Token: a.Lease.Token})
	}
	return h
}

// A heartbeat sent before the reply to a claim has arrived does not take back the runs that the
// claim won.
func TestRaceHeartbeatAgainstClaimReply(t *testing.T) {
	explore(t, race{
		before: func(g *rig) {
			g.open()
			g.id = g.submit(nil)
		},
		calls: [2]func(context.Context, *rig) error{claims, func(ctx context.Context, g *rig) error {
			_, err := g.link("worker").Heartbeat(ctx, belay.Heartbeat{Worker: g.worker})
			return err
		}},
		after: func(g *rig) {
			g.check(g.errs[0])
			g.check(g.errs[1])
			if len(g.won) != 1 {
				g.fail("the claim won %d executions", len(g.won))
				return
			}
			if h, err := g.link("worker").Heartbeat(context.Background(), heldBy(g)); err != nil || len(h.Revoked) > 0 {
				g.fail("the next heartbeat got %v, %v", h.Revoked, err)
			}
			g.check(g.settle(context.Background(), g.won[0].Lease, belay.OpID{2}, belay.OutcomeSucceeded))
		},
	})
}

// If a worker gives up a claim and skips its number, the worker owns no execution from that claim:
// the engine refuses the claim, or it releases at once the runs that the claim won, and the next
// claim wins them.
func TestRaceHeartbeatAgainstAClaimGivenUp(t *testing.T) {
	explore(t, race{
		before: func(g *rig) {
			g.open()
			g.id = g.submit(nil)
		},
		calls: [2]func(context.Context, *rig) error{
			func(ctx context.Context, g *rig) error {
				_, err := g.claim(ctx, 1, false)
				if belay.CodeOf(err) == belay.CodeConflict || belay.CodeOf(err) == belay.CodeUnavailable {
					return nil // the worker has given this claim up, whatever its outcome was
				}
				return err
			},
			func(ctx context.Context, g *rig) error {
				_, err := g.link("worker").Heartbeat(ctx, belay.Heartbeat{Worker: g.worker, ClaimSeen: 1})
				return err
			},
		},
		after: func(g *rig) {
			g.check(g.errs[0])
			g.check(g.errs[1])
			_, err := g.link("worker").Heartbeat(context.Background(), belay.Heartbeat{Worker: g.worker, ClaimSeen: 1})
			g.check(err)
			if a := g.mustClaim(2); a.Lease.Execution != g.id {
				g.fail("the next claim won %v", a.Lease.Execution)
			}
		},
	})
}
