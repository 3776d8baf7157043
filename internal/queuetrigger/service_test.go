package queuetrigger_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/mqtest"
)

// Rule: each message starts one execution, over two servers, with the input and the headers that the webhook describes,
// and is acknowledged. A message with the id of an earlier one, or for which the filter is false, starts nothing.
func TestMessagesStartExecutions(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put(func(p *belay.WebhookPut) {
		p.Filter = `event.data.n >= 0 && event.headers["x-kind"] != "test"`
		p.Execution.Input = json.RawMessage(`{"order": "${{ event.data.n }}", "by": "${{ event.headers[\"x-kind\"] }}"}`)
	})
	const n = 150
	publish := func(id string, order int, kind string) {
		s.publish(amqp.Publishing{
			MessageId: id, Type: "order.paid", Body: fmt.Appendf(nil, `{"n": %d}`, order),
			Headers: amqp.Table{
				"X-Kind": kind, "secret-token": "hidden", "amqp-exchange": "forged", "list": []any{"x"},
			},
		})
	}
	for i := range n {
		publish(fmt.Sprint(i), i, "web")
	}
	first, a := s.serve(s.engine)
	second, b := s.serve(s.engine)
	s.consuming(first)
	s.consuming(second)
	for range 10 {
		publish("7", 7, "web")
	}
	publish("negative", -1, "web")
	publish("other", 1, "test")
	sum := func(outcome string) int { return a.of(outcome) + b.of(outcome) }
	s.await("all messages", func() bool {
		return sum("started")+sum("duplicate")+sum("filtered") == n+12
	})
	if sum("started") != n || sum("duplicate") != 10 || sum("filtered") != 2 {
		t.Errorf("the outcomes are %v and %v", a.n, b.n)
	}
	all := s.executions()
	if len(all) != n {
		t.Fatalf("%d executions of %d messages", len(all), n)
	}
	x, err := s.engine.Detail(t.Context(), all[0].ID)
	s.must(err)
	p := s.payloadOf(x.ID)
	if x.Trigger != belay.TriggerQueue || x.Labels["webhook"] != "h" ||
		string(x.Input) != fmt.Sprintf(`{"by":"web","order":%s}`, p.ID) || p.Type != "order.paid" {
		t.Errorf("%+v with the payload %+v", x, p)
	}
	if diff := cmp.Diff(map[string]string{"x-kind": "web", "amqp-routing-key": s.queue}, p.Headers); diff != "" {
		t.Error(diff)
	}
	s.await("the acknowledgements", func() bool {
		messages, _ := s.left(s.queue)
		return messages == 0
	})
	if letters, _ := s.left(s.dead); letters > 0 {
		t.Errorf("%d dead letters", letters)
	}
	if c, _ := first.Consumer("h"); c.Since.IsZero() || c.Text != "" {
		t.Errorf("the state is %+v", c)
	}
}

// Rule: a message of which no execution can be made goes to the dead-letter exchange of its queue, and does not disturb
// the others, whatever a user sends who may write to the queue. The connection survives all of them.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put(func(p *belay.WebhookPut) {
		p.MaxBytes = 100_000
		p.Execution.Labels = map[string]string{"ref": "${{ event.data?.ref }}"}
	})
	deep := amqp.Table{}
	for range 40 {
		deep = amqp.Table{"x": deep}
	}
	many := amqp.Table{}
	for i := range 2000 {
		many[fmt.Sprint("h", i)] = strings.Repeat("v", 30)
	}
	const right = `{"ref": "main"}`
	hostile := map[string]amqp.Publishing{
		"":           {Body: []byte(right)}, // without an id
		"text":       {Body: []byte("hello"), ContentType: "text/plain"},
		"empty":      {},
		"two":        {Body: []byte(`{} {}`)},
		"binary":     {Body: []byte("{\"ref\": \"\xff\"}"), ContentType: "application/json"},
		"gzip":       {Body: []byte("\x1f\x8b\x08"), ContentEncoding: "gzip"},
		"nul":        {Body: []byte(`{"ref": "a\u0000b"}`)},
		"nested":     {Body: []byte(strings.Repeat("[", 101) + strings.Repeat("]", 101))},
		"very deep":  {Body: []byte(strings.Repeat("[", 90_000))},
		"large":      {Body: []byte(`"` + strings.Repeat("x", 100_000) + `"`)},
		"huge":       {Body: []byte(`"` + strings.Repeat("x", 10<<20) + `"`)},
		"deep table": {Body: []byte(right), Headers: deep},
		"huge table": {Body: []byte(`"` + strings.Repeat("x", 10<<20) + `"`), Headers: deep},
		"a label":    {Body: []byte(`{"ref": ["list"]}`)},
		"an error":   {Body: []byte(`7`)},
	}
	var want []string
	for id, m := range hostile {
		m.MessageId = id
		want = append(want, id)
		s.publish(m)
	}
	odd := []string{strings.Repeat("i", 255), "a b", "\x00\xff", "ex_../../x", "webhook-delivery:h:1"}
	for i, id := range odd {
		s.publish(amqp.Publishing{
			MessageId: id, Body: []byte(right), Headers: many, Priority: 255,
			Type: "\x1b[31m" + strings.Repeat("t", 200), CorrelationId: "\r\n", ContentType: "application/json",
			Timestamp: time.Unix(1<<60, int64(i)),
		})
	}
	q, counts := s.serve(s.engine)
	got := s.letters(len(want))
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	s.await("the others", func() bool { return counts.of("started") == len(odd) })
	for _, x := range s.executions() {
		if p := s.payloadOf(x.ID); len(p.Type) > 100 || strings.ContainsAny(p.Type, "\x1b") || len(p.Headers) > 60 ||
			len(p.ID) > 150 || strings.ContainsAny(p.ID, " \x00") {
			t.Errorf("%+v", p)
		}
	}
	if state := q.State().Consume; state.Attempts != 1 || !state.Connected {
		t.Errorf("the state of the connection is %+v", state)
	}
	_, refused := q.Consumer("h")
	if len(refused) != 10 || refused[0].From != "queue "+s.queue || refused[0].At.IsZero() {
		t.Errorf("the refused messages are %+v", refused)
	}
	s.await("the end of the queue", func() bool {
		messages, _ := s.left(s.queue)
		return messages == 0
	})
}

// Rule: with without_id set to hash, the body names a message without an id. The state says if several webhooks that
// are not paused have one queue.
func TestMessagesWithoutID(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put(func(p *belay.WebhookPut) { p.AMQP.WithoutID = belay.HashWithoutID })
	s.put(func(p *belay.WebhookPut) { p.Name = "paused" })
	s.pause("paused")
	q, counts := s.serve(s.engine)
	for _, body := range []string{"1", "2", "1"} {
		s.send("", body)
	}
	s.await("the messages", func() bool { return counts.of("started") == 2 && counts.of("duplicate") == 1 })
	if c, _ := q.Consumer("h"); c.Text != "" || !c.Consuming {
		t.Errorf("the state is %+v", c)
	}
	s.put(func(p *belay.WebhookPut) { p.Name = "same" })
	s.text(q, "one webhook only", "same")
}

// gate is a Backend whose deliveries a test holds back.
type gate struct {
	belay.Backend
	before, after func(context.Context, belay.WebhookEvent) error
}

func (g *gate) Deliver(ctx context.Context, e belay.WebhookEvent) (belay.WebhookDelivery, error) {
	if g.before != nil {
		if err := g.before(ctx, e); err != nil {
			return belay.WebhookDelivery{}, err
		}
	}
	d, err := g.Backend.Deliver(ctx, e)
	if g.after != nil && err == nil {
		err = g.after(ctx, e)
	}
	return d, err
}

// Rule: a message whose execution is stored, and whose acknowledgement is lost with the connection, is delivered again
// and starts nothing more.
func TestTheConnectionEndsBeforeTheAcknowledgement(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put()
	proxy := listen(t, s.server.Address(), nil)
	s.options.URL = strings.Replace(s.options.URL, s.server.Address(), proxy.address, 1)
	var stored atomic.Int64
	g := &gate{Backend: s.engine, after: func(ctx context.Context, _ belay.WebhookEvent) error {
		if stored.Add(1) > 20 {
			return nil
		}
		<-ctx.Done() // the connection ends while the answer is on its way
		return ctx.Err()
	}}
	q, counts := s.serve(g)
	s.consuming(q)
	for i := range 20 {
		s.send(fmt.Sprint(i), "1")
	}
	s.await("the commits", func() bool { return stored.Load() == 20 })
	proxy.cut()
	s.await("the redeliveries", func() bool { return counts.of("duplicate") == 20 })
	if n := len(s.executions()); n != 20 || counts.of("started") != 0 {
		t.Errorf("%d executions of 20 messages, the outcomes are %v", n, counts.n)
	}
	s.await("the acknowledgements", func() bool {
		messages, consumers := s.left(s.queue)
		return messages == 0 && consumers == 1
	})
}

// Rule: while deliveries cannot be stored, messages stay with the server and are not delivered again and again. The
// state says why they wait.
func TestMessagesWaitForTheStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put()
	var calls atomic.Int64
	open := make(chan struct{})
	g := &gate{Backend: s.engine, before: func(context.Context, belay.WebhookEvent) error {
		calls.Add(1)
		select {
		case <-open:
			return nil
		default:
			return &belay.Error{Code: belay.CodeUnavailable, Message: "the disk is full"}
		}
	}}
	q, counts := s.serve(g)
	s.send("1", "1")
	s.text(q, "messages wait", "the disk is full")
	s.await("repetitions", func() bool { return calls.Load() >= 3 })
	if n := q.Counters().Received; n != 1 {
		t.Errorf("RabbitMQ has delivered the message %d times", n)
	}
	close(open)
	s.await("the delivery", func() bool { return counts.of("started") == 1 })
	if c, _ := q.Consumer("h"); c.Text != "" || !c.Consuming {
		t.Errorf("the state is %+v", c)
	}
	if n := calls.Load(); n > 30 {
		t.Errorf("%d calls", n)
	}
}

// Rule: a server follows its webhooks: a queue that is missing until an operator creates it, a pause, other terms, and
// a removal. It never creates or deletes the queue.
func TestChangesAreFollowed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	later := s.server.Name("belay-later")
	s.put(func(p *belay.WebhookPut) { p.AMQP.Queue = later })
	q, counts := s.serve(s.engine)
	s.text(q, "has no queue", later, "create it")
	s.declare(later, nil)
	s.put(func(p *belay.WebhookPut) { p.Filter = "event.id == '1'" })
	s.consuming(q)
	s.send("0", "1")
	s.send("1", "1")
	s.await("the messages", func() bool { return counts.of("filtered") == 1 && counts.of("started") == 1 })
	s.change(belay.WebhookPauseAction)
	gone := func() bool {
		_, consumers := s.left(s.queue)
		return consumers == 0
	}
	s.await("the end of the consumption", gone)
	s.text(q, "paused", "messages wait")
	s.send("2", "1")
	s.change(belay.WebhookResume)
	s.await("the message", func() bool { return counts.of("filtered") == 2 })
	s.change(belay.WebhookRemove)
	s.await("the end of the consumption", gone)
	s.send("3", "1")
	if messages, _ := s.left(s.queue); messages != 1 {
		t.Errorf("%d messages are left, want 1", messages)
	}
	if _, consumers := s.left(later); consumers != 0 {
		t.Error("the former queue is still consumed")
	}
}

// Rule: the state says which queues the user of the broker may not read, and that Belay's own queues are refused.
func TestForbiddenQueues(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if s.server.Outside() {
		t.Skip("the test makes a user")
	}
	s.options.URL = s.server.User(t, "/", mqtest.Permissions{Read: "^belay$"})
	s.put()
	s.put(func(p *belay.WebhookPut) { p.Name, p.AMQP.Queue = "own", s.options.Prefix+".dead.12345678" })
	q, _ := s.serve(s.engine)
	s.text(q, "may not consume the queue", "set_permissions", s.queue)
	s.await("the refusal", func() bool {
		c, _ := q.Consumer("own")
		return strings.Contains(c.Text, "belong to Belay")
	})
	if err := q.CheckQueue(s.options.Prefix + ".x"); belay.CodeOf(err) != belay.CodeInvalid {
		t.Errorf("an own queue: %v", err)
	}
}

// Rule: the guard works with TLS too, and an unknown certificate is refused.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.put()
	config, roots := certificate(t)
	proxy := listen(t, s.server.Address(), config)
	address := strings.Replace(s.options.URL, s.server.Address(), proxy.address, 1)
	s.options.URL = strings.Replace(address, "amqp://", "amqps://", 1)
	q, _ := s.serve(s.engine)
	s.text(q, "certificate")
	s.options.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	right, counts := s.serve(s.engine)
	s.consuming(right)
	deep := amqp.Table{}
	for range 40 {
		deep = amqp.Table{"x": deep}
	}
	s.publish(amqp.Publishing{MessageId: "deep", Body: []byte("1"), Headers: deep})
	s.send("1", "1")
	s.await("the message", func() bool { return counts.of("started") == 1 && counts.of("refused") == 1 })
}

// certificate makes a certificate for 127.0.0.1.
func certificate(t *testing.T) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(parsed)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12,
	}, roots
}

// proxy passes connections on to another address.
type proxy struct {
	address string
	mu      sync.Mutex
	open    []net.Conn
}

// listen starts a proxy, which speaks TLS with its callers if there is a configuration.
func listen(t *testing.T, to string, config *tls.Config) *proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: l.Addr().String()}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			there, err := new(net.Dialer).DialContext(context.Background(), "tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			p.mu.Lock()
			p.open = append(p.open, from, there)
			p.mu.Unlock()
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}
			all.Go(func() { pass(there, from) })
			all.Go(func() { pass(from, there) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		all.Wait()
	})
	return p
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.open {
		_ = c.Close()
	}
	p.open = nil
}
