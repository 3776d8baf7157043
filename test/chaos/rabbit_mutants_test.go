package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/dispatch"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/belaydev/belay/internal/uid"
	"github.com/belaydev/belay/worker"
)

// bug is a bug of dispatch through RabbitMQ, which is planted at a seam between two parts of the code.
type bug string

// The bugs.
const (
	noBug         bug = ""
	acceptsAny    bug = "the accept ignores the token"
	believes      bug = "a dead letter is believed"
	offersNothing bug = "heartbeats do not offer what is scheduled"
	keeps         bug = "the end of a session does not take back what is scheduled"
)

// Rule: the checkers find bugs of the code between the store, the engine, RabbitMQ and workers, and find nothing
// without a bug. Real processes cannot have such bugs, so everything except RabbitMQ runs in this process.
func TestBugsOfMessagesAreCaught(t *testing.T) {
	mq := mqtest.Start(t, mqtest.Options{})
	for b, meant := range map[bug]string{
		noBug: "", acceptsAny: "G1", believes: "G14", offersNothing: "G14", keeps: "G5",
	} {
		t.Run(cmp.Or(string(b), "no bug"), func(t *testing.T) {
			t.Parallel()
			x := newTrial(t, mq, b)
			r := x.run()
			got := make(map[string][]string)
			for _, f := range newBook(r).inspect(checkOf("G1"), checkOf("G2"), checkOf("G5"), messagesCheck) {
				got[f.Promise] = f.Violated
			}
			if b != noBug {
				if len(got[meant]) == 0 {
					t.Errorf("the checker of %s did not find the bug", meant)
				} else {
					t.Logf("%s: %s", meant, got[meant][0])
				}
				return
			}
			for _, all := range got {
				for _, v := range all[:min(len(all), 5)] {
					t.Error(v)
				}
			}
		})
	}
}

// trial is a server with its workers in this process, on a real RabbitMQ that loses, repeats and forges messages.
type trial struct {
	t *testing.T
	bug
	mq     *mqtest.Server
	vhost  string
	dead   string // the queue of dead letters
	post   *dispatch.Post
	engine *engine.Engine
	*history

	mu   sync.Mutex
	r    *rand.Rand
	sent []posted
}

// posted is a message that was sent.
type posted struct {
	queue string
	engine.Assigned
}

func newTrial(t *testing.T, mq *mqtest.Server, b bug) *trial {
	t.Helper()
	x := &trial{t: t, bug: b, mq: mq, vhost: mq.VHost(t), history: newHistory(), r: dice(*seedFlag, string(b))}
	var err error
	if x.post, err = dispatch.New(broker.Options{
		URL: mq.URL(x.vhost), TTL: messageTTL, Random: uid.New, Log: quiet,
	}, []string{"default"}); err != nil {
		t.Fatal(err)
	}
	x.engine = engine.New(&forgetful{Store: memory.New(time.Now), trial: x, ended: make(map[belay.WorkerID]bool)},
		engine.Options{Courier: &careless{x.post, x}, Log: quiet, SlowPoll: 200 * time.Millisecond})
	t.Cleanup(func() {
		if err := x.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	x.begin(func(ctx context.Context) error { return x.post.Run(ctx, &credulous{x}) })
	x.await("the connections", func() bool { return x.post.State().Ready() == nil })
	x.await("the queue of dead letters", func() bool {
		for _, name := range mq.Names(t, x.vhost) {
			if strings.HasPrefix(name, "belay.dead.") {
				x.dead = name
			}
		}
		return x.dead != ""
	})
	return x
}

func (x *trial) begin(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	x.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			x.t.Error(err)
		}
	})
}

func (x *trial) await(what string, done func() bool) {
	x.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); _ = pause(x.t.Context(), 10*time.Millisecond) {
		if time.Now().After(deadline) {
			x.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// careless is a courier that loses some messages, which it reports as sent.
type careless struct {
	*dispatch.Post
	x *trial
}

// Send implements engine.Courier.
func (c *careless) Send(ctx context.Context, queue string, a engine.Assigned) error {
	c.x.mu.Lock()
	c.x.sent = append(c.x.sent, posted{queue, a})
	lost := chance(c.x.r, 4)
	c.x.mu.Unlock()
	if lost {
		return nil
	}
	return c.Post.Send(ctx, queue, a)
}

// credulous handles dead letters. With the bug it checks neither the token nor the time.
type credulous struct{ x *trial }

// Undeliver implements dispatch.Engine.
func (c *credulous) Undeliver(
	ctx context.Context, id belay.ExecutionID, w belay.WorkerID, t belay.Token, waited time.Duration,
) error {
	if c.x.bug == believes {
		if e, err := c.x.engine.Execution(ctx, id); err == nil {
			w, t, waited = e.Worker, e.Token, min(waited, time.Microsecond)
		}
	}
	return c.x.engine.Undeliver(ctx, id, w, t, waited)
}

// seam is between the workers and the engine.
type seam struct {
	*engine.Engine
	x *trial
}

// Accept implements belay.Owner.
func (b *seam) Accept(ctx context.Context, q belay.AcceptRequest) (belay.AcceptReply, error) {
	if b.x.bug == acceptsAny {
		q.Offers = slices.Clone(q.Offers)
		for i := range q.Offers {
			if e, err := b.Engine.Execution(ctx, q.Offers[i].Execution); err == nil && e.Worker == q.Worker {
				q.Offers[i].Token = e.Token
			}
		}
	}
	return b.Engine.Accept(ctx, q)
}

// Heartbeat implements belay.Owner.
func (b *seam) Heartbeat(ctx context.Context, q belay.Heartbeat) (belay.HeartbeatReply, error) {
	r, err := b.Engine.Heartbeat(ctx, q)
	if b.x.bug == offersNothing {
		r.Offers = nil
	}
	return r, err
}

// forgetful is a store. With the bug it does not write that an execution, which was scheduled to a session that has
// ended, is due again.
type forgetful struct {
	*memory.Store
	*trial
	ended map[belay.WorkerID]bool
}

// Commit implements store.Store.
func (s *forgetful) Commit(
	ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes,
) error {
	if s.bug != keeps {
		return s.Store.Commit(ctx, need, decide)
	}
	return s.Store.Commit(ctx, need, func(rows *machine.Rows) *machine.Changes {
		was := make(map[belay.ExecutionID]belay.WorkerID)
		for _, e := range rows.Executions {
			if e.State == belay.Scheduled {
				was[e.ID] = e.Worker
			}
		}
		out := decide(rows)
		if out == nil {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, w := range out.Workers {
			s.ended[w.ID] = s.ended[w.ID] || w.State.Ended()
		}
		gone := make(map[belay.ExecutionID]bool)
		for _, e := range out.Executions {
			gone[e.ID] = s.ended[was[e.ID]] && e.State == belay.Pending
		}
		out.Executions = slices.DeleteFunc(out.Executions, func(e *machine.Execution) bool { return gone[e.ID] })
		out.Runs = slices.DeleteFunc(out.Runs, func(r *machine.Run) bool { return gone[r.Execution] })
		out.Deeds = slices.DeleteFunc(out.Deeds, func(d *machine.Deed) bool { return gone[d.Execution] })
		return out
	})
}

// hire starts a worker.
func (x *trial) hire(name string) {
	w := worker.New(&recorder{&seam{x.engine, x}, name, x.history}, worker.Options{
		Name: name, Broker: x.mq.URL(x.vhost), Concurrency: 8, TTL: farTTL, Heartbeat: farBeat, Log: quiet,
	})
	worker.Register(w, "play", player{name, x.history, ""}.play)
	x.begin(w.Run)
}

// deaf opens a session that gets messages, accepts nothing, and expires. Its claim waits for executions of queues
// without messages.
func (x *trial) deaf() {
	s, err := x.engine.OpenWorker(x.t.Context(), belay.WorkerSpec{
		Name: "deaf", Queues: []string{"default"}, Workflows: []belay.Registration{{Workflow: "play"}}, Capacity: 8,
		TTL: belay.Duration(1500 * time.Millisecond), Heartbeat: belay.Duration(400 * time.Millisecond),
		Process: belay.Process{Host: "elsewhere.test"},
	})
	if err == nil {
		_, err = x.engine.OpenMailbox(x.t.Context(), s.ID)
	}
	if err != nil {
		x.t.Error(err)
		return
	}
	x.begin(func(ctx context.Context) error {
		for number := int64(1); ctx.Err() == nil && err == nil; number++ {
			_, err = x.engine.Claim(ctx, belay.ClaimRequest{
				Worker: s.ID, Number: number, Slots: 8, Wait: time.Minute, Messages: true,
			})
		}
		return nil
	})
}

// run runs the trial and returns its history.
func (x *trial) run() *record {
	x.t.Helper()
	ctx := x.t.Context()
	for _, name := range []string{"worker0.1", "worker2.1", "worker4.1"} {
		x.hire(name)
	}
	x.await("mailboxes", func() bool {
		all, err := x.engine.Workers(ctx)
		n := 0
		for _, w := range all {
			if w.Mailbox != "" {
				n++
			}
		}
		return err == nil && n == 3
	})
	r := &record{Store: onSQLite, Servers: 1, Began: time.Now(), MessageTTL: messageTTL}
	for n := range 100 {
		if n%40 == 10 {
			x.deaf()
		}
		script, err := json.Marshal([]op{{Do: "step", Ms: 20 + n%100}})
		if err != nil {
			x.t.Fatal(err)
		}
		s := belay.Submission{ID: newExecutionID(), Workflow: "play", Input: script}
		if _, err := (&recorder{x.engine, "submitter", x.history}).Submit(ctx, s); err != nil {
			x.t.Fatal(err)
		}
		if n%5 == 0 {
			x.forge(ctx)
		}
		_ = pause(ctx, 30*time.Millisecond)
	}
	r.Healed = time.Now()
	for deadline := time.Now().Add(2 * acceptedBy); ; _ = pause(ctx, 50*time.Millisecond) {
		x.forge(ctx)
		page, err := x.engine.Executions(ctx, belay.Filter{States: unfinished, Limit: 1000})
		if err != nil {
			x.t.Fatal(err)
		}
		if len(page.Executions) == 0 || time.Now().After(deadline) {
			break
		}
	}
	r.Settled = time.Now()
	x.read(r)
	return r
}

// forge sends earlier messages again, messages with wrong tokens, and dead letters of messages that have not expired.
func (x *trial) forge(ctx context.Context) {
	x.mu.Lock()
	some := slices.Clone(x.sent[max(0, len(x.sent)-20):])
	x.r.Shuffle(len(some), func(i, k int) { some[i], some[k] = some[k], some[i] })
	x.mu.Unlock()
	conn, err := amqp.Dial(x.mq.URL(x.vhost))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	c, err := conn.Channel()
	if err != nil {
		return
	}
	for i, m := range some {
		queue, token := m.queue, m.Token
		switch i % 3 {
		case 1:
			token += 3
		case 2:
			queue = x.dead
		}
		body := fmt.Appendf(nil, `{"execution":%q,"token":%d,"worker":%q}`, m.Execution, token, m.Worker)
		_ = c.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{
			ContentType: "application/json", DeliveryMode: amqp.Persistent, Type: "belay.scheduled", Body: body,
		})
	}
}

// read reads the history out of the engine.
func (x *trial) read(r *record) {
	x.t.Helper()
	ctx := x.t.Context()
	page, err := x.engine.Executions(ctx, belay.Filter{Children: true, Limit: 1000})
	if err != nil {
		x.t.Fatal(err)
	}
	for i := range page.Executions {
		e := &tale{Execution: page.Executions[i]}
		if e.Execution, err = x.engine.Execution(ctx, e.Execution.ID); err != nil {
			x.t.Fatal(err)
		}
		if e.Events, err = x.engine.Events(ctx, belay.EventQuery{Execution: e.Execution.ID, Data: true}); err != nil {
			x.t.Fatal(err)
		}
		r.Tales = append(r.Tales, e)
	}
	if r.Sessions, err = x.engine.Workers(ctx); err != nil {
		x.t.Fatal(err)
	}
	x.into(r)
}
