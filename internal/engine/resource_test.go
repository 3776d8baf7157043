package engine_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// shop is a worker whose runs share a resource with the modes A, B and C. It checks that the modes
// exclude each other, and measures how long executions wait and how often the mode changes.
type shop struct {
	t         *testing.T
	e         *engine.Engine
	run, swap time.Duration

	mu      sync.Mutex
	modes   map[string]int // running, by mode
	mode    string         // as the swaps have set it
	swaps   int
	arrived map[belay.ExecutionID]time.Time
	longest time.Duration
	ended   int
}

// serve claims and runs executions until ctx ends.
func (s *shop) serve(ctx context.Context) {
	w := must[belay.Session](s.t)(s.e.OpenWorker(ctx, belay.WorkerSpec{
		Name: "w", Capacity: 100, TTL: belay.MaxTTL,
		Workflows: []belay.Registration{{Workflow: "w"}, {Workflow: "load"}},
	}))
	for n := int64(1); ctx.Err() == nil; n++ {
		r, err := s.e.Claim(ctx, belay.ClaimRequest{Worker: w.ID, Number: n, Slots: 50, Wait: time.Second})
		if err != nil {
			return
		}
		for _, a := range r.Assignments {
			go s.work(ctx, a)
		}
	}
}

func (s *shop) work(ctx context.Context, a belay.Assignment) {
	if a.Workflow == "load" {
		s.load(ctx, a)
		return
	}
	var mode string
	_ = json.Unmarshal(a.Input, &mode)
	s.mu.Lock()
	s.longest = max(s.longest, time.Since(s.arrived[a.Lease.Execution]))
	s.modes[mode]++
	if s.modes[mode] != s.modes["A"]+s.modes["B"]+s.modes["C"] || s.mode != mode {
		s.t.Errorf("a run of the mode %s starts in the mode %q beside %v", mode, s.mode, s.modes)
	}
	s.mu.Unlock()
	time.Sleep(s.run)
	s.mu.Lock()
	s.modes[mode]--
	s.ended++
	s.mu.Unlock()
	_ = s.e.Settle(ctx, belay.Settlement{Lease: a.Lease, Outcome: belay.OutcomeSucceeded})
}

// load changes the mode.
func (s *shop) load(ctx context.Context, a belay.Assignment) {
	var in belay.SwapInput
	_ = json.Unmarshal(a.Input, &in)
	s.mu.Lock()
	if s.modes["A"]+s.modes["B"]+s.modes["C"] > 0 || in.Resource != "gpu" || in.From != s.mode {
		s.t.Errorf("a swap %+v begins in the mode %q beside %v", in, s.mode, s.modes)
	}
	s.swaps++
	s.mode = ""
	s.mu.Unlock()
	time.Sleep(s.swap)
	s.mu.Lock()
	s.mode = in.To
	s.mu.Unlock()
	_ = s.e.Settle(ctx, belay.Settlement{Lease: a.Lease, Outcome: belay.OutcomeSucceeded})
}

// Rule: a resource that is shared by executions of the modes A A A B B C, which arrive at random, changes
// its mode at most a third as often as one that serves them first in, first out, and no execution waits
// longer than the bound that its terms give. The modes never run beside each other.
func TestAResourceBatchesByMode(t *testing.T) {
	const (
		executions = 300
		run, swap  = 2 * time.Second, 8 * time.Second
		maxWait    = 90 * time.Second
	)
	// A waiting mode is served after the maximum wait at the latest, unless the other two modes have
	// waited longer: each of them takes its residency, the end of its last run and a swap. A second for
	// each swap is the time of the sweeper's check.
	for _, c := range []struct{ each, residency time.Duration }{
		{500 * time.Millisecond, 20 * time.Second}, {2 * time.Second, 20 * time.Second},
		{4 * time.Second, 20 * time.Second}, {8 * time.Second, 60 * time.Second},
	} {
		each, residency := c.each, c.residency
		bound := maxWait + 3*residency + 3*(run+swap+time.Second)
		synctest.Test(t, func(t *testing.T) {
			e := engine.New(memory.New(time.Now), engine.Options{})
			defer e.Close()
			ctx, stop := context.WithCancel(t.Context())
			s := &shop{
				t: t, e: e, run: run, swap: swap, modes: make(map[string]int),
				arrived: make(map[belay.ExecutionID]time.Time),
			}
			terms := resourceTerms(belay.ResourceTerms{
				MinResidency: belay.Duration(residency), MaxWait: belay.Duration(maxWait),
				Swap: &belay.ResourceSwapper{Workflow: "load"},
			})
			must[belay.GateDetail](t)(e.ChangeGate(ctx, terms))
			go s.serve(ctx)
			random := rand.New(rand.NewPCG(uint64(each), 4))
			fifo, last := 0, ""
			for range executions {
				mode := string("AAABBC"[random.IntN(6)])
				if mode != last {
					fifo, last = fifo+1, mode
				}
				input, _ := json.Marshal(mode)
				id := belay.ExecutionID(randomID(random))
				s.mu.Lock()
				s.arrived[id] = time.Now()
				s.mu.Unlock()
				must[[]belay.Submitted](t)(e.Submit(ctx, belay.Submission{
					ID: id, Workflow: "w", Input: input, Gates: requiring(mode),
				}))
				time.Sleep(time.Duration(random.ExpFloat64() * float64(each)))
			}
			time.Sleep(2 * bound)
			s.mu.Lock()
			defer s.mu.Unlock()
			t.Logf("one arrival each %s, residency %s: %d swaps, %d first in first out (%.2f); longest wait %s, "+
				"bound %s", each, residency,
				s.swaps, fifo, float64(s.swaps)/float64(fifo), s.longest.Round(time.Millisecond), bound)
			if s.ended != executions {
				t.Errorf("%d of %d executions have ended", s.ended, executions)
			}
			if 3*s.swaps > fifo {
				t.Errorf("%d swaps are more than a third of %d", s.swaps, fifo)
			}
			if s.longest > bound {
				t.Errorf("an execution has waited for %s", s.longest)
			}
			stop()
			synctest.Wait()
		})
	}
}

func randomID(r *rand.Rand) (id [16]byte) {
	for i := range id {
		id[i] = byte(r.Uint32())
	}
	id[6], id[8] = 0x70|id[6]&0x0f, 0x80|id[8]&0x3f
	return id
}
