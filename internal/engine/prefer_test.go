package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/google/go-cmp/cmp"
)

// crew is an engine with several workers whose claims wait. It must be used in a synctest bubble.
type crew struct {
	t      *testing.T
	e      *engine.Engine
	ids    map[string]belay.WorkerID
	number int64
	taken  chan taken
}

// taken is an execution that a worker of a crew has won, and the time of the engine's reply.
type taken struct {
	worker string
	at     time.Time
	belay.Assignment
}

func newCrew(t *testing.T) *crew {
	t.Helper()
	c := &crew{
		t: t, ids: make(map[string]belay.WorkerID), taken: make(chan taken, 100),
		e: engine.New(memory.New(time.Now), engine.Options{Jitter: func() float64 { return 0 }}),
	}
	t.Cleanup(func() {
		if err := c.e.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// open opens a session of a worker. The worker serves the queue "default" and a queue with the
// worker's key as its name, unless the spec names other queues.
func (c *crew) open(key string, s belay.WorkerSpec) {
	c.t.Helper()
	if s.Name == "" {
		s.Name = key
	}
	if s.Workflows == nil {
		s.Workflows = noop
	}
	if s.Queues == nil {
		s.Queues = []string{"default", key}
	}
	if s.TTL == 0 {
		s.TTL = belay.Duration(time.Hour)
	}
	c.ids[key] = must[belay.Session](c.t)(c.e.OpenWorker(c.t.Context(), s)).ID
}

// claim sends a claim that waits for up to an hour. It returns when the claim waits or has won.
func (c *crew) claim(key string, slots int) {
	c.request(belay.ClaimRequest{Worker: c.ids[key], Slots: slots}, key)
}

// claimBeside claims for a worker that messages reach.
func (c *crew) claimBeside(key string, slots int) {
	c.request(belay.ClaimRequest{Worker: c.ids[key], Slots: slots, Messages: true}, key)
}

func (c *crew) request(r belay.ClaimRequest, key string) {
	c.number++
	r.Number, r.Wait = c.number, time.Hour
	go func() {
		for {
			reply, err := c.e.Claim(c.t.Context(), r)
			for _, a := range reply.Assignments {
				c.taken <- taken{key, time.Now(), a}
			}
			if err != nil || !reply.Attention {
				return
			}
		}
	}()
	synctest.Wait()
}

func (c *crew) submit(s belay.Submission) {
	c.t.Helper()
	s.Workflow = "w"
	if out := must[[]belay.Submitted](c.t)(c.e.Submit(c.t.Context(), s)); out[0].Err != nil {
		c.t.Fatal(out[0].Err)
	}
	synctest.Wait()
}

// next waits for the next execution that a worker wins.
func (c *crew) next() taken {
	c.t.Helper()
	select {
	case x := <-c.taken:
		return x
	case <-time.After(30 * time.Minute):
		c.t.Fatal("no worker has won an execution")
		return taken{}
	}
}

// busy makes a worker claim some runs from the queue that only this worker serves.
func (c *crew) busy(key string, runs int) (all []taken) {
	c.t.Helper()
	for range runs {
		c.submit(belay.Submission{Queue: key})
		c.claim(key, 1)
		all = append(all, c.next())
	}
	return all
}

func (c *crew) settle(x taken, o belay.Outcome) {
	c.t.Helper()
	if err := c.e.Settle(c.t.Context(), belay.Settlement{Lease: x.Lease, Outcome: o}); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// If the claims of several workers wait and work comes, the engine serves the worker first that
// runs the fewest executions relative to its slots, and of two such workers the one that has waited
// longer. This is true whether a submission or the due time of an execution wakes the claims.
func TestTheLeastLoadedWorkerIsServedFirst(t *testing.T) {
	for name, after := range map[string]time.Duration{"submitted": 0, "due later": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t)
				var runs []taken
				for _, w := range []struct {
					key         string
					slots, busy int
				}{{"half", 4, 2}, {"half later", 2, 1}, {"quarter", 8, 2}, {"most", 4, 3}} {
					c.open(w.key, belay.WorkerSpec{Capacity: w.slots})
					runs = append(runs, c.busy(w.key, w.busy)...)
				}
				for _, key := range []string{"most", "half", "half later", "quarter"} {
					c.claim(key, 1)
				}
				serve := func() string {
					c.submit(belay.Submission{DueAt: time.Now().Add(after)})
					return c.next().worker
				}
				got := []string{serve(), serve()}
				c.claim("quarter", 1)
				c.settle(runs[len(runs)-1], belay.OutcomeSucceeded)
				c.settle(runs[len(runs)-2], belay.OutcomeSucceeded) // now the worker "most" uses one slot of four
				got = append(got, serve(), serve(), serve())
				want := []string{"quarter", "half", "most", "quarter", "half later"}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("served (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// fail makes the worker "first" fail a run, and returns the time at which the execution is due
// again. After that the worker has no runs.
func (c *crew) fail() (due time.Time) {
	c.t.Helper()
	c.submit(belay.Submission{Queue: "default"})
	c.claim("first", 1)
	c.settle(c.next(), belay.OutcomeFailed)
	return time.Now().Add(belay.DefaultBackoffBase.D())
}

// If a run has failed and the claim of another worker waits, the execution goes to the other
// worker, even if that worker is busier and has waited for a shorter time. The engine delays no
// claim for this.
func TestARetryGoesToAnotherWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t)
		c.open("first", belay.WorkerSpec{Capacity: 100})
		due := c.fail()
		c.claim("first", 1)
		c.open("other", belay.WorkerSpec{Capacity: 2})
		c.busy("other", 1)
		c.claim("other", 1)
		x := c.next()
		if x.worker != "other" || !x.at.Equal(due) {
			t.Errorf("%s won the retry %s after it was due", x.worker, x.at.Sub(due))
		}
		c.settle(x, belay.OutcomeFailed)
		c.claim("other", 1)
		if x := c.next(); x.worker != "first" {
			t.Errorf("%s won the next retry", x.worker)
		}
	})
}

// A worker that was lost and then started again has another session and the same name. The
// execution that was lost on this worker goes to another worker.
func TestALostExecutionGoesToAnotherWorker(t *testing.T) {
	for name, other := range map[string]bool{"other": true, "again": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t)
				began := time.Now()
				c.open("first", belay.WorkerSpec{Name: "same", Capacity: 1, TTL: belay.Duration(15 * time.Second)})
				c.submit(belay.Submission{})
				c.claim("first", 1)
				c.next()
				c.open("again", belay.WorkerSpec{Name: "same", Capacity: 100})
				c.claim("again", 1)
				if other {
					c.open("other", belay.WorkerSpec{Capacity: 2})
					c.busy("other", 1)
					c.claim("other", 1)
				}
				if x := c.next(); x.worker != name || x.at.Sub(began) > 16*time.Second {
					t.Errorf("%s won the lost execution after %s", x.worker, x.at.Sub(began))
				}
			})
		})
	}
}

// If no other worker that can take the execution waits, the same worker takes it at the moment when
// it is due, with one claim. This is true if the worker is alone, and if the other worker has no
// free slot, is draining or cordoned, or serves other executions.
func TestARetryIsNotDelayedForOtherWorkers(t *testing.T) {
	labels := map[string]string{"gpu": "yes"}
	for name, other := range map[string]func(*crew){
		"alone": func(*crew) {},
		"full": func(c *crew) {
			c.open("other", belay.WorkerSpec{Capacity: 1})
			c.busy("other", 1)
			c.claim("other", 0)
		},
		"draining": func(c *crew) {
			c.open("other", belay.WorkerSpec{Capacity: 1})
			c.claim("other", 1)
			if err := c.e.Drain(c.t.Context(), c.ids["other"]); err != nil {
				c.t.Fatal(err)
			}
		},
		"cordoned": func(c *crew) {
			c.open("other", belay.WorkerSpec{Capacity: 1})
			c.claim("other", 1)
			if err := c.e.Cordon(c.t.Context(), belay.Cordon{Worker: c.ids["other"]}); err != nil {
				c.t.Fatal(err)
			}
		},
		"other workflow": func(c *crew) {
			c.open("other", belay.WorkerSpec{Capacity: 1, Workflows: []belay.Registration{{Workflow: "x"}}})
			c.claim("other", 1)
		},
		"other queue": func(c *crew) {
			c.open("other", belay.WorkerSpec{Capacity: 1, Queues: []string{"other"}})
			c.claim("other", 1)
		},
		"labels": func(c *crew) {
			c.open("other", belay.WorkerSpec{Capacity: 1})
			c.claim("other", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t)
				c.open("first", belay.WorkerSpec{Capacity: 2, Labels: labels})
				c.submit(belay.Submission{WorkerLabels: labels})
				c.claim("first", 1)
				c.settle(c.next(), belay.OutcomeFailed)
				due := time.Now().Add(belay.DefaultBackoffBase.D())
				c.claim("first", 1)
				other(c)
				synctest.Wait()
				before := c.e.Stats().Commands
				if x := c.next(); x.worker != "first" || !x.at.Equal(due) {
					t.Errorf("%s won the retry %s after it was due", x.worker, x.at.Sub(due))
				}
				if n := c.e.Stats().Commands - before; n != 1 {
					t.Errorf("the retry cost %d commands", n)
				}
			})
		})
	}
}

// Other workers are preferred for five seconds from the moment when the execution is due. In this
// test a paused queue keeps all workers from taking the execution before the given time.
func TestThePreferenceOfOthersEnds(t *testing.T) {
	for after, want := range map[time.Duration]string{
		5*time.Second - time.Millisecond: "other", 5 * time.Second: "first",
	} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t)
				gate := belay.GateChange{Gate: belay.Gate(belay.GateQueue, "default"), Action: belay.GatePause}
				c.open("first", belay.WorkerSpec{Capacity: 100})
				due := c.fail()
				must[belay.GateDetail](t)(c.e.ChangeGate(t.Context(), gate))
				c.claim("first", 1)
				c.open("other", belay.WorkerSpec{Capacity: 2})
				c.busy("other", 1)
				c.claim("other", 1)
				time.Sleep(time.Until(due.Add(after)))
				synctest.Wait()
				gate.Action = belay.GateResume
				must[belay.GateDetail](t)(c.e.ChangeGate(t.Context(), gate))
				if x := c.next(); x.worker != want || !x.at.Equal(due.Add(after)) {
					t.Errorf("%s won the retry %s after it was due", x.worker, x.at.Sub(due))
				}
			})
		})
	}
}

// If two executions failed on one worker and are due at the same time, and the other worker has one
// free slot, both executions run at once.
func TestAPreferenceLeavesNoSlotUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t)
		c.open("first", belay.WorkerSpec{Capacity: 2})
		c.submit(belay.Submission{})
		c.submit(belay.Submission{})
		c.claim("first", 2)
		a, b := c.next(), c.next()
		c.settle(a, belay.OutcomeFailed)
		c.settle(b, belay.OutcomeFailed)
		due := time.Now().Add(belay.DefaultBackoffBase.D())
		c.claim("first", 2)
		c.open("other", belay.WorkerSpec{Capacity: 1})
		c.claim("other", 1)
		won := make(map[string]int)
		for range 2 {
			x := c.next()
			won[x.worker]++
			if !x.at.Equal(due) {
				t.Errorf("%s won a retry %s after it was due", x.worker, x.at.Sub(due))
			}
		}
		if diff := cmp.Diff(map[string]int{"first": 1, "other": 1}, won); diff != "" {
			t.Errorf("won (-want +got):\n%s", diff)
		}
	})
}

// Two servers share a database, and one worker waits at each server. A server prefers other workers
// only among the claims that wait at this server. So no retry is delayed: whichever worker takes
// it, the run begins soon after the execution is due.
func TestTwoServersStarveNoRetry(t *testing.T) {
	url := database(t)
	a, b := start(t, url, withHints), start(t, url, withHints)
	a.heard(t, b)
	b.heard(t, a)
	const retries = 20
	out, err := a.Submit(t.Context(), belay.Submission{Workflow: "w", Policy: belay.Policy{
		MaxAttempts: retries + 1, BackoffBase: belay.Duration(time.Millisecond),
		BackoffCap: belay.Duration(time.Millisecond),
	}})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	ran := make(chan string)
	for name, x := range map[string]server{"a": a, "b": b} {
		w := x.open(t, name, "w", time.Hour)
		go func() {
			for n := int64(1); ; n++ {
				r, err := x.Claim(t.Context(), belay.ClaimRequest{Worker: w, Number: n, Slots: 1, Wait: time.Minute})
				if err != nil {
					return
				}
				for _, got := range r.Assignments {
					_ = x.Settle(t.Context(), belay.Settlement{Lease: got.Lease, Outcome: belay.OutcomeFailed})
					ran <- name
				}
				if len(r.Assignments) == 0 {
					n--
				}
			}
		}()
	}
	won := make(map[string]int)
	began := time.Now()
	for range retries + 1 {
		select {
		case name := <-ran:
			won[name]++
		case <-time.After(20 * time.Second):
			t.Fatalf("a retry did not begin; runs so far: %v", won)
		}
	}
	t.Logf("%v in %s", won, time.Since(began))
	if x := a.await(t, out[0].ID); x.State != belay.Failed {
		t.Errorf("the execution is %s", x.State)
	}
}
