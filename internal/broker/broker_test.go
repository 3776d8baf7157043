package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/mqtest"
	"github.com/belaydev/belay/internal/uid"
	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// A confirmed message arrives at its worker with the same ids, and is acknowledged. A message that was
// published twice arrives twice.
func TestMessagesArrive(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	b := s.ready(ignore)
	m := newMessage()
	queue := declared(t, b, m)
	publish(t, b, queue, m)
	publish(t, b, queue, m)
	var got inbox[Message]
	r := s.receive(m.Worker, queue, got.put)
	if diff := cmp.Diff([]Message{m, m}, got.wait(t, 2)); diff != "" {
		t.Error(diff)
	}
	await(t, "the acknowledgements", func() bool { return r.Counters().Handled == 2 })
	if c := b.Counters(); c.Published != 2 || c.Confirmed != 2 || c.Unconfirmed+c.Refused+c.Returned != 0 {
		t.Errorf("the counters are %+v", c)
	}
	if n := s.depth(queue); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// The queues are quorum queues that dead-letter at least once, and their names have the hash of their
// arguments. Declaring is idempotent; other arguments make another queue.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	b := s.ready(ignore)
	m := newMessage()
	queue := declared(t, b, m)
	if again := declared(t, b, m); again != queue {
		t.Errorf("the queue is %s, and then %s", queue, again)
	}
	if want := s.options.Prefix + ".worker." + m.Worker.String() + "."; !strings.HasPrefix(queue, want) {
		t.Errorf("the queue is %s, want %s…", queue, want)
	}
	for _, name := range []string{queue, deadLetters(s.options.Prefix).name} {
		if q, ok := s.server.Queue(t, s.vhost, name); !ok || q.Type != "quorum" {
			t.Errorf("the queue %s is %+v", name, q)
		}
	}
	s.options.TTL = time.Minute
	other := s.ready(ignore)
	if changed := declared(t, other, m); changed == queue {
		t.Errorf("a queue with another TTL is %s too", changed)
	}
	if err := b.Delete(ctxOf(t), queue); err != nil {
		t.Error(err)
	}
	if err := b.Delete(ctxOf(t), queue); err != nil {
		t.Errorf("delete a queue that does not exist: %v", err)
	}
	if _, ok := s.server.Queue(t, s.vhost, queue); ok {
		t.Errorf("%s is still there", queue)
	}
	wants(t, b.Delete(ctxOf(t), "someone.elses"), belay.CodeInvalid, "someone.elses")
}

// A receiver that follows another queue drains the former one, and then leaves it.
func TestFormerQueuesAreDrained(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	old := s.ready(ignore)
	m := newMessage()
	former := declared(t, old, m)
	s.options.TTL = time.Minute
	b := s.ready(ignore)
	queue := declared(t, b, m)
	var got inbox[Message]
	hold := make(chan struct{})
	r := s.receive(m.Worker, former, func(ctx context.Context, m Message) error {
		if err := got.put(ctx, m); err != nil {
			return err
		}
		if m.Token == 1 {
			select {
			case <-hold:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	m.Token = 1
	publish(t, old, former, m)
	got.wait(t, 1)
	if err := r.Follow(queue); err != nil {
		t.Fatal(err)
	}
	m.Token = 2
	publish(t, b, queue, m)
	got.wait(t, 2)
	m.Token = 3
	publish(t, old, former, m) // from a server that has not changed yet
	got.wait(t, 3)
	if queues, _ := r.following(); !slices.Equal(queues, []string{former, queue}) {
		t.Errorf("the receiver follows %v while a message of the former queue is handled", queues)
	}
	close(hold)
	await(t, "the end of the former queue", func() bool {
		queues, _ := r.following()
		return slices.Equal(queues, []string{queue})
	})
	if c := r.Counters(); c.Handled != 3 || c.GivenBack != 0 {
		t.Errorf("the counters are %+v", c)
	}
	wants(t, r.Follow("belay.worker.x"), belay.CodeInvalid)
}

// A message that no worker takes comes back through the dead-letter queue, and the letter says so.
func TestExpiredMessagesComeBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	s.options.TTL = time.Second
	var dead inbox[Dead]
	b := s.ready(dead.put)
	m := newMessage()
	queue := declared(t, b, m)
	publish(t, b, queue, m)
	if diff := cmp.Diff([]Dead{{m, CauseExpired, queue}}, dead.wait(t, 1)); diff != "" {
		t.Error(diff)
	}
	if n := s.depth(queue); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// A message that its worker gives back too often comes back too.
func TestFailedDeliveriesComeBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	var dead inbox[Dead]
	b := s.ready(dead.put)
	m := newMessage()
	queue := declared(t, b, m)
	publish(t, b, queue, m)
	s.raw(func(ch *amqp.Channel) error {
		for range maxDeliveries + 1 {
			var d amqp.Delivery
			var err error
			for ok := false; !ok && err == nil; {
				d, ok, err = ch.Get(queue, false)
			}
			if err == nil {
				err = d.Nack(false, true)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if diff := cmp.Diff([]Dead{{m, "delivery_limit", queue}}, dead.wait(t, 1)); diff != "" {
		t.Error(diff)
	}
}

// A dead letter whose handling fails is handled again, and is acknowledged only then.
func TestDeadLettersAreKeptUntilHandled(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	s.options.TTL = time.Second
	var dead inbox[Dead]
	b := s.ready(func(ctx context.Context, d Dead) error {
		if err := dead.put(ctx, d); err != nil {
			return err
		}
		if len(dead.list()) == 1 {
			return errors.New("the store is down")
		}
		return nil
	})
	m := newMessage()
	publish(t, b, declared(t, b, m), m)
	all := dead.wait(t, 2)
	if all[0] != all[1] {
		t.Errorf("the letters are %v", all)
	}
	await(t, "the acknowledgement", func() bool { return b.Counters().Handled == 1 })
	if n, err := b.Depth(ctxOf(t)); n != 0 || err != nil {
		t.Errorf("the depth is %d: %v", n, err)
	}
}

// Dead letters in the queue of an earlier version are handled too.
func TestFormerDeadLettersAreHandled(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	former := declare(s.options.Prefix+".dead", amqp.Table{"x-queue-type": "quorum"})
	s.options.dead = []declaration{former}
	m := newMessage()
	p, err := m.publishing(1)
	if err != nil {
		t.Fatal(err)
	}
	s.raw(func(ch *amqp.Channel) error {
		return errors.Join(former.onDead(ch), ch.PublishWithContext(t.Context(), former.name, "", false, false, p))
	})
	var dead inbox[Dead]
	s.ready(dead.put)
	if diff := cmp.Diff([]Dead{{m, CauseUnknown, ""}}, dead.wait(t, 1)); diff != "" {
		t.Error(diff)
	}
}

// A queue that does not exist is an error, and so is a worker's queue that was deleted. It can be
// declared again. Its receiver goes on by itself.
func TestDeletedQueues(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	b := s.ready(ignore)
	m := newMessage()
	queue := declared(t, b, m)
	var got inbox[Message]
	r := s.receive(m.Worker, queue, got.put)
	await(t, "the consumption", func() bool { return r.State().Consume.Connected })
	s.raw(func(ch *amqp.Channel) error { return remove(ch, queue) })
	await(t, "the cancellation", func() bool { return !r.State().Consume.Connected })
	wants(t, b.Publish(ctxOf(t), queue, m), belay.CodeNotFound, queue)
	await(t, "the advice", func() bool { return isMissing(r.State().Consume.Err) })
	declared(t, b, m)
	publish(t, b, queue, m)
	got.wait(t, 1)
	// The queue has got a message of the connection now, so the broker must renew the connection.
	s.server.Delete(t, s.vhost, queue)
	wants(t, b.Publish(ctxOf(t), queue, m), belay.CodeNotFound, queue)
	await(t, "the second cancellation", func() bool { return isMissing(r.State().Consume.Err) })
	declared(t, b, m)
	await(t, "the renewed connection", func() bool { return b.Publish(ctxOf(t), queue, m) == nil })
	got.wait(t, 2)
	if c := b.Counters(); c.Returned != 2 || c.Confirmed != 2 {
		t.Errorf("the counters are %+v", c)
	}
}

// The dead-letter queue and exchange are declared again after they were deleted, and letters arrive
// as before. (RabbitMQ keeps letters that it cannot route, and tries again after three minutes.)
func TestDeletedDeadLetterQueue(t *testing.T) {
	t.Parallel()
	if !mqtest.Long() {
		t.Skip("a letter that finds no exchange comes minutes later, so this test fails on a busy machine")
	}
	s := newSite(t, mqtest.Shared(t))
	s.options.TTL, s.options.repair = time.Second, 100*time.Millisecond
	var dead inbox[Dead]
	b := s.ready(dead.put)
	name := deadLetters(s.options.Prefix).name
	s.raw(func(ch *amqp.Channel) error { return remove(ch, name) })
	s.raw(func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, false, false) })
	await(t, "the declarations", func() bool {
		return s.try(func(ch *amqp.Channel) error {
			q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err == nil && q.Consumers == 0 {
				err = errors.New("no consumer")
			}
			if err != nil {
				return err
			}
			return ch.ExchangeDeclarePassive(name, amqp.ExchangeFanout, true, false, false, false, nil)
		}) == nil
	})
	m := newMessage()
	queue := declared(t, b, m)
	publish(t, b, queue, m)
	if diff := cmp.Diff([]Dead{{m, CauseExpired, queue}}, dead.wait(t, 1)); diff != "" {
		t.Error(diff)
	}
	await(t, "the connections", func() bool { return b.State().Ready() == nil })
}

// Purged messages are gone, and the queue works on.
func TestPurge(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	b := s.ready(ignore)
	m := newMessage()
	queue := declared(t, b, m)
	publish(t, b, queue, m)
	s.server.Purge(t, s.vhost, queue)
	m.Token++
	publish(t, b, queue, m)
	var got inbox[Message]
	s.receive(m.Worker, queue, got.put)
	if diff := cmp.Diff([]Message{m}, got.wait(t, 1)); diff != "" {
		t.Error(diff)
	}
}

// A full queue refuses messages.
func TestFullQueuesRefuse(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	b := s.ready(ignore)
	m := newMessage()
	queue := declared(t, b, m)
	s.raw(func(ch *amqp.Channel) error { // one message may exceed the limit of bytes
		large := amqp.Publishing{Body: make([]byte, maxBytes+1)}
		return ch.PublishWithContext(t.Context(), "", queue, false, false, large)
	})
	var err error
	await(t, "the refusal", func() bool {
		err = b.Publish(ctxOf(t), queue, m)
		return err != nil
	})
	wants(t, err, belay.CodeQueueFull, queue)
}

// Deliveries that are no messages of Belay, or not for this worker, are dropped and counted, and change
// nothing for the messages behind them.
func TestHostileMessagesAreDropped(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	var dead inbox[Dead]
	b := s.ready(dead.put)
	m := newMessage()
	queue := declared(t, b, m)
	other := newMessage()
	foreign, err := other.publishing(1)
	if err != nil {
		t.Fatal(err)
	}
	right, err := m.publishing(1)
	if err != nil {
		t.Fatal(err)
	}
	body := func(text string) amqp.Publishing { return amqp.Publishing{Type: messageType, Body: []byte(text)} }
	deep := nested(20)
	hostile := []struct {
		send amqp.Publishing
		want Reason
	}{
		{amqp.Publishing{Body: right.Body}, WrongType},
		{amqp.Publishing{Type: "belay.other", Body: right.Body}, WrongType},
		{amqp.Publishing{Type: messageType, Body: make([]byte, 3<<20)}, TooLarge},
		{body(""), Garbage},
		{body("\xff\xfe{"), Garbage},
		{body(strings.Repeat("[", 1000)), Garbage},
		{body(string(right.Body) + "{}"), Garbage},
		{body(`{"execution":"ex_x","token":1,"worker":"wk_y"}`), Garbage},
		{body(`{"execution":"` + m.Execution.String() + `","token":1e99,"worker":"` + m.Worker.String() + `"}`), Garbage},
		{body(`{}`), BadIDs},
		{body(`{"execution":"` + m.Execution.String() + `","token":-1,"worker":"` + m.Worker.String() + `"}`), BadIDs},
		{body(fmt.Sprintf(`{"execution":%q,"token":%d,"worker":%q}`, m.Execution, int64(maxToken), m.Worker)), BadIDs},
		{foreign, WrongQueue},
	}
	wantWorker, wantDead := map[Reason]int64{}, map[Reason]int64{}
	var all []amqp.Publishing
	for _, h := range hostile {
		h.send.Headers = amqp.Table{"x-death": "yesterday", "deep": deep}
		all = append(all, h.send)
		wantWorker[h.want]++
		if h.want != WrongQueue { // the dead-letter queue is for all workers
			wantDead[h.want]++
		}
	}
	s.put([]string{queue, deadLetters(s.options.Prefix).name}, all...)
	var got inbox[Message]
	r := s.receive(m.Worker, queue, got.put)
	await(t, "the drops", func() bool {
		return r.Counters().Received == int64(len(hostile)) && b.Counters().Received == int64(len(hostile))
	})
	await(t, "the right message", func() bool { // a full queue refuses while the large one is in it
		return b.Publish(ctxOf(t), queue, m) == nil
	})
	if diff := cmp.Diff([]Message{m}, got.wait(t, 1)); diff != "" {
		t.Error(diff)
	}
	await(t, "the counters", func() bool {
		return cmp.Equal(wantWorker, r.Counters().Dropped) && cmp.Equal(wantDead, b.Counters().Dropped)
	})
	if diff := cmp.Diff([]Dead{{other, CauseUnknown, ""}}, dead.wait(t, 1)); diff != "" {
		t.Error(diff)
	}
}

// nested returns tables within tables.
func nested(depth int) amqp.Table {
	t := amqp.Table{}
	for range depth {
		t = amqp.Table{"x-death": t}
	}
	return t
}

// A message that the library cannot read ends the connection each time it is delivered, but RabbitMQ gives it
// up after a few deliveries, and the messages behind it arrive. So it is in the queue of a worker and, at the same
// time, in the dead-letter queue.
func TestUnreadableHeaders(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	s.options.most = 50 * time.Millisecond
	var dead inbox[Dead]
	b := s.ready(dead.put)
	m := newMessage()
	queue := declared(t, b, m)
	right, err := m.publishing(1)
	if err != nil {
		t.Fatal(err)
	}
	unreadable := right
	unreadable.Headers = amqp.Table{"deep": nested(40)}
	s.put([]string{queue, deadLetters(s.options.Prefix).name}, unreadable, right)
	var got inbox[Message]
	r := s.receive(m.Worker, queue, got.put)
	if diff := cmp.Diff([]Message{m}, got.wait(t, 1)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Dead{{m, CauseUnknown, ""}}, dead.wait(t, 1)); diff != "" {
		t.Error(diff)
	}
	for who, c := range map[string]Counters{"the worker": r.Counters(), "the server": b.Counters()} {
		if n := c.Dropped[Unreadable]; n < 1 || n > 2*(maxDeliveries+1) { // the server gets the worker's message too
			t.Errorf("%d connections of %s ended", n, who)
		}
	}
	if !strings.Contains(s.log.String(), "headers cannot be read") {
		t.Errorf("the log does not say why: %s", s.log)
	}
	await(t, "the end of the message", func() bool { return s.depth(queue) == 0 })
	await(t, "the end of its dead letters", func() bool {
		q, ok := s.server.Queue(t, s.vhost, deadLetters(s.options.Prefix).name)
		return ok && q.Messages == 0
	})
}

// Headers of deaths that RabbitMQ did not write do not count.
func TestForgedDeaths(t *testing.T) {
	t.Parallel()
	m := newMessage()
	p, err := m.publishing(1)
	if err != nil {
		t.Fatal(err)
	}
	queue := workerQueue("belay", m.Worker, time.Minute).name
	elsewhere := workerQueue("belay", belay.WorkerID(uid.New()), time.Minute).name
	death := func(queue, reason any) amqp.Table {
		return amqp.Table{"x-death": []any{amqp.Table{"queue": queue, "reason": reason}}}
	}
	for name, c := range map[string]struct {
		headers amqp.Table
		want    Dead
	}{
		"right":        {death(queue, "expired"), Dead{m, "expired", queue}},
		"none":         {nil, Dead{m, "unknown", ""}},
		"a text":       {amqp.Table{"x-death": "expired"}, Dead{m, "unknown", ""}},
		"empty":        {amqp.Table{"x-death": []any{}}, Dead{m, "unknown", ""}},
		"of text":      {amqp.Table{"x-death": []any{"expired"}}, Dead{m, "unknown", ""}},
		"no queue":     {amqp.Table{"x-death": []any{amqp.Table{"reason": "expired"}}}, Dead{m, "unknown", ""}},
		"number":       {death(queue, 7), Dead{m, "unknown", ""}},
		"other queue":  {death(elsewhere, "expired"), Dead{m, "unknown", ""}},
		"other reason": {death(queue, "bored"), Dead{m, "unknown", ""}},
	} {
		got, bad := decodeDead("belay", &amqp.Delivery{Type: p.Type, Body: p.Body, Headers: c.headers})
		if diff := cmp.Diff(c.want, got); diff != "" || bad != "" {
			t.Errorf("%s: %s%s", name, bad, diff)
		}
	}
}

// An operator closes the connections: they are opened again, and publishing and receiving go on.
func TestClosedConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t)).alone()
	b := s.ready(ignore)
	m := newMessage()
	queue := declared(t, b, m)
	var got inbox[Message]
	r := s.receive(m.Worker, queue, got.put)
	await(t, "the consumption", func() bool { return r.State().Consume.Connected })
	s.server.CloseConnections(t, s.vhost)
	back := func(l Link) bool { return l.Connected && l.Attempts > 1 }
	await(t, "the connections", func() bool {
		return back(b.State().Publish) && back(b.State().Consume) && back(r.State().Consume)
	})
	publish(t, b, queue, m)
	got.wait(t, 1)
	if !strings.Contains(s.log.String(), "closed the connection") {
		t.Errorf("the log does not say why: %s", s.log)
	}
}

// Many publishers at once all get their confirmations, with a bounded number of messages on the way.
func TestManyPublishers(t *testing.T) {
	t.Parallel()
	s := newSite(t, mqtest.Shared(t))
	s.options.Outstanding = 16
	b := s.ready(ignore)
	m := newMessage()
	queue := declared(t, b, m)
	const n = 500
	var all sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		all.Go(func() {
			m := m
			m.Token += belay.Token(i)
			errs <- b.Publish(ctxOf(t), queue, m)
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got inbox[Message]
	s.receive(m.Worker, queue, got.put)
	seen := map[belay.Token]bool{}
	for _, m := range got.wait(t, n) {
		seen[m.Token] = true
	}
	if len(seen) != n || b.Counters().Confirmed != n {
		t.Errorf("%d of %d messages arrived, %d are confirmed", len(seen), n, b.Counters().Confirmed)
	}
}
