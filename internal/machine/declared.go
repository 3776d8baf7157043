package machine

import (
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// Owned are the names of the schedules and webhooks that a document defines, in order. They change only in the commit
// that changes the object of the document.
type Owned struct {
	Schedules []string `json:"schedules,omitempty"`
	Webhooks  []string `json:"webhooks,omitempty"`
}

// need asks the store for the objects, and for the numbers of all schedules and webhooks.
func (o *Owned) need(n *Need) {
	for _, name := range o.Schedules {
		n.Objects = append(n.Objects, ScheduleRef(name))
	}
	for _, name := range o.Webhooks {
		n.Objects = append(n.Objects, WebhookRef(name))
	}
	if len(o.Schedules) > 0 {
		n.Objects = append(n.Objects, scheduleCountRef)
	}
	if len(o.Webhooks) > 0 {
		n.Objects = append(n.Objects, webhookCountRef)
	}
}

// covers reports whether each of the other names is in o or in more.
func (o *Owned) covers(other, more *Owned) bool {
	in := func(names, a, b []string) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			return !slices.Contains(a, name) && !slices.Contains(b, name)
		})
	}
	return in(other.Schedules, o.Schedules, more.Schedules) && in(other.Webhooks, o.Webhooks, more.Webhooks)
}

// wanted are the names that the text defines.
func (c *ApplyDocument) wanted() *Owned {
	o := &Owned{}
	for _, p := range c.Schedules {
		o.Schedules = append(o.Schedules, p.Name)
	}
	for _, p := range c.Webhooks {
		o.Webhooks = append(o.Webhooks, p.Name)
	}
	slices.Sort(o.Schedules)
	slices.Sort(o.Webhooks)
	return o
}

// checkTriggers checks the schedules and webhooks that the text defines. They have the actor and the reason of the
// command, and no conditions of their own.
func (c *ApplyDocument) checkTriggers() error {
	const op = "apply document"
	if max(len(c.Schedules), len(c.Webhooks)) > belay.MaxDocumentTriggers {
		return refuse(belay.CodeInvalid, op,
			"the document defines %d schedules and %d webhooks; the limit is %d of each", len(c.Schedules),
			len(c.Webhooks), belay.MaxDocumentTriggers)
	}
	for _, p := range c.Schedules {
		p.SchedulePut = belay.SchedulePut{Schedule: p.Schedule, Actor: c.Actor, Reason: c.Reason}
		if err := c.checkTrigger(op, p.Name, p.Execution.Document); err != nil {
			return err
		}
		if err := p.Check(); err != nil {
			return err
		}
	}
	for _, p := range c.Webhooks {
		p.WebhookPut = belay.WebhookPut{Webhook: p.Webhook, Actor: c.Actor, Reason: c.Reason}
		document := p.Execution.Document
		if p.Signal != nil && document == "" {
			document = c.Name
		}
		if err := c.checkTrigger(op, p.Name, document); err != nil {
			return err
		}
		if err := p.Check(); err != nil {
			return err
		}
	}
	o := c.wanted()
	if len(slices.Compact(o.Schedules)) < len(c.Schedules) || len(slices.Compact(o.Webhooks)) < len(c.Webhooks) {
		return refuse(belay.CodeInvalid, op, "the document defines a schedule or a webhook twice")
	}
	return nil
}

// checkTrigger checks the name of a schedule or webhook, and the document that its executions run.
func (c *ApplyDocument) checkTrigger(op, name, document string) error {
	prefix := belay.TriggerName(c.Name, "")
	if !strings.HasPrefix(name, prefix) || name == prefix || document != c.Name {
		return refuse(belay.CodeInvalid, op, "a schedule or webhook of the document %s has a name that begins with "+
			"%s, and runs the document", c.Name, prefix)
	}
	return nil
}

// triggers are the changes of the schedules and webhooks of a document, which were checked and are not written yet.
type triggers struct {
	owned   Owned // the names afterwards
	list    []trigger
	counted []func()
}

type trigger struct {
	belay.DocumentTrigger
	write func(w *world, actor, reason string) error
}

func (t *triggers) any() bool { return len(t.list) > 0 }

// changes lists the changes for the reply.
func (t *triggers) changes() []belay.DocumentTrigger {
	var all []belay.DocumentTrigger
	for i := range t.list {
		all = append(all, t.list[i].DocumentTrigger)
	}
	return all
}

// write writes the changes. by names the version in the audit of each schedule and webhook.
func (t *triggers) write(w *world, d *document, by, actor, reason string) error {
	about := "document " + by
	if reason != "" {
		about += ": " + reason
	}
	for i := range t.list {
		if err := t.list[i].write(w, actor, about); err != nil {
			return err
		}
	}
	for _, write := range t.counted {
		write()
	}
	d.body.Owned = t.owned
	return nil
}

// triggers compares the schedules and webhooks that the text defines with those that exist.
func (d *document) triggers(w *world, op string, c *ApplyDocument) (triggers, error) {
	t := triggers{owned: *c.wanted()}
	if !c.Owned.covers(&d.body.Owned, &t.owned) {
		return t, refuse(belay.CodeConflict, op, "the document was changed at this moment; try again")
	}
	for _, p := range c.Schedules {
		if err := t.schedule(w, op, d.name, p); err != nil {
			return t, err
		}
	}
	for _, p := range c.Webhooks {
		if err := t.webhook(w, op, d.name, p); err != nil {
			return t, err
		}
	}
	err := t.rest(w, op, d)
	return t, err
}

// without returns the removal of all schedules and webhooks of the document.
func (d *document) without(w *world, op string, c *ChangeDocument) (triggers, error) {
	var t triggers
	if !c.Owned.covers(&d.body.Owned, &t.owned) {
		return t, refuse(belay.CodeConflict, op, "the document was changed at this moment; try again")
	}
	err := t.rest(w, op, d)
	return t, err
}

// add adds a change.
func (t *triggers) add(kind belay.TriggerKind, name string, change belay.TriggerChange,
	write func(w *world, actor, reason string) error) {
	t.list = append(t.list, trigger{belay.DocumentTrigger{Kind: kind, Name: name, Change: change}, write})
}

// Foreign refuses to take over a schedule or webhook that the document does not define.
func Foreign(op string, kind belay.TriggerKind, name string) error {
	return refuse(belay.CodeConflict, op, "there is a %s %s that the document does not define; remove it with: "+
		"belay %ss rm %s", kind, name, kind, name)
}

func (t *triggers) schedule(w *world, op, document string, p *PutSchedule) error {
	s, err := w.schedule(p.Name)
	if err != nil {
		return err
	}
	change := belay.TriggerChanged
	switch {
	case s.row == nil:
		change, s.body.Document = belay.TriggerCreated, document
	case s.body.Document != document:
		return Foreign(op, belay.ScheduleKind, p.Name)
	case p.same(s):
		return nil
	}
	t.add(belay.ScheduleKind, p.Name, change, func(w *world, actor, reason string) error {
		put := *p
		put.Actor, put.Reason = actor, reason
		_, err := put.set(w, op, s, edit{Action: "put"})
		return err
	})
	return nil
}

func (t *triggers) webhook(w *world, op, document string, p *PutWebhook) error {
	h, err := w.webhook(p.Name)
	if err != nil {
		return err
	}
	change := belay.TriggerChanged
	switch {
	case h.row == nil:
		change, h.body.Document = belay.TriggerCreated, document
	case h.body.Document != document:
		return Foreign(op, belay.WebhookKind, p.Name)
	case p.same(h):
		return nil
	}
	t.add(belay.WebhookKind, p.Name, change, func(w *world, actor, reason string) error {
		put := *p
		put.Actor, put.Reason = actor, reason
		_, err := put.set(w, op, h, edit{Action: "put"})
		return err
	})
	return nil
}

// rest adds the removal of those that the document had and does not have any more, and counts all.
func (t *triggers) rest(w *world, op string, d *document) error {
	for _, name := range d.body.Schedules {
		if slices.Contains(t.owned.Schedules, name) {
			continue
		}
		s, err := w.schedule(name)
		if err != nil {
			return err
		}
		if s.row == nil || s.body.Document != d.name { // no command makes it so
			continue
		}
		t.add(belay.ScheduleKind, name, belay.TriggerRemoved, func(w *world, actor, reason string) error {
			_, err := s.remove(w, op, edit{Action: string(belay.ScheduleRemove)}, actor, reason)
			return err
		})
	}
	for _, name := range d.body.Webhooks {
		if slices.Contains(t.owned.Webhooks, name) {
			continue
		}
		h, err := w.webhook(name)
		if err != nil {
			return err
		}
		if h.row == nil || h.body.Document != d.name {
			continue
		}
		t.add(belay.WebhookKind, name, belay.TriggerRemoved, func(w *world, actor, reason string) error {
			_, err := h.remove(w, op, edit{Action: string(belay.WebhookRemove)}, actor, reason)
			return err
		})
	}
	return t.count(w, op)
}

// count prepares the numbers of schedules and webhooks.
func (t *triggers) count(w *world, op string) error {
	by := func(kind belay.TriggerKind) (n int) {
		for _, x := range t.list {
			switch {
			case x.Kind != kind:
			case x.Change == belay.TriggerCreated:
				n++
			case x.Change == belay.TriggerRemoved:
				n--
			}
		}
		return n
	}
	for _, x := range []struct {
		of   codec[total]
		kind belay.TriggerKind
		most int
	}{
		{scheduleCountCodec, belay.ScheduleKind, belay.MaxSchedules},
		{webhookCountCodec, belay.WebhookKind, belay.MaxWebhooks},
	} {
		write, err := w.counting(op, x.of, string(x.kind)+"s", by(x.kind), x.most)
		if err != nil {
			return err
		}
		t.counted = append(t.counted, write)
	}
	return nil
}
