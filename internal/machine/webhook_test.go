package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// anyScheme accepts every scheme but "odd".
type anyScheme struct{}

func (anyScheme) Check(h *belay.Webhook) error {
	if h.Scheme == "odd" {
		return refuse(belay.CodeInvalid, "webhook", "the scheme is odd")
	}
	return nil
}

// putHook sets the webhook h.
func putHook(with ...func(*belay.WebhookPut)) *PutWebhook {
	c := &PutWebhook{WebhookPut: belay.WebhookPut{Webhook: belay.Webhook{
		Name: "h", Scheme: belay.SchemeGitHub, Secrets: []string{"${{ secrets.H }}"},
		Execution: belay.Submission{Workflow: "w"},
	}, Actor: "ann"}, Rules: anyScheme{}}
	for _, f := range with {
		f(&c.WebhookPut)
	}
	return c
}

func changeHook(action belay.WebhookAction, with ...func(*belay.WebhookChange)) *ChangeWebhook {
	c := &ChangeWebhook{belay.WebhookChange{Name: "h", Action: action, Actor: "me"}}
	for _, f := range with {
		f(&c.WebhookChange)
	}
	return c
}

// received is a delivery to the webhook h, whose data is also the input.
func (s *stage) received(edit int, id string, with ...func(*Receive)) *Receive {
	data := json.RawMessage(fmt.Sprintf(`{"n":%q}`, id))
	c := &Receive{
		Event: belay.WebhookEvent{Webhook: "h", ID: id, Type: "push", Data: data}, Edit: edit, ID: s.id(),
		Created:   s.hookCreated(),
		Execution: &belay.Submission{Workflow: "w", Input: data},
	}
	for _, f := range with {
		f(c)
	}
	return c
}

// hookCreated is when the webhook h was created.
func (s *stage) hookCreated() Time {
	if o := s.objects[WebhookRef("h")]; o != nil {
		if v, err := WebhookView(o); err == nil {
			return At(v.CreatedAt)
		}
	}
	return 0
}

// hook describes the webhook h: its version, what it remembers, and how many objects have data of deliveries.
func (s *stage) hook() string {
	s.t.Helper()
	o := s.objects[WebhookRef("h")]
	if o == nil {
		return "none"
	}
	v, err := WebhookView(o)
	if err != nil {
		s.t.Fatal(err)
	}
	text := fmt.Sprintf("v%d", v.Version)
	if v.Paused != nil {
		text += " paused"
	}
	for _, d := range v.Recent {
		text += " " + d.ID + d.By + ":" + string(d.Outcome)
	}
	n := 0
	for ref := range s.objects {
		if ref.Kind == DeliveryObject {
			n++
		}
	}
	if n > 0 {
		text += fmt.Sprintf(" (%d)", n)
	}
	return text
}

// hookStep is a command about the webhook h, and the description of the webhook afterwards.
type hookStep struct {
	c       func(s *stage) Command
	code    belay.Code // empty if the command is accepted
	outcome belay.WebhookOutcome
	want    string
}

func hookSteps() []hookStep {
	put := func(with ...func(*belay.WebhookPut)) func(*stage) Command {
		return func(*stage) Command { return putHook(with...) }
	}
	change := func(a belay.WebhookAction, with ...func(*belay.WebhookChange)) func(*stage) Command {
		return func(*stage) Command { return changeHook(a, with...) }
	}
	got := func(edit int, id string, with ...func(*Receive)) func(*stage) Command {
		return func(s *stage) Command { return s.received(edit, id, with...) }
	}
	filtered := func(c *Receive) { c.Execution, c.Outcome = nil, belay.DeliveryFiltered }
	mapped := func(c *Receive) { c.Execution.Input = json.RawMessage(`1`) }
	large := func(c *Receive) {
		mapped(c)
		c.Event.Data = json.RawMessage(`"` + strings.Repeat("x", belay.MaxTriggerPayload) + `"`)
	}
	odd := func(c *Receive) { c.Execution.Labels = map[string]string{"": "x"} }
	by := func(who string) func(*Receive) { return func(c *Receive) { c.Event.By = who } }
	old := func(c *Receive) { c.Created-- }
	again := func(op byte) func(*Receive) {
		return func(c *Receive) { c.Event.By, c.Op = byReplay, belay.OpID{op} }
	}
	none := func(c *Receive) {
		c.Execution, c.Signal = nil, &belay.SignalRequest{Execution: belay.ExecutionID{9}, Name: "paid"}
	}
	name := func(n string) func(*Receive) { return func(c *Receive) { c.Event.Webhook = n } }
	version := func(n int) func(*belay.WebhookPut) { return func(p *belay.WebhookPut) { p.IfVersion = n } }
	scheme := func(x belay.WebhookScheme) func(*belay.WebhookPut) {
		return func(p *belay.WebhookPut) { p.Scheme = x }
	}
	return []hookStep{
		{got(1, "a"), belay.CodeNotFound, "", "none"},
		{put(scheme("odd")), belay.CodeInvalid, "", "none"},
		{put(func(p *belay.WebhookPut) { p.Secrets = nil }), belay.CodeInvalid, "", "none"},
		{put(func(p *belay.WebhookPut) { p.Execution.IdempotencyKey = "k" }), belay.CodeInvalid, "", "none"},
		{put(func(p *belay.WebhookPut) { p.IfNew = true }), "", "", "v1"},
		{put(func(p *belay.WebhookPut) { p.IfNew = true }), belay.CodeConflict, "", "v1"},
		{put(), "", "", "v1"},
		{got(2, "a"), belay.CodeConflict, "", "v1"},      // other terms
		{got(1, "a", old), belay.CodeConflict, "", "v1"}, // of a webhook before, with the same name
		{got(1, "a"), "", "started", "v1 a:started"},
		{got(1, "a"), "", "duplicate", "v1 a:started"},
		{got(1, "a", mapped), "", "duplicate", "v1 a:started"}, // whatever its input is now
		{got(1, "b c"), belay.CodeInvalid, "", "v1 a:started"},
		{got(1, ""), belay.CodeInvalid, "", "v1 a:started"},
		{got(1, "b", name("other")), belay.CodeNotFound, "", "v1 a:started"},
		{got(1, "b", filtered), "", "filtered", "v1 b:filtered a:started (1)"},
		{got(1, "b", filtered), "", "filtered", "v1 b:filtered a:started (1)"},
		{got(1, "c", odd), "", "failed", "v1 c:failed b:filtered a:started (2)"},
		{got(1, "c"), "", "started", "v1 c:started c:failed b:filtered a:started (2)"},
		{got(1, "d", large), "", "started", "v1 d:started c:started c:failed b:filtered a:started (3)"},
		{got(1, "s", none), "", "failed", "v1 s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{change(belay.WebhookPauseAction), "", "",
			"v2 paused s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{got(2, "e"), belay.CodeConflict, "",
			"v2 paused s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{got(2, "b", again(1)), "", "started",
			"v2 paused breplay:started s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{got(2, "b", again(1)), "", "duplicate",
			"v2 paused breplay:started s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{got(2, "a", by(byTest)), "", "started",
			"v2 paused atest:started breplay:started s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{got(2, "a", by("me")), belay.CodeInvalid, "",
			"v2 paused atest:started breplay:started s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{change("burn"), belay.CodeInvalid, "",
			"v2 paused atest:started breplay:started s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{change(belay.WebhookResume), "", "",
			"v3 atest:started breplay:started s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{put(scheme(belay.SchemeStripe), version(2)), belay.CodeConflict, "",
			"v3 atest:started breplay:started s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{put(scheme(belay.SchemeStripe), version(3)), "", "",
			"v4 atest:started breplay:started s:failed d:started c:started c:failed b:filtered a:started (4)"},
		{change(belay.WebhookRemove), "", "", "none"},
		{change(belay.WebhookRemove), belay.CodeNotFound, "", "none"},
		{put(), "", "", "v1"},
		{got(1, "a"), "", "duplicate", "v1"}, // the idempotency key is still there
	}
}

// Rule: each change of a webhook leads from one state to another, or is refused, and no delivery starts two executions.
func TestWebhooksChangeByTheRules(t *testing.T) {
	s := newStage(t)
	for i, x := range hookSteps() {
		c := x.c(s)
		t.Logf("step %d", i)
		if x.code != "" {
			s.refused(c, x.code)
		} else if d := s.do(c).Delivery; d.Outcome != x.outcome || x.outcome == "duplicate" && d.Execution.IsZero() {
			t.Fatalf("step %d: the outcome is %+v, want %s", i, d, x.outcome)
		}
		if got := s.hook(); got != x.want {
			t.Fatalf("step %d, %T: %s, want %s", i, c, got, x.want)
		}
	}
	if s.hook() != "v1" {
		t.Errorf("data is left: %s", s.hook())
	}
	keys := make(map[string]bool)
	for _, r := range s.records {
		spec := r.specs[0]
		if keys[spec.Key] || spec.Trigger != belay.TriggerWebhook || !reserved(spec.Key) {
			t.Errorf("the execution %s has the key %q and the trigger %q", spec.Execution, spec.Key, spec.Trigger)
		}
		keys[spec.Key] = true
	}
	if len(keys) != 5 {
		t.Errorf("%d executions, want 5: %v", len(keys), keys)
	}
}

// Rule: a signal of a delivery is sent once, also if the webhook has forgotten the delivery, and an execution that has
// ended takes none.
func TestADeliverySignalsOnce(t *testing.T) {
	s := newStage(t)
	s.do(putHook(func(p *belay.WebhookPut) {
		p.Execution, p.Signal = belay.Submission{}, &belay.WebhookSignal{Name: "paid", Execution: "event.data"}
	}))
	id := s.run(s.worker("w")).Execution
	signal := func(c *Receive) {
		c.Execution, c.Signal = nil, &belay.SignalRequest{Execution: id, Name: "paid", Payload: c.Event.Data}
	}
	if d := s.do(s.received(1, "a", signal)).Delivery; d.Outcome != belay.DeliverySignalled || d.Execution != id {
		t.Errorf("%+v", d)
	}
	for i := range belay.MaxRecentDeliveries {
		s.do(s.received(1, fmt.Sprint("other", i), func(c *Receive) {
			c.Execution, c.Outcome = nil, belay.DeliveryFiltered
		}))
	}
	s.do(s.received(1, "a", signal))
	if n := s.records[id].execution.Signals; n != 1 {
		t.Errorf("%d signals, want 1", n)
	}
	s.do(s.received(1, "b", signal, func(c *Receive) { c.Event.By, c.Event.Actor = byTest, "ann" }))
	var actors []string
	for _, ev := range Events(s.records[id].history(), 0, 100) {
		if ev.Kind == "signal" {
			actors = append(actors, ev.Actor)
		}
	}
	if want := []string{"webhook h", "ann"}; !slices.Equal(actors, want) {
		t.Errorf("signals by %q, want %q", actors, want)
	}
	var audited []string
	for _, a := range s.audit {
		if a.Kind == ExecutionObject {
			audited = append(audited, a.Actor+" "+a.Action+" "+a.Reason)
		}
	}
	if want := []string{"ann signal paid"}; !slices.Equal(audited, want) { // not the delivery of a sender outside
		t.Errorf("the audit has %q, want %q", audited, want)
	}
}

// Rule: a webhook remembers the data of its newest deliveries and of no others.
func TestAWebhookForgetsOldDeliveries(t *testing.T) {
	s := newStage(t)
	s.do(putHook())
	var batch []Command
	for i := range 3 * belay.MaxRecentDeliveries {
		batch = append(batch, s.received(1, fmt.Sprint(i), func(c *Receive) {
			c.Execution, c.Outcome = nil, belay.DeliveryFiltered
		}))
	}
	_, replies := s.batch(batch[:belay.MaxRecentDeliveries*2]...)
	for _, r := range replies {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for _, c := range batch[belay.MaxRecentDeliveries*2:] {
		s.do(c)
	}
	n := 0
	for ref := range s.objects {
		if ref.Kind == DeliveryObject {
			n++
		}
	}
	if n != belay.MaxRecentDeliveries {
		t.Errorf("%d objects have data, want %d", n, belay.MaxRecentDeliveries)
	}
	for id, found := range map[string]bool{"149": true, "100": true, "99": false} {
		k, err := FindDelivery(s.objects[WebhookRef("h")], id)
		if (err == nil) != found {
			t.Fatalf("delivery %s: %v", id, err)
		}
		if !found {
			continue
		}
		if _, data, err := DeliveryData(s.objects[k.Object]); err != nil || string(data) != fmt.Sprintf(`{"n":%q}`, id) {
			t.Errorf("delivery %s has the data %s, %v", id, data, err)
		}
	}
}

// Rule: callers cannot take the idempotency keys of deliveries.
func TestCallersCannotUseTheKeysOfDeliveries(t *testing.T) {
	s := newStage(t)
	s.refused(&Submit{Submission: belay.Submission{
		ID: s.id(), Workflow: "w", IdempotencyKey: deliveryPrefix + "h:a",
	}}, belay.CodeInvalid)
}
