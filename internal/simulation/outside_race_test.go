package simulation

import (
	"context"
	"testing"

	"github.com/belaydev/belay"
)

// outside submits an external execution, which no worker can claim, and makes the connections of two
// external owners, ann and bob.
func (g *rig) outside() {
	g.link("ann")
	g.link("bob")
	g.link("worker")
	id := belay.ExecutionID{15: 7}
	out, err := g.link("client").Submit(context.Background(), belay.Submission{
		ID: id, Workflow: "outside", External: true,
	})
	if err == nil {
		err = out[0].Err
	}
	g.check(err)
	g.id = id
}

func (g *rig) lock(ctx context.Context, owner string, n byte) (belay.Lock, error) {
	return g.link(owner).Lock(ctx, belay.LockRequest{ID: belay.WorkerID{15: n}, Execution: g.id, Owner: owner})
}

// If two owners lock one execution at the same time, exactly one of them gets the lock, even if they
// repeat their calls. The other owner gets CodeLeaseHeld.
func TestRaceLockAgainstLock(t *testing.T) {
	var locks [2]belay.Lock
	try := func(i int, owner string) func(context.Context, *rig) error {
		return func(ctx context.Context, g *rig) (err error) {
			locks[i], err = g.lock(ctx, owner, byte(i+1))
			return err
		}
	}
	explore(t, race{
		before: (*rig).outside,
		calls:  [2]func(context.Context, *rig) error{try(0, "ann"), try(1, "bob")},
		after: func(g *rig) {
			winner := 0
			if g.errs[0] != nil {
				winner = 1
			}
			g.check(g.errs[winner])
			if belay.CodeOf(g.errs[1-winner]) != belay.CodeLeaseHeld || g.errs[1-winner] == nil {
				g.fail("the other lock got %v", g.errs[1-winner])
			}
			_, err := g.link("ann").Renew(context.Background(), locks[winner].Lease)
			g.check(err)
		},
	})
}

// If a lock and a claim compete for an execution, exactly one of the two callers becomes the owner.
func TestRaceLockAgainstClaim(t *testing.T) {
	explore(t, race{
		before: func(g *rig) {
			g.open()
			g.link("ann")
			g.id = g.submit(nil)
		},
		calls: [2]func(context.Context, *rig) error{claims, func(ctx context.Context, g *rig) error {
			l, err := g.lock(ctx, "ann", 1)
			g.child = l.Lease
			return err
		}},
		after: func(g *rig) {
			g.check(g.errs[0])
			switch {
			case len(g.won) == 1 && (g.errs[1] == nil || belay.CodeOf(g.errs[1]) != belay.CodeLeaseHeld):
				g.fail("the claim won it, and the lock got %v", g.errs[1])
			case len(g.won) == 0:
				g.check(g.errs[1])
				_, err := g.link("ann").Renew(context.Background(), g.child)
				g.check(err)
			}
		},
	})
}

// If a lock is stolen while its owner settles, one of the two calls is refused, and the next lock
// gets the execution at once.
func TestRaceStealAgainstSettle(t *testing.T) {
	explore(t, race{
		before: func(g *rig) {
			g.outside()
			l, err := g.lock(context.Background(), "ann", 1)
			g.check(err)
			g.lease = l.Lease
		},
		calls: [2]func(context.Context, *rig) error{suspends, func(ctx context.Context, g *rig) error {
			_, err := g.link("client").Control(ctx, belay.Control{
				Execution: g.id, Action: belay.ActionSteal, Op: belay.OpID{1},
			})
			return err
		}},
		after: func(g *rig) {
			settled, stolen := g.errs[0] == nil, g.errs[1] == nil
			switch {
			case settled == stolen:
				g.fail("the settlement got %v, the steal %v", g.errs[0], g.errs[1])
			case stolen && belay.CodeOf(g.errs[0]) != belay.CodeLeaseLost, settled &&
				belay.CodeOf(g.errs[1]) != belay.CodeConflict:
				g.fail("the later call got %v, %v", g.errs[0], g.errs[1])
			}
			if _, err := g.lock(context.Background(), "bob", 2); err != nil {
				g.fail("the next lock: %v", err)
			}
		},
	})
}
