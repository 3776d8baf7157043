package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// courier carries the queues "sent" and "also", and keeps what it sent.
type courier struct {
	mu      sync.Mutex
	down    bool // it has no connection
	sent    []engine.Assigned
	removed []string      // queues
	err     error         // the error of each Send
	hang    chan struct{} // Send waits until it is closed; nil if Send does not wait
}

func (c *courier) Carries(queue string) bool { return queue == "sent" || queue == "also" }

func (c *courier) Ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.down
}

func (c *courier) Open(_ context.Context, w belay.WorkerID) (string, error) {
	return "to " + w.String(), nil
}

func (c *courier) Send(ctx context.Context, queue string, a engine.Assigned) error {
	c.mu.Lock()
	hang := c.hang
	c.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if queue == "to "+a.Worker.String() {
		c.sent = append(c.sent, a)
	}
	return nil
}

func (c *courier) Remove(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = append(c.removed, queue)
}

// connect ends or begins an outage of the broker.
func (c *courier) connect(up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = !up
}

// fail makes messages fail from now on, or with nil succeed.
func (c *courier) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// take returns what was sent since the last call, when all goroutines wait.
func (c *courier) take() []engine.Assigned {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}

// post is a crew with a courier. It must be used in a synctest bubble.
type post struct {
	*crew
	courier *courier
	accepts int64
}

func newPost(t *testing.T) *post {
	t.Helper()
	return newPostOn(t, memory.New(time.Now))
}

func newPostOn(t *testing.T, s store.Store) *post {
	t.Helper()
	p := &post{courier: new(courier)}
	p.crew = &crew{
		t: t, ids: make(map[string]belay.WorkerID), taken: make(chan taken, 100),
		e: engine.New(s, engine.Options{
			Jitter: func() float64 { return 0 }, Courier: p.courier, Committers: 2,
		}),
	}
	t.Cleanup(func() {
		if err := p.e.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// open opens a session with a number of slots for the queues "sent" and "default".
func (p *post) open(key string, capacity int) {
	p.t.Helper()
	p.crew.open(key, belay.WorkerSpec{Capacity: capacity, Queues: []string{"sent", "default"}})
	must[belay.Mailbox](p.t)(p.e.OpenMailbox(p.t.Context(), p.ids[key]))
	synctest.Wait()
}

// send submits executions to the queue "sent", and returns the ids of those that messages went out for,
// by worker.
func (p *post) send(n int, change ...func(*belay.Submission)) map[string][]engine.Assigned {
	p.t.Helper()
	for range n {
		s := belay.Submission{Queue: "sent"}
		for _, f := range change {
			f(&s)
		}
		p.submit(s)
	}
	return p.byWorker()
}

func (p *post) byWorker() map[string][]engine.Assigned {
	names := make(map[belay.WorkerID]string)
	for name, id := range p.ids {
		names[id] = name
	}
	out := make(map[string][]engine.Assigned)
	for _, a := range p.courier.take() {
		out[names[a.Worker]] = append(out[names[a.Worker]], a)
	}
	return out
}

func (p *post) accept(a engine.Assigned) belay.Assignment {
	p.t.Helper()
	p.accepts++
	r := must[belay.AcceptReply](p.t)(p.e.Accept(p.t.Context(), belay.AcceptRequest{
		Worker: a.Worker, Number: p.accepts, Offers: []belay.Held{{Execution: a.Execution, Token: a.Token}},
	}))
	if len(r.Assignments) != 1 {
		p.t.Fatalf("the offer %v is out of date", a)
	}
	return r.Assignments[0]
}

func (p *post) settle(a belay.Assignment, s belay.Settlement) {
	p.t.Helper()
	s.Lease = a.Lease
	if err := p.e.Settle(p.t.Context(), s); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
}

func (p *post) state(id belay.ExecutionID) belay.Execution {
	p.t.Helper()
	return must[belay.Execution](p.t)(p.e.Execution(p.t.Context(), id))
}

// Messages go to the workers with the most free slots, no worker gets more than it has slots, and the
// worker accepts under the token of the message. The rest is sent when runs end.
func TestTheSchedulerSpreadsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("small", 1)
		p.open("large", 3)
		got := p.send(6)
		if len(got["small"]) != 1 || len(got["large"]) != 3 {
			t.Fatalf("sent %v", got)
		}
		small := p.accept(got["small"][0])
		if x := p.state(small.Lease.Execution); x.State != belay.Running {
			t.Errorf("the accepted execution is %s", x.State)
		}
		for _, a := range got["large"] {
			if x := p.state(a.Execution); x.State != belay.Scheduled {
				t.Errorf("an execution is %s before its worker accepts it", x.State)
			}
		}
		p.settle(small, belay.Settlement{Outcome: belay.OutcomeSucceeded})
		if got = p.byWorker(); len(got["small"]) != 1 || len(got["large"]) != 0 {
			t.Errorf("sent %v after a run ended", got)
		}
	})
}

// Queues take turns, so that the backlog of one does not delay the others.
func TestTheSchedulerTakesQueuesInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.crew.open("w", belay.WorkerSpec{Capacity: 1, Queues: []string{"sent", "also"}})
		must[belay.Mailbox](t)(p.e.OpenMailbox(t.Context(), p.ids["w"]))
		synctest.Wait()
		sent := p.send(10)["w"]
		p.submit(belay.Submission{Queue: "also"})
		for range 3 {
			if len(sent) != 1 {
				t.Fatalf("sent %v", sent)
			}
			a := p.accept(sent[0])
			if p.state(a.Lease.Execution).Queue == "also" {
				return
			}
			p.settle(a, belay.Settlement{Outcome: belay.OutcomeSucceeded})
			sent = p.byWorker()["w"]
		}
		t.Error("the first three executions are from one queue, although another waits")
	})
}

// Little work goes to all workers and not to the first.
func TestTheSchedulerPrefersFreeWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 10)
		p.open("b", 10)
		for range 3 {
			if got := p.send(2); len(got["a"]) != 1 || len(got["b"]) != 1 {
				t.Errorf("sent %v", got)
			}
		}
	})
}

// An execution that failed goes to another worker, although that one is busier, and to the same worker if
// there is no other.
func TestTheSchedulerPrefersOtherWorkersAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 10)
		a := p.accept(p.send(1)["a"][0])
		p.open("b", 2)
		fail := belay.Settlement{Outcome: belay.OutcomeFailed, Failure: &belay.Failure{Class: belay.ClassTransient}}
		p.send(2) // one for each
		p.settle(a, fail)
		time.Sleep(2 * time.Second)
		got := p.byWorker()
		if len(got["b"]) != 1 || got["b"][0].Execution != a.Lease.Execution {
			t.Fatalf("sent %v after the failure at a", got)
		}
		if err := p.e.CloseWorker(t.Context(), p.ids["a"]); err != nil {
			t.Fatal(err)
		}
		b := p.accept(got["b"][0])
		p.settle(b, fail)
		time.Sleep(5 * time.Second)
		if got = p.byWorker(); len(got["b"]) == 0 {
			t.Errorf("sent %v after the failure at b, the only worker", got)
		}
	})
}

// An execution that its worker did not accept goes to another worker, although that one is busier.
func TestTheSchedulerPrefersOtherWorkersAfterAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, names := range [][2]string{{"a", "b"}, {"d", "c"}} {
			p := newPost(t)
			deaf, other := names[0], names[1]
			p.open(deaf, 10)
			a := p.send(1, func(s *belay.Submission) {
				s.Policy.ScheduledTimeout = belay.Duration(2 * time.Second)
			})[deaf][0]
			p.open(other, 2)
			if got := p.send(1); len(got[other]) != 1 { // so that the other worker uses a larger share of its slots
				t.Fatalf("sent %v", got)
			}
			time.Sleep(3 * time.Second)
			if got := p.byWorker(); len(got[other]) != 1 || got[other][0].Execution != a.Execution {
				t.Errorf("sent %v after %s did not accept", got, deaf)
			}
		}
	})
}

// A worker that messages reach does not claim from the queues that the courier carries, and claims from the
// others. A worker without a mailbox claims from all, and so does each worker while the broker is away.
func TestClaimsAndMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 4)
		p.claimBeside("a", 4)
		got := p.send(3)
		if len(got["a"]) != 3 || len(p.taken) != 0 {
			t.Fatalf("sent %v, and %d are claimed", got, len(p.taken))
		}
		p.submit(belay.Submission{Queue: "default"})
		synctest.Wait()
		if len(p.taken) != 1 {
			t.Errorf("%d are claimed from the other queue", len(p.taken))
		}
		p.crew.open("plain", belay.WorkerSpec{Capacity: 1, Queues: []string{"sent"}})
		p.claim("plain", 1)
		p.submit(belay.Submission{Queue: "sent"})
		if len(p.taken) != 2 {
			t.Errorf("%d are claimed, want 2 with that of the worker without a mailbox", len(p.taken))
		}
		p.settle(p.accept(got["a"][0]), belay.Settlement{Outcome: belay.OutcomeSucceeded})
		p.claimBeside("a", 1)
		p.courier.connect(false)
		if got := p.send(1); len(got) != 0 || len(p.taken) != 3 {
			t.Errorf("without a broker, sent %v, and %d are claimed", got, len(p.taken))
		}
	})
}

// An outage that begins after an execution has become due does not hold it: claims that wait are woken.
func TestAnOutageWakesClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 1)
		first := p.accept(p.send(1)["a"][0])
		p.claimBeside("a", 1)
		if got := p.send(1); len(got) != 0 {
			t.Fatalf("sent %v to a worker without a slot", got)
		}
		p.courier.connect(false)
		p.settle(first, belay.Settlement{Outcome: belay.OutcomeSucceeded})
		time.Sleep(2 * time.Second)
		if synctest.Wait(); len(p.taken) != 1 {
			t.Errorf("%d are claimed after the broker has gone", len(p.taken))
		}
	})
}

// While the broker does not answer, workers claim what is due, however many messages are on their way. When it
// answers again, executions go out by messages.
func TestABrokerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 500)
		p.courier.hang = make(chan struct{})
		p.claimBeside("a", 1)
		p.send(400) // more than may be on their way
		time.Sleep(3 * time.Second)
		p.submit(belay.Submission{Queue: "sent"})
		time.Sleep(time.Second)
		if synctest.Wait(); len(p.taken) != 1 {
			t.Errorf("%d are claimed while the broker hangs", len(p.taken))
		}
		close(p.courier.hang)
		if got := p.byWorker(); len(got["a"]) != 400 {
			t.Errorf("%d messages went out after the broker had hung", len(got["a"]))
		}
		p.claimBeside("a", 1)
		if got := p.send(1); len(got["a"]) != 1 {
			t.Errorf("sent %v when the broker works again", got)
		}
	})
}

// A closed mailbox takes back what is scheduled, and gets no messages; the end of the session removes the queue.
func TestMailboxesCloseAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 2)
		id := p.send(1)["a"][0].Execution
		if err := p.e.CloseMailbox(t.Context(), p.ids["a"]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := p.byWorker(); len(got) != 0 || p.state(id).State != belay.Pending {
			t.Errorf("sent %v to a closed mailbox; the execution is %s", got, p.state(id).State)
		}
		must[belay.Mailbox](t)(p.e.OpenMailbox(t.Context(), p.ids["a"]))
		if got := p.byWorker(); len(got["a"]) != 1 || len(p.courier.removed) != 0 {
			t.Errorf("sent %v after it was opened again, and %v were removed", got, p.courier.removed)
		}
		if err := p.e.CloseWorker(t.Context(), p.ids["a"]); err != nil {
			t.Fatal(err)
		}
		if want := "to " + p.ids["a"].String(); !slices.Equal(p.courier.removed, []string{want}) {
			t.Errorf("removed %q", p.courier.removed)
		}
		if _, err := p.e.OpenMailbox(t.Context(), p.ids["a"]); belay.CodeOf(err) != belay.CodeLeaseLost {
			t.Errorf("a mailbox for an ended session: %v", err)
		}
	})
}

// A heartbeat offers what is scheduled, so that lost messages cost a heartbeat's time and nothing else.
func TestHeartbeatsOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 2)
		lost := p.send(1)["a"][0]
		beat := func() []belay.Held {
			return must[belay.HeartbeatReply](t)(p.e.Heartbeat(t.Context(), belay.Heartbeat{Worker: p.ids["a"]})).Offers
		}
		if got := beat(); len(got) != 1 || got[0].Execution != lost.Execution || got[0].Token != lost.Token {
			t.Fatalf("offered %v, want %v", got, lost)
		}
		p.accept(lost)
		if got := beat(); len(got) != 0 {
			t.Errorf("offered %v after the accept", got)
		}
	})
}

// If a message fails, the execution is due again and the worker claims it. After a while the worker gets
// messages again.
func TestFailedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 3)
		p.courier.fail(errors.New("no connection"))
		p.claimBeside("a", 1)
		if got := p.send(1); len(got) != 0 || len(p.taken) != 1 {
			t.Fatalf("sent %v, and %d are claimed", got, len(p.taken))
		}
		p.courier.fail(nil)
		if got := p.send(1); len(got) != 0 {
			t.Errorf("sent %v right after a failure", got)
		}
		time.Sleep(3 * time.Second)
		if got := p.byWorker(); len(got["a"]) != 1 {
			t.Errorf("sent %v after the pause", got)
		}
	})
}

// An execution that is scheduled to a worker that drains, is cordoned or is lost goes to another worker under another
// token, and the message to the first worker is of no use.
func TestScheduledExecutionsComeBack(t *testing.T) {
	for name, end := range map[string]func(p *post) error{
		"drain":  func(p *post) error { return p.e.Drain(p.t.Context(), p.ids["a"]) },
		"cordon": func(p *post) error { return p.e.Cordon(p.t.Context(), belay.Cordon{Worker: p.ids["a"]}) },
		"close":  func(p *post) error { return p.e.CloseWorker(p.t.Context(), p.ids["a"]) },
		"death":  func(p *post) error { return p.e.Bury(p.t.Context(), p.ids["a"], "killed") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPost(t)
				p.open("a", 1)
				first := p.send(1)["a"][0]
				p.open("b", 1)
				if err := end(p); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				got := p.byWorker()["b"]
				if len(got) != 1 || got[0].Execution != first.Execution || got[0].Token <= first.Token {
					t.Fatalf("sent %v, and then %v", first, got)
				}
				r, err := p.e.Accept(t.Context(), belay.AcceptRequest{
					Worker: first.Worker, Number: 1,
					Offers: []belay.Held{{Execution: first.Execution, Token: first.Token}},
				})
				if err != nil && belay.CodeOf(err) != belay.CodeLeaseLost || len(r.Assignments) != 0 {
					t.Errorf("the first worker accepted %v: %v", r, err)
				}
				if x := p.state(first.Execution); x.State != belay.Scheduled {
					t.Errorf("the execution is %s", x.State)
				}
			})
		})
	}
}

// A dead letter of a message that expired schedules the execution again, or fails it, as its policy says. A
// forged or late letter changes nothing.
func TestDeadLettersOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 10)
		const wait = 240 * time.Second
		undeliver := func(a engine.Assigned) error {
			err := p.e.Undeliver(t.Context(), a.Execution, a.Worker, a.Token, wait)
			synctest.Wait()
			return err
		}
		again := p.send(1)["a"][0]
		fails := p.send(1, func(s *belay.Submission) { s.Policy.OnExpired = belay.FailExpired })["a"][0]
		if err := undeliver(fails); belay.CodeOf(err) != belay.CodeConflict {
			t.Errorf("a letter that comes at once: %v", err)
		}
		time.Sleep(wait)
		for _, a := range []engine.Assigned{again, fails} {
			if err := undeliver(a); err != nil {
				t.Fatal(err)
			}
			if err := undeliver(a); belay.CodeOf(err) != belay.CodeConflict {
				t.Errorf("a letter that comes again: %v", err)
			}
		}
		got := p.byWorker()["a"]
		if len(got) != 1 || got[0].Execution != again.Execution || got[0].Token <= again.Token {
			t.Errorf("sent %v after the letters", got)
		}
		x := p.state(fails.Execution)
		if x.State != belay.Failed || x.Error == nil || x.Error.FailedBy != belay.FailedByDeadLetterHandler ||
			x.Error.Message != "Message expired in worker queue (worker unavailable)" {
			t.Errorf("the execution is %s: %+v", x.State, x.Error)
		}
	})
}

// Gates hold executions that the scheduler would send, and let them through when there is room.
func TestTheSchedulerAsksTheGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPost(t)
		p.open("a", 10)
		got := p.send(3, func(s *belay.Submission) { s.Concurrency = &belay.Concurrency{Name: "one", Max: 1} })
		if len(got["a"]) != 1 {
			t.Fatalf("sent %v through a limit of one", got)
		}
		p.settle(p.accept(got["a"][0]), belay.Settlement{Outcome: belay.OutcomeSucceeded})
		time.Sleep(time.Second)
		if got = p.byWorker(); len(got["a"]) != 1 {
			t.Errorf("sent %v after the first ended", got)
		}
	})
}
