package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// brokerEnv is the variable with the URL of RabbitMQ, for servers and workers.
const brokerEnv = "BELAY_BROKER_URL"

// beat is the interval of the heartbeats of workers with a broker, and messageTTL is how long a message waits.
const (
	beat       = time.Second
	messageTTL = 4 * time.Second
)

// Rule: whatever happens to RabbitMQ and its messages while servers and workers are killed, nothing is lost, every
// execution ends, and every promise is kept. Deleting everything in RabbitMQ changes latency only, by at most an
// interval between heartbeats.
func TestChaosOfMessages(t *testing.T) {
	length := max(*forFlag/6, 2*time.Second)
	if !short() {
		length = min(*forFlag/2, 10*time.Minute)
	}
	var mq *mqtest.Server
	if short() { // both worlds use one RabbitMQ
		mq = mqtest.Start(t, mqtest.Options{})
	}
	for _, store := range []string{onSQLite, onPostgres} {
		if *storeFlag == "" || *storeFlag == store {
			t.Run(store, func(t *testing.T) {
				if short() {
					t.Parallel()
				}
				runMessages(t, store, length, mq)
			})
		}
	}
}

// runMessages runs a world whose executions reach the workers through RabbitMQ, and checks its history.
func runMessages(t *testing.T, store string, length time.Duration, mq *mqtest.Server) {
	t.Helper()
	took := stages{began: time.Now()}
	defer func() { t.Logf("%s took %s", store, took.text()) }()
	w := emptyWorld(t, store, *seedFlag)
	took.end("build")
	if mq == nil {
		mq = mqtest.Start(t, mqtest.Options{})
	}
	m := &vandalOfMessages{world: w, mq: mq, r: dice(w.seed, "messages")}
	m.vhost = m.mq.VHost(t)
	w.more = []string{brokerEnv + "=" + m.mq.URL(m.vhost)}
	w.startWithMessages()
	r := &record{Store: store, Servers: len(w.servers), Seed: w.seed, For: length, MessageTTL: messageTTL}
	ctx := t.Context()
	c := w.newCrowd()
	harmed, calm := context.WithCancel(ctx)
	healed, over := context.WithCancel(ctx)
	w.await("the workers have mailboxes", func() bool { return len(m.mailboxes(ctx)) == workers })
	took.end("start")
	r.Began = time.Now()
	var beside, looking sync.WaitGroup
	looking.Go(func() { w.watchClock(healed) })
	beside.Go(func() { c.load(harmed, healed, 60) })
	beside.Go(func() { w.watchOver(harmed) })
	beside.Go(func() { w.carryOut(ctx, planOfMessages(w.seed, store, length), c) })
	m.vandalize(harmed, length)
	_ = pause(ctx, time.Until(r.Began.Add(length)))
	calm()
	beside.Wait()
	w.heal()
	took.end("faults")
	r.Healed = time.Now()
	r.Open = w.settle(ctx)
	r.Settled = time.Now()
	took.end("settling")
	sent := m.sent(ctx)
	time.AfterFunc(settling/4, over)
	c.lives.Wait()
	over()
	looking.Wait()
	took.end("clients")
	w.stopWorkers()
	took.end("workers")
	if err := w.readTales(ctx, r); err != nil {
		t.Fatal(err)
	}
	var err error
	r.Read = time.Now()
	if r.Sessions, err = w.servers[0].client.Workers(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.readTold(r); err != nil {
		t.Fatal(err)
	}
	took.end("reading")
	w.end()
	took.end("end")
	m.judge(r, sent)
}

// startWithMessages starts the processes of a world with RabbitMQ.
func (w *world) startWithMessages() {
	w.t.Helper()
	n := 1
	if w.store == onPostgres {
		n = servers
		w.database = pgtest.Start(w.t, pgtest.Options{})
		w.url = w.database.Database(w.t)
	}
	for i := range n {
		s := w.newServer(i)
		s.args = []string{"--broker-queues", "default", "--broker-worker-queue-ttl", messageTTL.String()}
		w.servers = append(w.servers, s)
		if err := s.start(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
	for i := range workers {
		w.workers = append(w.workers, w.newSlot(i))
	}
}

func (w *world) await(what string, done func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); _ = pause(w.t.Context(), 20*time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain until %s", what)
		}
	}
}

func (w *world) stopWorkers() {
	var all sync.WaitGroup
	for _, s := range w.workers {
		all.Go(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended = true
			s.stop(30 * time.Second)
		})
	}
	all.Wait()
}

// planOfMessages is the plan of the faults of servers and workers beside those of RabbitMQ.
func planOfMessages(seed uint64, store string, length time.Duration) plan {
	d := &draft{r: dice(seed, "plan of messages"), length: length}
	n := all[:servers]
	if store == onSQLite {
		n = all[:1]
	}
	d.each(10*time.Second, d.turn("server", n), d.one("kill"), 100*time.Millisecond, time.Second)
	d.each(4*time.Second, d.turn("worker", all), d.one("kill"), 50*time.Millisecond, time.Second)
	d.each(10*time.Second, d.turn("worker", far), d.one("stop"), farTTL-time.Second, 2*farTTL)
	d.each(8*time.Second, d.turn("worker", all), d.one("end"), 50*time.Millisecond, time.Second)
	d.each(8*time.Second, d.turn("way", far), d.one("cut", "hold", "hold replies", "slow"), 300*time.Millisecond,
		2*time.Second)
	slices.SortStableFunc(d.plan, func(a, b fault) int { return int(a.At - b.At) })
	return d.plan
}

// vandalOfMessages harms RabbitMQ and its messages.
type vandalOfMessages struct {
	*world
	mq    *mqtest.Server
	vhost string
	r     *rand.Rand
	old   []message // messages of some time ago
	calm  bool      // a run came by a message far from all faults
}

// message is a message of Belay, as a forger would write it.
type message struct {
	Execution belay.ExecutionID `json:"execution"`
	Token     belay.Token       `json:"token"`
	Worker    belay.WorkerID    `json:"worker"`
	queue     string
}

// mailboxes returns the queues of the workers.
func (m *vandalOfMessages) mailboxes(ctx context.Context) map[belay.WorkerID]string {
	out := make(map[belay.WorkerID]string)
	all, err := m.servers[0].hasty.Workers(ctx)
	if err != nil {
		return nil
	}
	for _, w := range all {
		if w.Mailbox != "" && !w.State.Ended() {
			out[w.ID] = w.Mailbox
		}
	}
	return out
}

// vandalize carries out faults of messages all the time, and those of RabbitMQ itself in turn, until ctx ends.
func (m *vandalOfMessages) vandalize(ctx context.Context, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	small := []func(*amqp.Connection, map[belay.WorkerID]string){m.purge, m.remove, m.repeat, m.hold, m.repeat}
	large := []func(context.Context){m.freeze, m.closeConnections}
	if !short() { // a start of RabbitMQ takes five seconds and more
		large = append(large, m.kill, m.restart)
	}
	every, k := min(length/3, 4*time.Second), 0
	next := time.Now().Add(every)
	for n := 0; pause(ctx, between(m.r, 20*time.Millisecond, 150*time.Millisecond)) == nil; n++ {
		if time.Now().After(next) {
			large[k%len(large)](ctx)
			k++
			next = time.Now().Add(every)
			continue
		}
		m.through(func(c *amqp.Connection) { small[n%len(small)](c, m.mailboxes(ctx)) })
	}
	for ; k < len(large); k++ { // RabbitMQ was so slow that there was no time for all of them
		large[k](m.t.Context())
	}
}

// through opens a connection to RabbitMQ for some calls, whose errors do not matter.
func (m *vandalOfMessages) through(f func(*amqp.Connection)) {
	conn, err := amqp.DialConfig(m.mq.URL(m.vhost), amqp.Config{Dial: amqp.DefaultDial(2 * time.Second)})
	if err == nil {
		f(conn)
		_ = conn.CloseDeadline(time.Now().Add(time.Second))
	}
}

// on makes one call on a channel of its own, because an error ends the channel, and counts a fault if it succeeds.
func (m *vandalOfMessages) on(conn *amqp.Connection, kind string, call func(*amqp.Channel) error) {
	c, err := conn.Channel()
	if err != nil {
		return
	}
	if call(c) == nil {
		m.fault(kind)
	}
	_ = c.Close()
}

// purge deletes all messages.
func (m *vandalOfMessages) purge(conn *amqp.Connection, all map[belay.WorkerID]string) {
	for _, queue := range all {
		m.on(conn, "queue purged", func(c *amqp.Channel) error {
			_, err := c.QueuePurge(queue, false)
			return err
		})
	}
}

// remove deletes all queues of workers.
func (m *vandalOfMessages) remove(conn *amqp.Connection, all map[belay.WorkerID]string) {
	for _, queue := range all {
		m.on(conn, "queue deleted", func(c *amqp.Channel) error {
			_, err := c.QueueDelete(queue, false, false, false)
			return err
		})
	}
}

// repeat sends messages of executions that are scheduled or run, messages of some time ago in another order, and
// messages to the wrong worker and with the wrong token.
func (m *vandalOfMessages) repeat(conn *amqp.Connection, all map[belay.WorkerID]string) {
	page, err := m.servers[0].hasty.Executions(m.t.Context(), belay.Filter{
		States: []belay.State{belay.Scheduled, belay.Running}, Children: true, Limit: 30,
	})
	if err != nil {
		return
	}
	m.r.Shuffle(len(m.old), func(i, k int) { m.old[i], m.old[k] = m.old[k], m.old[i] })
	now := m.old[:min(len(m.old), 30)]
	for i := range page.Executions {
		x := &page.Executions[i]
		is := message{x.ID, x.Token, x.Worker, all[x.Worker]}
		m.old = append(m.old, is)
		now = append(now, is)
		for w, queue := range all { // one other worker
			now = append(now, message{x.ID, x.Token, w, queue}, message{x.ID, x.Token + 1, w, queue})
			break
		}
	}
	m.old = m.old[max(0, len(m.old)-300):]
	for _, x := range now {
		body, err := json.Marshal(x)
		if err == nil && x.queue != "" {
			m.on(conn, "message repeated or forged", func(c *amqp.Channel) error { return m.send(c, x.queue, body) })
		}
	}
}

func (m *vandalOfMessages) send(c *amqp.Channel, queue string, body []byte) error {
	return c.PublishWithContext(m.t.Context(), "", queue, false, false, amqp.Publishing{
		ContentType: "application/json", DeliveryMode: amqp.Persistent, Type: "belay.scheduled", Body: body,
	})
}

// hold takes messages out of the queues of workers for a while, and puts them back in another order.
func (m *vandalOfMessages) hold(conn *amqp.Connection, all map[belay.WorkerID]string) {
	taken := make(map[string][]amqp.Delivery)
	for until := time.Now().Add(between(m.r, 200*time.Millisecond, 600*time.Millisecond)); time.Now().Before(until); {
		for _, queue := range all {
			c, err := conn.Channel()
			if err != nil {
				return
			}
			if d, is, err := c.Get(queue, true); err == nil && is {
				taken[queue] = append(taken[queue], d)
			}
			_ = c.Close()
		}
	}
	for queue, some := range taken {
		slices.Reverse(some)
		for i := range some {
			m.on(conn, "message delayed", func(c *amqp.Channel) error { return m.send(c, queue, some[i].Body) })
		}
	}
}

func (m *vandalOfMessages) freeze(ctx context.Context) {
	thaw, err := m.mq.Freeze()
	if err != nil {
		m.t.Error(err)
		return
	}
	_ = pause(ctx, between(m.r, 1500*time.Millisecond, 3*time.Second))
	if err := thaw(); err != nil {
		m.t.Error(err)
	}
	m.fault("RabbitMQ stopped and continued")
}

func (m *vandalOfMessages) closeConnections(context.Context) {
	m.mq.CloseConnections(m.t, m.vhost)
	m.fault("connections closed")
}

func (m *vandalOfMessages) kill(ctx context.Context) { m.down(ctx, m.mq.Kill, "RabbitMQ killed") }

func (m *vandalOfMessages) restart(ctx context.Context) { m.down(ctx, m.mq.Stop, "RabbitMQ restarted") }

func (m *vandalOfMessages) down(ctx context.Context, end func() error, kind string) {
	if err := end(); err != nil {
		m.t.Error(err)
	}
	m.fault(kind)
	_ = pause(ctx, between(m.r, 0, time.Second))
	if err := m.mq.Resume(); err != nil {
		m.t.Error(err)
	}
}

// sent returns the number of messages that the servers have sent since their last start.
func (m *vandalOfMessages) sent(ctx context.Context) float64 {
	n := 0.0
	for _, s := range m.servers {
		n += s.metric(ctx, `belay_broker_messages_total{event="confirmed"}`)
	}
	return n
}

// judge checks the history, and the checkers with planted bugs.
func (m *vandalOfMessages) judge(r *record, sent float64) {
	m.t.Helper()
	b := newBook(r)
	var by []check
	for _, p := range []string{"G1", "G2", "G3", "G4", "G5", "G7", "G8", "G9", "G11", "G15"} {
		c := checkOf(p)
		if p == "G3" {
			c.own = nil // needs transactions of clients on the database
		}
		by = append(by, c)
	}
	by = append(by, messagesCheck)
	for _, f := range b.inspect(by...) {
		for _, v := range f.Violated[:min(len(f.Violated), 8)] {
			m.t.Error(v)
		}
		fmt.Fprintf(os.Stdout, "%-9s %d looked at, broken %d times\n", f.Promise, f.Looked, len(f.Violated))
	}
	m.report(b, sent)
	m.plantMessages(r)
	kinds := []string{"RabbitMQ stopped and continued", "connections closed", "RabbitMQ killed", "RabbitMQ restarted"}
	if short() {
		kinds = kinds[:2]
	}
	for _, kind := range append(kinds,
		"queue purged", "queue deleted", "message repeated or forged", "worker killed", "server killed",
	) {
		if r.Faults[kind] == 0 {
			m.t.Errorf("never happened: %s", kind)
		}
	}
	if err := r.save(m.path("history.json.gz")); err != nil {
		m.t.Error(err)
	}
}
