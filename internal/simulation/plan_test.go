package simulation

import (
	"math/rand/v2"
	"time"
)

// plan says how many processes a simulation has, which faults happen, how often, and for how long. The
// seed decides the plan before the simulation begins. Plans differ on purpose: in some plans only one kind
// of fault happens, in some all kinds, in some none.
type plan struct {
	nodes, workers, bare, clients int
	outside                       int           // number of external owners
	safety                        time.Duration // duration of the phase with faults
	slowPoll, hintPoll            time.Duration
	retention                     time.Duration // if below 0, executions are kept
	committers                    int           // batches of a node that are committed at the same time
	pulse                         bool          // heartbeats are committed beside all other batches
	proves                        bool          // a node can prove that a process on its host has died
	hints                         bool          // nodes send hints to each other
	gates                         bool          // submissions name gates, and an operator changes gates
	budgets                       bool          // some submissions have a budget, and clients change budgets
	schedules                     bool          // a planner sets and changes schedules
	notify                        bool          // some submissions have notifications
	targets                       bool          // a steward sets targets of notifications
	mailboxes                     bool          // workers have mailboxes, so that nodes schedule executions to them
	contents                      int           // about one in so many submissions is recognized by its content
	// clockLeap is the time at which the clock is set forwards, so that an open circuit breaker
	// lets probes through while there are still faults; 0 for never.
	clockLeap time.Duration

	// The probability of each fault of a call.
	storeFails, storeUnheard, storeSlow float64
	netLost, netUnheard, netSlow        float64
	merged                              float64 // the probability that a batch and its commit get one decision
	pace                                time.Duration

	// The mean interval of each kind of fault; 0 for never.
	nodeCrash, workerCrash, workerFreeze, workerStop, cut, clockStep, allDown, epoch time.Duration
	// clockJump is the largest step by which the clock is set.
	clockJump time.Duration

	ttl func(*rand.Rand) time.Duration
}

func newPlan(r *rand.Rand) plan {
	sometimes := func(p float64, v float64) float64 {
		if r.Float64() < p {
			return v * r.Float64()
		}
		return 0
	}
	every := func(p float64, least, most time.Duration) time.Duration {
		if r.Float64() < p {
			return between(r, least, most)
		}
		return 0
	}
	p := plan{
		nodes: 1 + r.IntN(2), workers: 1 + r.IntN(3), bare: r.IntN(3), clients: 2 + r.IntN(2),
		safety: between(r, 4*time.Second, 12*time.Second), slowPoll: between(r, 400*time.Millisecond, 3*time.Second),
		proves: r.IntN(4) == 0, merged: float64(r.IntN(3)) / 2, pace: between(r, 20*time.Microsecond,
			600*time.Microsecond),

		storeFails: sometimes(0.5, 0.06), storeUnheard: sometimes(0.5, 0.06), storeSlow: sometimes(0.3, 0.02),
		netLost: sometimes(0.5, 0.08), netUnheard: sometimes(0.6, 0.08), netSlow: sometimes(0.4, 0.04),

		nodeCrash: every(0.5, 2*time.Second, 8*time.Second), workerCrash: every(0.5, 2*time.Second, 8*time.Second),
		workerFreeze: every(0.5, 2*time.Second, 6*time.Second), workerStop: every(0.4, 3*time.Second, 8*time.Second),
		cut: every(0.4, 2*time.Second, 6*time.Second), clockStep: every(0.4, 2*time.Second, 6*time.Second),
		allDown: every(0.3, 4*time.Second, 10*time.Second), epoch: every(0.2, 2*time.Second, 8*time.Second),
		clockJump: between(r, 100*time.Millisecond, 5*time.Second),
	}
	if r.IntN(4) == 0 {
		p.clockJump = 2 * time.Hour
	}
	if p.workers+p.bare < 2 {
		p.workers++
	}
	if r.IntN(10) == 0 {
		p.calmDown()
	}
	ttls := []time.Duration{time.Second, time.Second, 1500 * time.Millisecond, 3 * time.Second, 5 * time.Second}
	if r.IntN(5) == 0 {
		ttls = append(ttls[2:], 15*time.Second, maxTTL)
	}
	p.hintPoll = between(r, 100*time.Millisecond, p.slowPoll)
	p.outside = r.IntN(3)
	p.hints = p.nodes > 1 && r.IntN(3) > 0
	if p.hints && p.calm() { // with this slow poll, only the poll for lost hints (hintPoll) can find due work in time
		p.slowPoll = 20 * time.Second
	}
	p.committers, p.pulse = 1+r.IntN(4)/3, r.IntN(4) == 0
	if p.overlapping() {
		p.merged = 0
	}
	p.retention = -1
	if r.IntN(5) == 0 {
		p.withRetention(between(r, leastRetention, mostRetention))
	}
	p.ttl = func(r *rand.Rand) time.Duration { return ttls[r.IntN(len(ttls))] }
	if p.gates = r.IntN(2) == 0; p.gates && p.retention < 0 && !p.calm() && r.IntN(2) == 0 {
		p.clockLeap = between(r, p.safety/3, p.safety)
	}
	p.budgets, p.contents = r.IntN(2) == 0, 8
	p.mailboxes = r.IntN(3) == 0
	return p
}

// maxTTL is the longest TTL of a session.
const maxTTL = 20 * time.Second

// calmDown removes all faults except for the faults of workers.
func (p *plan) calmDown() {
	p.storeFails, p.storeUnheard, p.storeSlow, p.netLost, p.netUnheard, p.netSlow = 0, 0, 0, 0, 0, 0
	p.nodeCrash, p.cut, p.clockStep, p.allDown, p.workerFreeze = 0, 0, 0, 0, 0
	p.workerCrash, p.slowPoll = 2*time.Second, min(p.slowPoll, 800*time.Millisecond)
}

// overlapping reports whether a node commits several batches at the same time.
func (p *plan) overlapping() bool { return p.committers > 1 || p.pulse }

// calm reports whether the plan has only faults of workers. In such a plan no fault can delay a
// server, so each late action of a server is a violation.
func (p *plan) calm() bool {
	return p.storeFails+p.storeUnheard+p.storeSlow+p.netLost+p.netUnheard+p.netSlow == 0 &&
		p.nodeCrash+p.cut+p.clockStep+p.allDown+p.workerFreeze == 0
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}
