package publishtask_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/belaytest"
	"github.com/belaydev/belay/internal/broker"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/publishtask"
	"github.com/belaydev/belay/worker"
)

// exchanges stands for RabbitMQ.
type exchanges struct {
	mu   sync.Mutex
	got  []*broker.Event
	keys []string
	// before is called before a message counts as published; an error refuses the message.
	before func(ctx context.Context, e *broker.Event) error
}

func (x *exchanges) Check(exchange string) error {
	if strings.HasPrefix(exchange, "belay.") {
		return &belay.Error{Code: belay.CodeForbidden, Message: "not for events"}
	}
	return nil
}

func (x *exchanges) Publish(ctx context.Context, exchange, key string, e *broker.Event) error {
	if x.before != nil {
		if err := x.before(ctx, e); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.got, x.keys = append(x.got, e), append(x.keys, exchange+" "+key)
	return nil
}

// sequence describes the messages that were published.
func (x *exchanges) sequence() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all []string
	for _, e := range x.got {
		all = append(all, fmt.Sprint(e.Headers["sequence"], " ", e.Headers["state"]))
	}
	return strings.Join(all, ", ")
}

// lab is a store with a target at the exchange "ex", and a worker that publishes.
type lab struct {
	*testing.T
	kit *belaytest.Kit
	to  *exchanges
}

func newLab(t *testing.T, x *exchanges) *lab {
	l := &lab{T: t, to: x}
	p := publishtask.New(x, func() belay.Backend { return l.kit.Backend })
	l.kit = belaytest.Open(func(w *worker.Worker) {
		worker.Register(w, "flaky", func(_ context.Context, fail bool) (string, error) {
			if fail {
				return "", belay.Permanent(errors.New("it is broken"))
			}
			return "done", nil
		})
		worker.Register(w, belay.PublishWorkflow, p.Run)
		worker.Register(w, "old", p.Run)
	})
	return l
}

func (l *lab) target(key string, alerts ...belay.Alert) {
	l.Helper()
	_, err := l.kit.Backend.PutNotificationTarget(l.Context(), belay.NotificationTargetPut{
		NotificationTarget: belay.NotificationTarget{Name: "t", Exchange: "ex", RoutingKey: key, Alerts: alerts},
	})
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) await(id belay.ExecutionID) belay.Execution {
	l.Helper()
	x, err := l.kit.Backend.Await(l.Context(), id, 10*time.Hour)
	if err != nil || !x.State.Terminal() {
		l.Fatalf("%s is %s: %v", id, x.State, err)
	}
	return x
}

func (l *lab) delivery(id belay.ExecutionID, g int) belay.Execution {
	l.Helper()
	return l.await(belay.TargetNotificationID(id, g, "t"))
}

// fails starts an execution that fails.
func (l *lab) fails() belay.ExecutionID {
	l.Helper()
	out, err := l.kit.Backend.Submit(l.Context(), belay.Submission{Workflow: "flaky", Input: json.RawMessage("true")})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		l.Fatal(err)
	}
	if x := l.await(out[0].ID); x.State != belay.Failed {
		l.Fatalf("the execution is %s", x.State)
	}
	return out[0].ID
}

func (l *lab) again(id belay.ExecutionID, input string) {
	l.Helper()
	if _, err := l.kit.Backend.Control(l.Context(), belay.Control{
		Execution: id, Action: belay.ActionRequeue, Input: json.RawMessage(input),
	}); err != nil {
		l.Fatal(err)
	}
	l.await(id)
}

// in runs a test in virtual time.
func in(t *testing.T, x *exchanges, f func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, x)
		f(l)
		if err := l.kit.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The message of an end has the body of an HTTP notification, and headers by which consumers can select and order.
func TestTheMessageOfAnEnd(t *testing.T) {
	x := &exchanges{}
	in(t, x, func(l *lab) {
		l.target("")
		id := l.fails()
		d := l.delivery(id, 1)
		if d.State != belay.Succeeded || d.Workflow != belay.PublishWorkflow || len(x.got) != 1 {
			l.Fatalf("the delivery %s: %+v; %d messages", d.State, d.Error, len(x.got))
		}
		m := x.got[0]
		want := map[string]any{
			"execution": id.String(), "workflow": "flaky", "queue": "default", "state": "failed", "sequence": int64(1),
			"target": "t",
		}
		if diff := cmp.Diff(want, m.Headers); diff != "" {
			l.Error(diff)
		}
		var ev belay.NotificationEvent
		if err := json.Unmarshal(m.Body, &ev); err != nil || ev.Type != "execution.failed" || ev.Data.ID != id ||
			ev.Data.Error.Message != "it is broken" || !m.At.Equal(ev.Timestamp) {
			l.Errorf("%v: the body is %s", err, m.Body)
		}
		if m.ID != d.ID.String() || m.Type != "execution.completed" || x.keys[0] != "ex execution.completed" {
			l.Errorf("the message is %+v with the key %q", m, x.keys[0])
		}
		if want := fmt.Sprintf(`{"exchange":"ex","routing_key":"execution.completed","message_id":%q}`, d.ID); string(
			l.get(d.ID).Output) != want {
			l.Errorf("the output is %s", l.get(d.ID).Output)
		}
	})
}

func (l *lab) get(id belay.ExecutionID) belay.Execution {
	l.Helper()
	x, err := l.kit.Backend.Execution(l.Context(), id)
	if err != nil {
		l.Fatal(err)
	}
	return x
}

// A test of a target, and each alert, is a message too.
func TestTheMessageOfAnAlert(t *testing.T) {
	x := &exchanges{}
	in(t, x, func(l *lab) {
		l.target("", belay.AlertDeadLetter)
		l.fails()
		time.Sleep(10 * time.Second)
		l.target("my.key")
		id, err := l.kit.Backend.TestNotificationTarget(l.Context(), belay.NotificationTargetTest{Name: "t"})
		if err != nil {
			l.Fatal(err)
		}
		l.await(id)
		var all []string
		for i, m := range x.got {
			all = append(all, fmt.Sprint(m.Type, " ", m.Headers["alert"], " ", m.Headers["execution"], " ", x.keys[i]))
		}
		want := []string{
			"alert.dead_letter dead_letter <nil> ex alert.dead_letter", "alert.test test <nil> ex my.key",
		}
		if diff := cmp.Diff(want, all); diff != "" {
			l.Error(diff)
		}
	})
}

// Rule: the ends of an execution are published in their order, although the first message is refused for a while. The
// later deliveries wait without an attempt, and their messages come soon after the first.
func TestEndsArePublishedInOrder(t *testing.T) {
	x, refused := &exchanges{}, 0
	x.before = func(_ context.Context, e *broker.Event) error {
		if e.Headers["sequence"] == int64(1) && refused < 4 {
			refused++
			return &belay.Error{Code: belay.CodeNotFound, Message: "no such exchange"}
		}
		return nil
	}
	in(t, x, func(l *lab) {
		l.target("")
		id := l.fails()
		l.again(id, "true")
		l.again(id, "false")
		last := l.delivery(id, 3)
		if got := x.sequence(); got != "1 failed, 2 failed, 3 succeeded" || refused != 4 {
			l.Errorf("the messages are %s, after %d refusals", got, refused)
		}
		first := l.get(belay.TargetNotificationID(id, 1, "t"))
		if d := last.FinishedAt.Sub(first.FinishedAt); d > time.Minute {
			l.Errorf("the last message came %s after the first", d)
		}
		for g, want := range []int{5, 1, 1} {
			if n := l.get(belay.TargetNotificationID(id, g+1, "t")).Attempt; n != want {
				l.Errorf("delivery %d had %d attempts", g+1, n)
			}
		}
	})
}

// Rule: a worker that crashes while it publishes the first message does not change the order either.
func TestEndsArePublishedInOrderAfterACrash(t *testing.T) {
	x, began := &exchanges{}, make(chan struct{})
	first := true
	x.before = func(ctx context.Context, e *broker.Event) error {
		if e.Headers["sequence"] == int64(1) && first {
			first = false
			close(began)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	synctest.Test(t, func(t *testing.T) {
		began = make(chan struct{})
		l := newLab(t, x)
		l.target("")
		id := l.fails()
		<-began
		l.again(id, "true")
		time.Sleep(time.Minute)
		if got := x.sequence(); got != "" {
			t.Errorf("the messages before the crash are %s", got)
		}
		l.kit.Crash()
		l.kit.Restart()
		l.delivery(id, 2)
		if got := x.sequence(); got != "1 failed, 2 failed" {
			t.Errorf("the messages are %s", got)
		}
		if err := l.kit.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Rule: a delivery that has failed for good does not hold up the later ones. It waits as a dead letter, and when an
// operator retries it, its message has the same id as before.
func TestAFailedDeliveryHoldsNothingUp(t *testing.T) {
	x := &exchanges{}
	broken, ids := true, map[string]bool{}
	x.before = func(_ context.Context, e *broker.Event) error {
		if e.Headers["sequence"] == int64(1) {
			ids[e.ID] = true
			if broken {
				return errors.New("it cannot be published")
			}
		}
		return nil
	}
	in(t, x, func(l *lab) {
		l.target("")
		id := l.fails()
		l.again(id, "true")
		if d := l.delivery(id, 1); d.State != belay.Failed || d.Error.Message != "it cannot be published" {
			l.Errorf("the first delivery is %+v", d)
		}
		if d := l.delivery(id, 2); d.State != belay.Succeeded {
			l.Errorf("the second delivery is %+v", d)
		}
		broken = false
		d := belay.TargetNotificationID(id, 1, "t")
		if _, err := l.kit.Backend.Control(l.Context(), belay.Control{
			Execution: d, Action: belay.ActionRetry,
		}); err != nil {
			l.Fatal(err)
		}
		l.await(d)
		if got := x.sequence(); got != "2 failed, 1 failed" || len(ids) != 1 {
			l.Errorf("the messages are %s, with the ids %v", got, ids)
		}
	})
}

// Rule: an outage of two hours opens the circuit breaker, so that deliveries wait without attempts. Afterwards all
// messages are published, those of each execution in order, although a later delivery may be the probe.
func TestAnOutageLosesNothing(t *testing.T) {
	x := &exchanges{}
	down := true
	x.before = func(context.Context, *broker.Event) error {
		if down {
			return &belay.Error{Code: belay.CodeUnavailable, Message: "there is no connection to RabbitMQ"}
		}
		return nil
	}
	in(t, x, func(l *lab) {
		l.target("")
		var all []belay.ExecutionID
		for range 8 {
			all = append(all, l.fails())
		}
		for _, id := range all {
			l.again(id, "true")
			l.again(id, "false")
		}
		time.Sleep(2 * time.Hour)
		down = false
		over := time.Now()
		for _, id := range all {
			for g := 1; g <= 3; g++ {
				if d := l.delivery(id, g); d.State != belay.Succeeded || d.FinishedAt.Sub(over) > 15*time.Minute {
					l.Errorf("delivery %d is %s after %s: %+v", g, d.State, d.FinishedAt.Sub(over), d.Error)
				}
			}
		}
		last := make(map[any]int64)
		for _, m := range x.got {
			n, ok := m.Headers["sequence"].(int64)
			if id := m.Headers["execution"]; !ok || n != last[id]+1 {
				l.Errorf("%v: %d comes after %d", id, n, last[id])
			} else {
				last[id] = n
			}
		}
	})
}

// Attack: an older version has accepted an execution of the workflow from a user. It publishes nothing.
func TestOnlyDeliveriesArePublished(t *testing.T) {
	x := &exchanges{}
	in(t, x, func(l *lab) {
		s, err := machine.TargetSample(&belay.NotificationTarget{Name: "t", Exchange: "ex"})
		if err != nil {
			l.Fatal(err)
		}
		out, err := l.kit.Backend.Submit(l.Context(), belay.Submission{Workflow: "old", Input: s.Input})
		if err != nil || out[0].Err != nil {
			l.Fatal(err, out)
		}
		if d := l.await(out[0].ID); d.State != belay.Failed || d.Error.Class != belay.ClassPermanent || len(x.got) > 0 {
			l.Errorf("the execution is %+v, with %d messages", d, len(x.got))
		}
		out, err = l.kit.Backend.Submit(l.Context(), belay.Submission{Workflow: belay.PublishWorkflow, Input: s.Input})
		if err != nil || belay.CodeOf(out[0].Err) != belay.CodeForbidden {
			l.Errorf("a submission by a user: %v, %+v", err, out)
		}
	})
}

// Without a server that publishes, explain says what a delivery needs.
func TestExplainNamesTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lab{T: t, kit: belaytest.Open(func(w *worker.Worker) {
			worker.Register(w, "flaky", func(context.Context, bool) (any, error) {
				return nil, belay.Permanent(errors.New("it is broken"))
			})
		})}
		l.target("")
		id := l.fails()
		time.Sleep(time.Minute)
		why, err := l.kit.Backend.Explain(t.Context(), belay.TargetNotificationID(id, 1, "t"))
		if err != nil || !strings.Contains(strings.Join(why.Facts, "\n"), "broker.url") {
			t.Errorf("%v: %+v", err, why)
		}
		if err := l.kit.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Every input that the rules make passes the check, and an exchange of Belay's own does not.
func FuzzDeliveriesAreMessages(f *testing.F) {
	p := publishtask.New(&exchanges{}, nil)
	f.Add("attune.executions", "a.b", "t")
	f.Add("belay.dead.1", "", "t")
	f.Add("\u2028<&>", "#", "x")
	f.Fuzz(func(t *testing.T, exchange, key, name string) {
		to := belay.NotificationTarget{Name: name, Exchange: exchange, RoutingKey: key}
		if exchange == "" || belay.CheckNotificationTarget("put", &to) != nil {
			return
		}
		s, err := machine.TargetSample(&to)
		if err != nil || s.Workflow != belay.PublishWorkflow {
			t.Fatal(s.Workflow, err)
		}
		if err := p.Admit(&s); (err != nil) != strings.HasPrefix(exchange, "belay.") {
			t.Errorf("%q: %v", exchange, err)
		}
	})
}
