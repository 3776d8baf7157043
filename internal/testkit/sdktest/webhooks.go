package sdktest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// putWebhook sets a webhook of workflow w.
func (e *env) putWebhook(name string, with ...func(*belay.WebhookPut)) belay.WebhookPutResult {
	e.Helper()
	p := belay.WebhookPut{Webhook: belay.Webhook{
		Name: name, Scheme: belay.SchemeGitHub, Secrets: []string{"${{ secrets.HOOK }}"},
		Execution: belay.Submission{Workflow: "w"},
	}, Actor: "me"}
	for _, f := range with {
		f(&p)
	}
	r, err := e.b.PutWebhook(e.ctx, p)
	if err != nil {
		e.Fatalf("put webhook %s: %v", name, err)
	}
	return r
}

// deliver makes a test delivery.
func (e *env) deliver(webhook, id, data string, with ...func(*belay.WebhookEvent)) belay.WebhookDelivery {
	e.Helper()
	d := belay.WebhookEvent{
		Webhook: webhook, ID: id, Type: "push", Data: json.RawMessage(data), By: "test", Actor: "me",
		Headers: map[string]string{"x-kind": "odd"},
	}
	for _, f := range with {
		f(&d)
	}
	r, err := e.b.Deliver(e.ctx, d)
	if err != nil {
		e.Fatalf("deliver %s to %s: %v", id, webhook, err)
	}
	return r
}

var webhooks = []testCase{
	{"a delivery starts one execution", func(e *env) {
		first := e.putWebhook("h")
		if !first.Created || !first.Changed || first.Version != 1 || first.UpdatedBy != "me" ||
			first.MaxBytes != belay.MaxDeliveryBytes || first.Rate != belay.DefaultDeliveryRate {
			e.Errorf("%+v", first)
		}
		if again := e.putWebhook("h"); again.Created || again.Changed || again.Version != 1 {
			e.Errorf("%+v", again)
		}
		d := e.deliver("h", "a/b", `{"n": 9007199254740993}`)
		x := e.detail(d.Execution)
		var p belay.WebhookPayload
		if err := json.Unmarshal(x.TriggerPayload, &p); err != nil || d.Outcome != belay.DeliveryStarted ||
			x.Trigger != belay.TriggerWebhook || x.CreatedBy != "me" || x.Labels[belay.LabelWebhook] != "h" ||
			!strings.Contains(string(x.Input), "9007199254740993") || p.Webhook != "h" || p.ID != "a/b" ||
			p.By != "test" || p.Headers["x-kind"] != "odd" || p.Type != "push" {
			e.Errorf("%+v of %+v with %s, %v", x, d, x.TriggerPayload, err)
		}
		same := e.deliver("h", "a/b", `{"n": 2}`)
		if same.Outcome != belay.DeliveryDuplicate || same.Execution != d.Execution {
			e.Errorf("%+v", same)
		}
		page, err := e.b.Webhooks(e.ctx, belay.WebhookFilter{})
		e.must(err)
		if len(page.Webhooks) != 1 || page.Webhooks[0].Name != "h" || len(page.Webhooks[0].Recent) != 0 {
			e.Errorf("%+v", page)
		}
		h, err := e.b.Webhook(e.ctx, "h")
		e.must(err)
		if len(h.Recent) != 1 || h.Recent[0].Execution != d.Execution || h.Deliveries[belay.DeliveryStarted] != 1 {
			e.Errorf("%+v", h)
		}
		data, err := e.b.WebhookDelivery(e.ctx, "h", "a/b")
		e.must(err)
		if !strings.Contains(string(data.Data), "9007199254740993") || data.Headers["x-kind"] != "odd" {
			e.Errorf("%+v", data)
		}
	}},
	{"a filter and a mapping decide about a delivery", func(e *env) {
		e.putWebhook("h", func(p *belay.WebhookPut) {
			p.Filter = `event.type == "push" && event.data.ref in ["main", "next"] && event.headers["x-kind"] == "odd"`
			p.Execution.Input = json.RawMessage(
				`{"commit": "${{ event.data.after }}", "n": "${{ event.data.n }}", "of": "${{ event.source }}/${{ event.id }}"}`)
			p.Execution.Labels = map[string]string{"ref": "${{ event.data.ref }}", "team": "web"}
		})
		if d := e.deliver("h", "1", `{"ref": "other"}`); d.Outcome != belay.DeliveryFiltered || !d.Execution.IsZero() {
			e.Errorf("%+v", d)
		}
		d := e.deliver("h", "2", `{"ref": "main", "after": "3f2a", "n": 7}`)
		x := e.get(d.Execution)
		labels := map[string]string{"ref": "main", "team": "web", belay.LabelWebhook: "h"}
		if string(x.Input) != `{"commit":"3f2a","n":7,"of":"h/2"}` || !maps.Equal(x.Labels, labels) {
			e.Errorf("%s with %v", x.Input, x.Labels)
		}
		failed := e.deliver("h", "3", `{"ref": "next", "after": ["x"]}`, func(d *belay.WebhookEvent) {
			d.Data = json.RawMessage(`{"ref": ["next"]}`)
		})
		if failed.Outcome != belay.DeliveryFiltered { // a list is not in the list
			e.Errorf("%+v", failed)
		}
		h, err := e.b.Webhook(e.ctx, "h")
		e.must(err)
		if got := fmt.Sprint(h.Deliveries); got != "map[filtered:2 started:1]" {
			e.Errorf("%s", got)
		}
		replayed, err := e.b.ReplayDelivery(e.ctx, belay.WebhookReplay{Webhook: "h", ID: "1", Actor: "ann", Op: e.op()})
		e.must(err)
		if x := e.detail(replayed.Execution); x.CreatedBy != "ann" || replayed.By != "replay" {
			e.Errorf("%+v of %+v", x, replayed)
		}
	}},
	{"a delivery of which nothing can be made says why, and can be repeated and replayed", func(e *env) {
		e.putWebhook("h", func(p *belay.WebhookPut) {
			p.Execution.Labels = map[string]string{"ref": "${{ event.data.ref }}"}
		})
		bad := `{"ref": ["main"]}`
		if d := e.deliver("h", "1", bad); d.Outcome != belay.DeliveryFailed || !strings.Contains(d.Text, "ref") {
			e.Errorf("%+v", d)
		}
		if d := e.deliver("h", "1", bad); d.Outcome != belay.DeliveryFailed {
			e.Errorf("%+v", d)
		}
		e.putWebhook("h")
		op := e.op()
		for i, want := range []belay.WebhookOutcome{belay.DeliveryStarted, belay.DeliveryDuplicate} {
			d, err := e.b.ReplayDelivery(e.ctx, belay.WebhookReplay{Webhook: "h", ID: "1", Op: op})
			e.must(err)
			if d.Outcome != want || string(e.get(d.Execution).Input) != strings.ReplaceAll(bad, " ", "") &&
				string(e.get(d.Execution).Input) != bad {
				e.Errorf("replay %d: %+v", i, d)
			}
		}
		_, err := e.b.ReplayDelivery(e.ctx, belay.WebhookReplay{Webhook: "h", ID: "none"})
		e.refused("an unknown delivery", err, belay.CodeNotFound, "")
	}},
	{"large data is kept beside the execution", func(e *env) {
		e.putWebhook("h", func(p *belay.WebhookPut) { p.Execution.Input = json.RawMessage(`1`) })
		data := `"` + strings.Repeat("x", 200<<10) + `"`
		e.deliver("h", "1", data)
		got, err := e.b.WebhookDelivery(e.ctx, "h", "1")
		e.must(err)
		if string(got.Data) != data || got.Bytes != len(data) {
			e.Errorf("%d bytes, %d are named", len(got.Data), got.Bytes)
		}
	}},
	{"a paused webhook takes tests only, and a removed one nothing", func(e *env) {
		e.putWebhook("h")
		change := func(a belay.WebhookAction) {
			_, err := e.b.ChangeWebhook(e.ctx, belay.WebhookChange{Name: "h", Action: a, Actor: "me", Reason: "why"})
			e.must(err)
		}
		change(belay.WebhookPauseAction)
		h, err := e.b.Webhook(e.ctx, "h")
		e.must(err)
		if h.Paused == nil || h.Paused.By != "me" || h.Paused.Reason != "why" || h.Version != 2 {
			e.Errorf("%+v", h)
		}
		e.deliver("h", "1", `1`)
		change(belay.WebhookResume)
		change(belay.WebhookRemove)
		_, err = e.b.Deliver(e.ctx, belay.WebhookEvent{Webhook: "h", ID: "2", Data: json.RawMessage(`1`), By: "test"})
		e.refused("a delivery to no webhook", err, belay.CodeNotFound, "")
		_, err = e.b.Webhook(e.ctx, "h")
		e.refused("a removed webhook", err, belay.CodeNotFound, "")
	}},
	{"the messages of a queue are deliveries with a trigger of their own", func(e *env) {
		e.putWebhook("h", func(p *belay.WebhookPut) {
			p.Scheme, p.Secrets = belay.SchemeAMQP, nil
			p.AMQP = &belay.WebhookAMQP{Queue: "orders", WithoutID: belay.HashWithoutID}
		})
		h, err := e.b.Webhook(e.ctx, "h")
		e.must(err)
		want := belay.WebhookAMQP{Queue: "orders", WithoutID: belay.HashWithoutID}
		if h.AMQP == nil || *h.AMQP != want || h.Rate != 0 {
			e.Errorf("%+v", h)
		}
		d := e.deliver("h", "1", `1`)
		if x := e.detail(d.Execution); x.Trigger != belay.TriggerQueue || x.Labels[belay.LabelWebhook] != "h" {
			e.Errorf("%+v", x)
		}
		replayed, err := e.b.ReplayDelivery(e.ctx, belay.WebhookReplay{Webhook: "h", ID: "1", Op: e.op()})
		e.must(err)
		if x := e.detail(replayed.Execution); x.Trigger != belay.TriggerQueue {
			e.Errorf("%+v", x)
		}
	}},
	{"wrong webhooks are refused", func(e *env) {
		for what, f := range map[string]func(*belay.WebhookPut){
			"name":      func(p *belay.WebhookPut) { p.Name = "a/b" },
			"no secret": func(p *belay.WebhookPut) { p.Secrets = nil },
			"a secret":  func(p *belay.WebhookPut) { p.Secrets = []string{"hunter2hunter2"} },
			"secrets": func(p *belay.WebhookPut) {
				p.Secrets = []string{"${{ secrets.A }}", "${{ secrets.B }}", "${{ secrets.C }}"}
			},
			"equal secrets": func(p *belay.WebhookPut) { p.Secrets = []string{"${{ secrets.A }}", "${{ secrets.A }}"} },
			"filter":        func(p *belay.WebhookPut) { p.Filter = "event.data.(" },
			"its names":     func(p *belay.WebhookPut) { p.Filter = "tasks.a.output" },
			"input":         func(p *belay.WebhookPut) { p.Execution.Input = json.RawMessage(`"${{ input.a }}"`) },
			"label":         func(p *belay.WebhookPut) { p.Execution.Labels = map[string]string{"webhook": "other"} },
			"labels":        func(p *belay.WebhookPut) { p.Execution.Labels = map[string]string{"a": "${{ x }}"} },
			"workflow":      func(p *belay.WebhookPut) { p.Execution.Workflow = "" },
			"key":           func(p *belay.WebhookPut) { p.Execution.IdempotencyKey = "k" },
			"rate":          func(p *belay.WebhookPut) { p.Rate = -1 },
			"size":          func(p *belay.WebhookPut) { p.MaxBytes = belay.MaxDeliveryBytes + 1 },
			"queue":         func(p *belay.WebhookPut) { p.AMQP = &belay.WebhookAMQP{Queue: "q"} },
			"no queue":      func(p *belay.WebhookPut) { p.Scheme, p.Secrets = belay.SchemeAMQP, nil },
			"queue and secret": func(p *belay.WebhookPut) {
				p.Scheme, p.AMQP = belay.SchemeAMQP, &belay.WebhookAMQP{Queue: "q"}
			},
			"rate of a queue": func(p *belay.WebhookPut) {
				p.Scheme, p.Secrets, p.AMQP, p.Rate = belay.SchemeAMQP, nil, &belay.WebhookAMQP{Queue: "q"}, -1
			},
			"priority": func(p *belay.WebhookPut) { p.Execution.Priority = 1000 },
		} {
			p := belay.WebhookPut{Webhook: belay.Webhook{
				Name: "x", Scheme: belay.SchemeGitHub, Secrets: []string{"${{ secrets.HOOK }}"},
				Execution: belay.Submission{Workflow: "w"},
			}}
			f(&p)
			if _, err := e.b.PutWebhook(e.ctx, p); belay.CodeOf(err) != belay.CodeInvalid {
				e.Errorf("%s: %v", what, err)
			}
		}
		e.putWebhook("x")
		put := belay.WebhookPut{Webhook: belay.Webhook{
			Name: "x", Scheme: belay.SchemeGitHub, Secrets: []string{"${{ secrets.HOOK }}"},
			Execution: belay.Submission{Workflow: "other"},
		}, IfNew: true}
		_, err := e.b.PutWebhook(e.ctx, put)
		e.refused("a new webhook that exists", err, belay.CodeConflict, "")
		put.Execution = belay.Submission{Document: "none"}
		put.IfNew = false
		_, err = e.b.PutWebhook(e.ctx, put)
		e.refused("an unknown document", err, belay.CodeNotFound, "")
	}},
	{"a repeated change of a webhook changes nothing", func(e *env) {
		op := e.op()
		put := func(p *belay.WebhookPut) { p.Op = op }
		e.putWebhook("h", put)
		e.putWebhook("h", func(p *belay.WebhookPut) { p.Rate = 7 })
		if again := e.putWebhook("h", put); again.Version != 2 || again.Rate != 7 || again.Changed {
			e.Errorf("%+v", again)
		}
	}},
	{"data of a delivery never becomes a reference to a secret", func(e *env) {
		e.putWebhook("h", func(p *belay.WebhookPut) { p.Execution.Workflow = "http" })
		d := e.deliver("h", "1", `{"url": "https://example.org/${{ secrets.HOOK }}"}`)
		if d.Outcome != belay.DeliveryFailed {
			e.Errorf("%+v", d)
		}
		e.putWebhook("h", func(p *belay.WebhookPut) {
			p.Execution.Workflow = "http"
			p.Execution.Input = json.RawMessage(`{"url": "https://example.org/${{ event.data.a }}{ secrets.HOOK }}"}`)
		})
		if d := e.deliver("h", "2", `{"a": "${"}`); d.Outcome != belay.DeliveryFailed {
			e.Errorf("%+v", d)
		}
	}},
	{"CloudEvents start executions", func(e *env) {
		e.putWebhook("orders", func(p *belay.WebhookPut) {
			p.Scheme, p.Secrets = belay.SchemeCloudEvents, nil
			p.Filter = `event.type == "order" && event.headers["ce-region"] == "eu"`
			p.Execution.Input = json.RawMessage(`["${{ event.source }}", "${{ event.data.n }}"]`)
		})
		eu := map[string]string{"region": "eu"}
		events := []belay.CloudEvent{
			{ID: "1", Source: "/a", Type: "order", Extensions: eu, Data: json.RawMessage(`{"n":1}`)},
			{ID: "1", Source: "/b", Type: "order", Extensions: eu, Data: json.RawMessage(`{"n":2}`)},
			{ID: "2", Source: "/b", Type: "order", Subject: "s", Time: time.Now(), DataContentType: "application/json"},
		}
		for _, want := range []belay.WebhookOutcome{belay.DeliveryStarted, belay.DeliveryDuplicate} {
			got, err := e.b.Publish(e.ctx, belay.CloudEventPublish{Events: events})
			e.must(err)
			if len(got) != 3 || len(got[0].Deliveries) != 1 || len(got[1].Deliveries) != 1 ||
				len(got[2].Deliveries) != 0 {
				e.Fatalf("%+v", got)
			}
			for i, input := range []string{`["/a",1]`, `["/b",2]`} {
				d := got[i].Deliveries[0]
				if x := e.get(d.Execution); d.Outcome != want || d.Webhook != "orders" || string(x.Input) != input ||
					x.Trigger != belay.TriggerEvent {
					e.Errorf("%+v with %s", d, x.Input)
				}
			}
		}
		h, err := e.b.Webhook(e.ctx, "orders")
		e.must(err)
		again, err := e.b.ReplayDelivery(e.ctx, belay.WebhookReplay{Webhook: "orders", ID: h.Recent[0].ID})
		e.must(err)
		if x := e.get(again.Execution); x.Trigger != belay.TriggerEvent || !strings.HasPrefix(string(x.Input), `["/`) {
			e.Errorf("the replay has the trigger %s and the input %s", x.Trigger, x.Input)
		}
		for what, x := range map[string]belay.CloudEvent{
			"no id": {Source: "/a", Type: "t"}, "no source": {ID: "1", Type: "t"}, "no type": {ID: "1", Source: "/a"},
			"extension": {ID: "1", Source: "/a", Type: "t", Extensions: map[string]string{"A": "x"}},
		} {
			_, err := e.b.Publish(e.ctx, belay.CloudEventPublish{Events: []belay.CloudEvent{x}})
			e.refused("an event with "+what, err, belay.CodeInvalid, "")
		}
		_, err = e.b.Publish(e.ctx, belay.CloudEventPublish{Events: make([]belay.CloudEvent, belay.MaxCloudEvents+1)})
		e.refused("too many events", err, belay.CodeInvalid, "")
		none, err := e.b.Publish(e.ctx, belay.CloudEventPublish{})
		e.must(err)
		if len(none) != 0 {
			e.Errorf("%+v", none)
		}
	}},
	{"a delivery is a signal to an execution", func(e *env) {
		out, err := e.b.Submit(e.ctx, belay.Submission{Workflow: "order", IdempotencyKey: "7"})
		e.must(err)
		e.must(out[0].Err)
		id := out[0].ID
		signal := func(s belay.WebhookSignal) func(*belay.WebhookPut) {
			return func(p *belay.WebhookPut) { p.Execution, p.Signal = belay.Submission{}, &s }
		}
		e.putWebhook("paid", signal(belay.WebhookSignal{
			Name: "paid", Workflow: "order", Key: "event.data.order",
			Payload: json.RawMessage(`{"by":"${{ event.data.by }}"}`),
		}))
		first := e.deliver("paid", "1", `{"order": 7, "by": "ann"}`)
		again := e.deliver("paid", "1", `{"order": 7, "by": "ann"}`)
		if first.Outcome != belay.DeliverySignalled || first.Execution != id ||
			again.Outcome != belay.DeliveryDuplicate || again.Execution != id {
			e.Errorf("%+v, then %+v", first, again)
		}
		if ev := e.event(id, "signal", "paid"); ev.Actor != "me" {
			e.Errorf("%+v", ev)
		}
		for body, text := range map[string]string{
			`{"order": 8, "by": "ann"}`: "no execution", `{"order": [7], "by": "ann"}`: "signal.key",
			`{"order": 7, "by": "` + strings.Repeat("x", belay.MaxSignal) + `"}`: "",
		} {
			d := e.deliver("paid", fmt.Sprint("wrong-", len(body)), body)
			if d.Outcome != belay.DeliveryFailed || !strings.Contains(d.Text, text) {
				e.Errorf("%.100s: %+v", body, d)
			}
		}
		e.putWebhook("paid", signal(belay.WebhookSignal{Name: "paid", Execution: "event.data"}))
		if d := e.deliver("paid", "2", `"`+id.String()+`"`); d.Outcome != belay.DeliverySignalled {
			e.Errorf("%+v", d)
		}
		if d := e.deliver("paid", "3", `"nonsense"`); d.Outcome != belay.DeliveryFailed {
			e.Errorf("%+v", d)
		}
		d, err := e.b.ReplayDelivery(e.ctx, belay.WebhookReplay{Webhook: "paid", ID: "2"})
		e.must(err)
		if d.Outcome != belay.DeliverySignalled {
			e.Errorf("%+v", d)
		}
		e.wantKinds(id, "submitted", "signal:paid", "signal:paid", "signal:paid")
		events, err := e.b.Events(e.ctx, belay.EventQuery{Execution: id, After: 3})
		if err != nil || len(events) != 1 || events[0].Actor != "webhook paid" { // the replay has no actor
			e.Errorf("%+v, %v", events, err)
		}
		for what, s := range map[string]belay.WebhookSignal{
			"no name": {Execution: "event.data"}, "no target": {Name: "paid"},
			"no key":      {Name: "paid", Workflow: "order"},
			"two targets": {Name: "paid", Execution: "event.data", Workflow: "order", Key: "event.data"},
			"expression":  {Name: "paid", Execution: "event.("},
		} {
			p := belay.WebhookPut{Webhook: belay.Webhook{
				Name: "x", Scheme: belay.SchemeGitHub, Secrets: []string{"${{ secrets.HOOK }}"}, Signal: &s,
			}}
			_, err := e.b.PutWebhook(e.ctx, p)
			e.refused("a signal with "+what, err, belay.CodeInvalid, "")
		}
	}},
}
