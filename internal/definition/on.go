package definition

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belaydev/belay"
)

// Triggers are the schedules and webhooks that a document defines, in the order of the document, with the names and the
// executions that they get when the document is stored.
type Triggers struct {
	Schedules []belay.Schedule
	Webhooks  []belay.Webhook

	file string
	keys map[string]at // the positions of the keys, by the names of the triggers after their kinds
}

// ParseTriggers reads only the triggers of a document, and the name that the document gives itself. A text that cannot
// be parsed has problems and no triggers. file names the document in the problems.
func ParseTriggers(file, text string) (name string, t *Triggers, problems Problems) {
	r := &report{file: file, words: documentWords}
	n := parse([]byte(text), r)
	on := n.get("on")
	if len(r.list) > 0 {
		return "", &Triggers{}, r.sorted()
	}
	if on == nil {
		return "", &Triggers{}, nil
	}
	name = n.get("name").text()
	r.check(on, &onType, "on")
	t = r.triggers(n, name)
	return name, t, r.sorted()
}

// TriggerRules checks what this package does not know of schedules and webhooks.
type TriggerRules interface {
	CheckSchedule(s belay.Schedule) error
	CheckWebhook(h belay.Webhook) error
}

// Check returns the problems that the rules find.
func (t *Triggers) Check(rules TriggerRules) Problems {
	r := &report{file: t.file}
	add := func(kind belay.TriggerKind, name string, err error) {
		if err != nil {
			message := err.Error()
			var e *belay.Error
			if errors.As(err, &e) {
				message = e.Message
			}
			r.add(t.keys[string(kind)+name], "", "%s %s: %s", kind, name, message)
		}
	}
	for _, s := range t.Schedules {
		add(belay.ScheduleKind, s.Name, rules.CheckSchedule(s))
	}
	for _, h := range t.Webhooks {
		add(belay.WebhookKind, h.Name, rules.CheckWebhook(h))
	}
	return r.sorted()
}

// triggers makes the triggers of a document, whose key on was compared with the table of the format.
func (r *report) triggers(root *node, document string) *Triggers {
	on := root.get("on")
	t := &Triggers{file: r.file, keys: map[string]at{}}
	b := triggerBuilder{report: r, document: document, root: root, triggers: t, event: &report{
		file: r.file, words: eventWords, expressions: r.expressions,
	}}
	b.each(belay.ScheduleKind, on.get("schedules"), b.schedule)
	b.each(belay.WebhookKind, on.get("webhooks"), b.webhook)
	r.expressions, r.list = b.event.expressions, append(r.list, b.event.list...)
	return t
}

// triggerBuilder makes triggers of nodes. event reports the problems of expressions that read an event.
type triggerBuilder struct {
	*report
	event    *report
	document string
	root     *node
	triggers *Triggers
}

// each calls one with the name and the node of each trigger.
func (b *triggerBuilder) each(kind belay.TriggerKind, n *node, one func(name string, n *node)) {
	if n == nil || n.kind != mapNode {
		return
	}
	if len(n.keys) > belay.MaxDocumentTriggers {
		b.add(n.keys[belay.MaxDocumentTriggers].at, "", "the document has %d %ss; the limit is %d", len(n.keys), kind,
			belay.MaxDocumentTriggers)
		return
	}
	for i, k := range n.keys {
		name := belay.TriggerName(b.document, k.name)
		switch {
		case !full(keyPattern).MatchString(k.name):
			b.add(k.at, "write letters, digits, dashes and underscores, 60 at most", "%s cannot be the key of a %s",
				quoted(k.name), kind)
		case len(name) > belay.MaxDocumentName:
			b.add(k.at, "shorten the key, or the name of the document",
				"the name of the %s, %s, has %d characters; the limit is %d", kind, quoted(name), len(name),
				belay.MaxDocumentName)
		case n.items[i].kind == mapNode:
			b.triggers.keys[string(kind)+name] = k.at
			one(name, n.items[i])
		}
	}
}

func (b *triggerBuilder) schedule(name string, n *node) {
	for _, x := range []*node{n.get("input"), n.get("labels")} {
		if x.mentions("${{") {
			b.add(x.at, "write the value itself", "the input and the labels of a schedule cannot contain expressions")
		}
	}
	b.triggers.Schedules = append(b.triggers.Schedules, belay.Schedule{
		Name: name, Cron: n.get("cron").text(), TimeZone: n.get("time_zone").text(), Every: durationOf(n.get("every")),
		Offset: durationOf(n.get("offset")), Jitter: durationOf(n.get("jitter")),
		Overlap: belay.ScheduleOverlap(n.get("overlap").text()), CatchUp: durationOf(n.get("catch_up")),
		Execution: b.execution(n),
	})
}

// execution is the submission of a trigger.
func (b *triggerBuilder) execution(n *node) belay.Submission {
	s := belay.Submission{Document: b.document, Input: rawOf(n.get("input"))}
	s.Priority = n.get("priority").number()
	if labels := n.get("labels"); labels != nil && labels.kind == mapNode && len(labels.keys) > 0 {
		s.Labels = make(map[string]string, len(labels.keys))
		for i, k := range labels.keys {
			s.Labels[k.name] = labels.items[i].text()
		}
	}
	return s
}

func (b *triggerBuilder) webhook(name string, n *node) {
	h := belay.Webhook{
		Name: name, Scheme: belay.WebhookScheme(n.get("scheme").text()), Secrets: texts(n.get("secrets")),
		Filter: b.expression(n.get("filter")),
	}
	h.MaxBytes = n.get("max_bytes").number()
	h.Rate = n.get("rate").number()
	if x := n.get("hmac"); x != nil {
		h.HMAC = &belay.WebhookHMAC{
			Header: x.get("header").text(), Prefix: x.get("prefix").text(), Algorithm: x.get("algorithm").text(),
			Encoding: x.get("encoding").text(), TimestampHeader: x.get("timestamp_header").text(),
			IDHeader: x.get("id_header").text(),
		}
	}
	if x := n.get("amqp"); x != nil {
		h.AMQP = &belay.WebhookAMQP{
			Queue: x.get("queue").text(), WithoutID: belay.WithoutID(x.get("without_id").text()),
		}
	}
	if x := n.get("signal"); x != nil {
		h.Signal = b.signal(n, x)
	} else {
		h.Execution = b.execution(n)
		if h.Execution.Input == nil && b.root.get("input") == nil {
			h.Execution.Input = json.RawMessage("null") // such a document refuses a body as its input
		}
		b.checkTemplate(n.get("input"))
		b.checkTemplate(n.get("labels"))
	}
	b.triggers.Webhooks = append(b.triggers.Webhooks, h)
}

func (b *triggerBuilder) signal(webhook, n *node) *belay.WebhookSignal {
	for i, k := range webhook.keys {
		if k.name == "input" || k.name == "labels" || k.name == "priority" {
			b.add(webhook.keys[i].at, "remove it", "a webhook with a signal starts no execution, so it has no %s",
				k.name)
		}
	}
	b.checkTemplate(n.get("payload"))
	return &belay.WebhookSignal{
		Name: n.get("name").text(), Execution: b.expression(n.get("execution")), Workflow: n.get("workflow").text(),
		Key: b.expression(n.get("key")), Payload: rawOf(n.get("payload")),
	}
}

// checkTemplate compiles the expressions of a value to find their mistakes.
func (b *triggerBuilder) checkTemplate(n *node) {
	if n != nil {
		b.event.template(n, func(*part) {})
	}
}

// expression returns an expression, which may stand in ${{ }}, after it has compiled it to find its mistakes.
func (b *triggerBuilder) expression(n *node) string {
	switch {
	case n == nil:
		return ""
	case n.kind == boolNode:
		return fmt.Sprint(n.value)
	case n.kind != textNode:
		return ""
	}
	source := bare(n.text())
	b.event.compile(n.at, source)
	return source
}

// inputs compares the inputs of schedules and webhooks with the input of the document. The inputs of webhooks have
// expressions, so an execution checks them.
func (r *report) inputs(root *node, d *Document) {
	on := root.get("on")
	for _, kind := range []belay.TriggerKind{belay.ScheduleKind, belay.WebhookKind} {
		n := on.get(string(kind) + "s")
		if n == nil || n.kind != mapNode {
			continue
		}
		for i, k := range n.keys {
			one := n.items[i]
			given := one.get("input")
			switch {
			case root.get("input") == nil && given != nil && given.kind != nullNode:
				r.add(given.at, "remove it, or describe the input of the document",
					"%s %s: the document has no input", kind, quoted(k.name))
			case kind == belay.ScheduleKind && d.Input != nil:
				if err := d.Input.accepts(given.plain()); err != nil {
					pos := one.at
					if given != nil {
						pos = given.at
					}
					r.add(pos, "", "%s %s: %s", kind, quoted(k.name), err)
				}
			}
		}
	}
}

// accepts returns an error if an execution would refuse a value as its input.
func (s *Schema) accepts(v any) error {
	if v = s.Fill(v); v == nil {
		v = map[string]any{}
	}
	return s.Validate(v, "input")
}

// rawOf returns the value of a node as JSON; nil if there is no node.
func rawOf(n *node) json.RawMessage {
	if n == nil {
		return nil
	}
	text, err := json.Marshal(n.plain())
	if err != nil { // a node has only values that JSON has
		return nil
	}
	return text
}
