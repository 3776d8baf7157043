package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

var update = flag.Bool("update", false, "write the golden files anew")

// stage is an engine on which a test prepares an execution that does not continue. Its methods make the
// calls of clients, workers and operators.
type stage struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // of the test, for all calls
	engine *engine.Engine
	claims int64
}

func (s *stage) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) submit(change ...func(*belay.Submission)) belay.ExecutionID {
	s.t.Helper()
	sub := belay.Submission{Workflow: "invoice"}
	for _, c := range change {
		c(&sub)
	}
	out, err := s.engine.Submit(s.ctx, sub)
	s.ok(err)
	return out[0].ID
}

// worker opens the session of a worker with two slots that runs the workflow invoice.
func (s *stage) worker(name string, change ...func(*belay.WorkerSpec)) belay.WorkerID {
	s.t.Helper()
	spec := belay.WorkerSpec{
		Name: name, Workflows: []belay.Registration{{Workflow: "invoice"}}, Capacity: 2,
		TTL: belay.Duration(10 * time.Minute),
	}
	for _, c := range change {
		c(&spec)
	}
	w, err := s.engine.OpenWorker(s.ctx, spec)
	s.ok(err)
	return w.ID
}

// claim claims one execution. It returns the zero Lease if no execution becomes due while the claim
// waits.
func (s *stage) claim(w belay.WorkerID) (l belay.Lease) {
	s.t.Helper()
	for range 3 { // a claim may return early without an execution
		s.claims++
		r, err := s.engine.Claim(s.ctx, belay.ClaimRequest{Worker: w, Number: s.claims, Slots: 1, Wait: time.Second})
		s.ok(err)
		if len(r.Assignments) > 0 {
			return r.Assignments[0].Lease
		}
	}
	return l
}

func (s *stage) settle(l belay.Lease, c belay.Settlement) {
	s.t.Helper()
	c.Lease = l
	s.ok(s.engine.Settle(s.ctx, c))
	synctest.Wait()
}

func (s *stage) fail(l belay.Lease, text string) {
	s.t.Helper()
	s.settle(l, belay.Settlement{
		Outcome: belay.OutcomeFailed, Failure: &belay.Failure{Class: belay.ClassTransient, Message: text},
	})
}

func (s *stage) wait(l belay.Lease, text string, d time.Duration) {
	s.t.Helper()
	s.settle(l, belay.Settlement{Outcome: belay.OutcomeSuspended, Wait: d, WaitText: text})
}

func (s *stage) gate(c belay.GateChange) {
	s.t.Helper()
	c.Actor = "ann"
	_, err := s.engine.ChangeGate(s.ctx, c)
	s.ok(err)
}

func (s *stage) act(id belay.ExecutionID, a belay.Action, reason string) {
	s.t.Helper()
	_, err := s.engine.Control(s.ctx, belay.Control{Execution: id, Action: a, Actor: "ann", Reason: reason})
	s.ok(err)
}

func (s *stage) cordon(w belay.WorkerID, reason string) {
	s.t.Helper()
	s.ok(s.engine.Cordon(s.ctx, belay.Cordon{Worker: w, Actor: "ann", Reason: reason}))
}

func limited(s *belay.Submission) { s.Gates.Concurrency = &belay.Concurrency{Name: "crawler", Max: 1} }
func calling(s *belay.Submission) { s.Gates.Target = "payments:charge" }
func once(s *belay.Submission)    { s.Policy.MaxAttempts = 1 }

// stuckCases are executions that do not continue, each for another reason.
var stuckCases = []struct {
	name    string
	prepare func(*stage) belay.ExecutionID
}{
	{"its queue is paused", func(s *stage) belay.ExecutionID {
		s.worker("builder-1")
		s.gate(belay.GateChange{Gate: "queue:default", Action: belay.GatePause, Reason: "the database is moved"})
		return s.submit()
	}},
	{"its workflow is paused until a time", func(s *stage) belay.ExecutionID {
		s.worker("builder-1")
		s.gate(belay.GateChange{
			Gate: "workflow:invoice", Action: belay.GatePause, Reason: "wrong amounts",
			Until: time.Now().Add(time.Hour),
		})
		return s.submit()
	}},
	{"its limit is full, and the holder of the place waits for a signal", func(s *stage) belay.ExecutionID {
		w := s.worker("builder-1")
		s.submit(limited)
		s.wait(s.claim(w), `signal "approved"`, 0)
		s.submit(limited)
		last := s.submit(limited)
		for range 2 {
			s.claim(w)
		}
		return last
	}},
	{"an operator's rate is used up", func(s *stage) belay.ExecutionID {
		w := s.worker("builder-1")
		s.gate(belay.GateChange{
			Gate: "rate:mail", Action: belay.GateSetRate, Max: 1, Per: belay.Duration(time.Hour),
			Reason: "the provider complained",
		})
		mails := func(b *belay.Submission) {
			b.Gates.Rate = &belay.Rate{Name: "mail", Max: 9, Per: belay.Duration(time.Second)}
		}
		s.submit(mails)
		s.claim(w)
		id := s.submit(mails)
		s.claim(w)
		return id
	}},
	{"the circuit breaker of its target is open", func(s *stage) belay.ExecutionID {
		w := s.worker("builder-1")
		for range 5 {
			s.submit(calling, once)
			s.fail(s.claim(w), "connection refused")
		}
		id := s.submit(calling)
		s.claim(w)
		return id
	}},
	{"the circuit breaker of its target is half-open", func(s *stage) belay.ExecutionID {
		w := s.worker("builder-1", func(w *belay.WorkerSpec) { w.Capacity = 9 })
		for range 5 {
			s.submit(calling, once)
			s.fail(s.claim(w), "connection refused")
		}
		for range 2 {
			s.submit(calling)
		}
		id := s.submit(calling)
		for range 3 {
			s.claim(w)
		}
		time.Sleep(31 * time.Second)
		for range 3 {
			s.claim(w)
		}
		return id
	}},
	{"an operator has opened the circuit breaker of its target", func(s *stage) belay.ExecutionID {
		w := s.worker("builder-1")
		s.gate(belay.GateChange{
			Gate: "target:payments:charge", Action: belay.GateForceOpen, Reason: "the provider is down until monday",
		})
		id := s.submit(calling)
		s.claim(w)
		return id
	}},
	{"its limit is full before a worker has claimed it, and its queue is paused too", func(s *stage) belay.ExecutionID {
		w := s.worker("builder-1")
		s.submit(limited)
		s.claim(w)
		s.gate(belay.GateChange{Gate: "queue:default", Action: belay.GatePause})
		return s.submit(limited)
	}},
	{"no worker is connected, and the last one was lost", func(s *stage) belay.ExecutionID {
		s.worker("builder-1", func(w *belay.WorkerSpec) { w.TTL = belay.Duration(5 * time.Second) })
		time.Sleep(time.Minute)
		return s.submit()
	}},
	{"all workers are busy", func(s *stage) belay.ExecutionID {
		w := s.worker("builder-1")
		for range 2 {
			s.submit()
			s.claim(w)
		}
		return s.submit()
	}},
	{"its workers are cordoned", func(s *stage) belay.ExecutionID {
		s.cordon(s.worker("builder-1"), "its disk is failing")
		return s.submit()
	}},
	{"one worker is busy, one is draining and two are cordoned", func(s *stage) belay.ExecutionID {
		w := s.worker("builder-1")
		for range 2 {
			s.submit()
			s.claim(w)
		}
		s.ok(s.engine.Drain(s.ctx, s.worker("builder-2")))
		s.cordon(s.worker("builder-3"), "")
		s.cordon(s.worker("builder-4"), "its disk is failing")
		return s.submit()
	}},
	{"one worker is unhealthy, and one is cordoned and unhealthy", func(s *stage) belay.ExecutionID {
		probed := func(w *belay.WorkerSpec) { w.Health = ":9090" }
		first, second := s.worker("builder-1", probed), s.worker("builder-2", probed)
		for _, w := range []belay.WorkerID{first, second} {
			_, err := s.engine.Probed(s.ctx, w, "status 503: the disk is full")
			s.ok(err)
		}
		s.cordon(second, "its disk is failing")
		return s.submit()
	}},
	{"the workers run other workflows, versions and queues", func(s *stage) belay.ExecutionID {
		s.worker("builder-1")
		s.worker("builder-2", func(w *belay.WorkerSpec) {
			w.Workflows = []belay.Registration{{Workflow: "report"}}
		})
		s.worker("builder-3", func(w *belay.WorkerSpec) {
			w.Workflows = []belay.Registration{{Workflow: "invoice", Version: "2"}}
		})
		return s.submit(func(b *belay.Submission) { b.Version, b.Queue = "2", "night" })
	}},
	{"it waits for its next attempt", func(s *stage) belay.ExecutionID {
		w := s.worker("builder-1")
		id := s.submit()
		s.settle(s.claim(w), belay.Settlement{ // the owner requests a retry after a minute, to which no jitter is added
			Outcome: belay.OutcomeFailed, RetryAfter: time.Minute,
			Failure: &belay.Failure{Class: belay.ClassTransient, Message: "connection refused"},
		})
		return id
	}},
	{"it waits for a signal, and another signal came", func(s *stage) belay.ExecutionID {
		w := s.worker("builder-1")
		id := s.submit()
		s.wait(s.claim(w), `signal "approved"`, time.Hour)
		s.ok(s.engine.Signal(s.ctx, belay.SignalRequest{Execution: id, Name: "aproved"}))
		s.settle(s.claim(w), belay.Settlement{
			Outcome: belay.OutcomeSuspended, WaitText: `signal "approved"`, Wait: time.Hour, SignalSeen: 99,
		})
		return id
	}},
	{"its sleep is over, and its worker has ended", func(s *stage) belay.ExecutionID {
		id, w := s.submit(), s.worker("builder-1")
		s.wait(s.claim(w), `sleep "a-night"`, time.Minute)
		s.ok(s.engine.CloseWorker(s.ctx, w))
		time.Sleep(2 * time.Minute)
		return id
	}},
	{"its queue is paused, no worker runs its version, and it has a start_timeout", func(s *stage) belay.ExecutionID {
		s.worker("builder-1")
		s.gate(belay.GateChange{Gate: "queue:default", Action: belay.GatePause, Reason: "the database is moved"})
		return s.submit(func(b *belay.Submission) {
			b.Version, b.Policy.StartTimeout = "2", belay.Duration(time.Hour)
		})
	}},
	{"it sleeps", func(s *stage) belay.ExecutionID {
		id := s.submit()
		s.wait(s.claim(s.worker("builder-1")), `sleep "until-the-invoice-is-due"`, 24*time.Hour)
		return id
	}},
	{"a person has paused it", func(s *stage) belay.ExecutionID {
		s.worker("builder-1")
		id := s.submit()
		s.act(id, belay.ActionPause, "the customer asked for it")
		return id
	}},
	{"it waits for a child, which no worker runs", func(s *stage) belay.ExecutionID {
		id := s.submit()
		l := s.claim(s.worker("builder-1"))
		s.submit(func(b *belay.Submission) {
			b.ID, b.Workflow, b.Parent, b.ParentKey = belay.ChildID(id, 1, "print"), "pdf", &l, "print"
		})
		s.wait(l, `child "print"`, 0)
		return id
	}},
	{"it was submitted to start later", func(s *stage) belay.ExecutionID {
		s.worker("builder-1")
		return s.submit(func(b *belay.Submission) { b.DueAt = time.Now().Add(time.Hour) })
	}},
	{"it has failed", func(s *stage) belay.ExecutionID {
		id := s.submit(once)
		s.fail(s.claim(s.worker("builder-1")), "no such customer")
		return id
	}},
	{"a person has cancelled it", func(s *stage) belay.ExecutionID {
		id := s.submit()
		s.act(id, belay.ActionCancel, "a duplicate")
		return id
	}},
}

var ids = regexp.MustCompile(`(ex|wk)_[0-9a-z]{26}`)

// Rule: for each reason why an execution does not continue, the text of belay explain alone names
// the reason, the operator who caused it and the time; it also says what happens next, and which
// command helps.
func TestAStuckExecutionIsExplained(t *testing.T) {
	var out bytes.Buffer
	for _, c := range stuckCases {
		synctest.Test(t, func(t *testing.T) {
			e := engine.New(memory.New(time.Now), engine.Options{})
			defer e.Close()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			s := &stage{t: t, ctx: ctx, engine: e}
			id := c.prepare(s)
			time.Sleep(5 * time.Second)
			x, err := e.Explain(ctx, id)
			s.ok(err)
			fmt.Fprintf(&out, "%s\n\n", c.name)
			(&app{streams: streams{out: screened{to: &out}}}).printExplanation(&x)
			out.WriteString("\n")
			stop()
			synctest.Wait()
		})
	}
	got := ids.ReplaceAll(out.Bytes(), []byte("${1}_…"))
	const golden = "testdata/stuck.txt"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("explained as\n%s\nwant\n%s", got, want)
	}
}
