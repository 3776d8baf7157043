package machine

import (
	"encoding/json"
	"slices"

	"github.com/belaydev/belay"
)

// checkDeliveries checks guarantee G19: each end of an execution has one delivery for each notification that reports
// it, and there is no other delivery.
func checkDeliveries(f *faults, k *keeper) {
	for id, r := range k.records {
		switch e := r.execution; {
		case e == nil:
		case belay.IsNotificationID(id):
			checkDelivery(f, k, &r)
		case e.Workflow == belay.PublishWorkflow:
			f.add("G19", "%s publishes to an exchange, and is no delivery", id)
		default:
			checkReported(f, k, e)
		}
	}
}

// checkReported checks that the present end of an execution has its deliveries.
func checkReported(f *faults, k *keeper, e *Execution) {
	for i, n := range e.Notify {
		there := k.records[belay.NotificationID(e.ID, e.Generation, i)].execution != nil
		want := e.State.Terminal() && reports(&n, e.State)
		if there != want {
			f.add("G19", "%s is %s in generation %d; target %d has a delivery: %t", e.ID, e.State, e.Generation, i,
				there)
		}
	}
	if k.targets == nil {
		return
	}
	for i := range k.targets.all {
		t := &k.targets.all[i].Terms
		there := k.records[belay.TargetNotificationID(e.ID, e.Generation, t.Name)].execution != nil
		want := e.State.Terminal() && e.Parent.IsZero() && t.Reports(e.State)
		for name, value := range t.Labels {
			want = want && k.records[e.ID].specs[0].Labels[name] == value
		}
		if there != want {
			f.add("G19", "%s is %s in generation %d; the target %s has a delivery: %t", e.ID, e.State, e.Generation,
				t.Name, there)
		}
	}
}

// checkDelivery checks that a delivery reports an end, and an earlier generation the end that its dead letter says.
func checkDelivery(f *faults, k *keeper, r *record) {
	e, s := r.execution, r.specs[0]
	var p belay.NotificationPayload
	if err := json.Unmarshal(s.TriggerPayload, &p); err != nil {
		f.add("G19", "the payload of the delivery %s: %v", e.ID, err)
		return
	}
	of := k.records[p.Execution]
	switch x := of.execution; {
	case p.Execution.IsZero(): // an alert
	case p.Name != "":
		if e.ID != belay.TargetNotificationID(p.Execution, p.Generation, p.Name) || x == nil || !x.Parent.IsZero() {
			f.add("G19", "%s is the delivery of nothing: %s", e.ID, s.TriggerPayload)
		}
	case e.ID != belay.NotificationID(p.Execution, p.Generation, p.Target) || x == nil:
		f.add("G19", "%s is the delivery of nothing: %s", e.ID, s.TriggerPayload)
	case p.Target >= len(x.Notify) || p.Generation > x.Generation || p.Generation == x.Generation && p.State != x.State:
		f.add("G19", "%s reports an end that there was not: %s", e.ID, s.TriggerPayload)
	case !reports(&x.Notify[p.Target], p.State):
		f.add("G19", "%s reports an end that its notification excludes: %s", e.ID, s.TriggerPayload)
	case !x.policy().NoDeadLetters && (p.State == belay.Failed) != hasLetter(&of, p.Generation):
		f.add("G19", "%s reports another state than there was: %s", e.ID, s.TriggerPayload)
	}
	sends := e.Workflow == "http" || e.Workflow == belay.PublishWorkflow && len(r.specs) == 1 &&
		s.Labels[belay.LabelNotificationTarget] != ""
	if len(e.Notify) > 0 || !e.Parent.IsZero() || !sends || s.Trigger != belay.TriggerNotification {
		f.add("G19", "%s is no delivery: %+v", e.ID, *e)
	}
}

func reports(n *belay.Notification, s belay.State) bool {
	return slices.Contains(n.On, s) || len(n.On) == 0 && s == belay.Failed
}

func hasLetter(r *record, generation int) bool {
	return slices.ContainsFunc(r.letters, func(d *DeadLetter) bool { return d.Generation == generation })
}

// notificationsBy returns the notifications of a submission with this id, which are none for most ids. They are not
// drawn at random, so that the other choices of a history do not depend on them.
func notificationsBy(id belay.ExecutionID) []belay.Notification {
	const ends = belay.Cancelled - belay.Succeeded + 1
	n := int(id[15])
	if n%4 != 2 {
		return nil
	}
	other := belay.Succeeded + belay.State(n/8)%ends
	all := []belay.Notification{
		{URL: "https://a.example/h", On: []belay.State{belay.Failed, belay.Cancelled}},
		{URL: "https://b.example/h", On: []belay.State{other}}, {URL: "https://c.example/h"},
	}
	return all[:1+n/4%2*2]
}

// testTargets are targets of notifications for random histories.
func testTargets() *Targets {
	target := func(name string, on ...belay.State) notifyTarget {
		return notifyTarget{Terms: belay.NotificationTarget{
			Name: name, Notification: belay.Notification{URL: "https://" + name + ".example/h", On: on},
		}}
	}
	all := []notifyTarget{target("all", anyEnd...), target("failed"), target("odd", anyEnd...), target("other")}
	all[1].Terms.URL, all[1].Terms.Exchange = "", "failed.events"
	all[2].Terms.Labels = map[string]string{"odd": "yes"}
	all[3].Terms.Alerts = []belay.Alert{belay.AlertDeadLetter} // and no ends
	return &Targets{all}
}

// targetMutants are the planted bugs of targets of notifications.
var targetMutants = []mutant{
	{name: "a delivery to a target is not written with the end", promise: "G19", write: func(k *keeper, c *Changes) {
		gone := func(id belay.ExecutionID) bool {
			i := slices.IndexFunc(c.Specs, func(s *Spec) bool { return s.Execution == id })
			return belay.IsNotificationID(id) && i >= 0 && c.Specs[i].Labels[belay.LabelNotificationTarget] == "all"
		}
		c.Executions = slices.DeleteFunc(c.Executions, func(e *Execution) bool { return gone(e.ID) })
		c.Keys = slices.DeleteFunc(c.Keys, func(r KeyRow) bool { return gone(r.Execution) })
		c.Places = slices.DeleteFunc(c.Places, func(p *Place) bool { return gone(p.Execution) })
		c.Specs = slices.DeleteFunc(c.Specs, func(s *Spec) bool { return gone(s.Execution) })
	}},
	{name: "labels of executions that end are not loaded", promise: "G19", read: func(_ *keeper, r *Rows) {
		r.Specs = nil
	}},
	{name: "a batch that ends executions has no targets", promise: "G19", read: func(k *keeper, r *Rows) {
		if slices.ContainsFunc(k.folding, func(c Command) bool { _, lost := c.(*Lose); return lost }) {
			r.Targets = nil
		}
	}},
}

// notifyMutants are the planted bugs of notifications.
var notifyMutants = []mutant{
	{name: "a delivery is not written with the end", promise: "G19", write: func(_ *keeper, c *Changes) {
		c.Executions = slices.DeleteFunc(c.Executions, func(e *Execution) bool { return belay.IsNotificationID(e.ID) })
		c.Specs = slices.DeleteFunc(c.Specs, func(s *Spec) bool { return belay.IsNotificationID(s.Execution) })
		c.Keys = slices.DeleteFunc(c.Keys, func(r KeyRow) bool { return belay.IsNotificationID(r.Execution) })
		c.Places = slices.DeleteFunc(c.Places, func(p *Place) bool { return belay.IsNotificationID(p.Execution) })
	}},
	{name: "a reopening keeps the generation of its deliveries", promise: "G19", write: eachDelivery(
		func(e *Execution, s *Spec) {
			var p belay.NotificationPayload
			if json.Unmarshal(s.TriggerPayload, &p) == nil && p.Generation > 1 {
				e.ID = belay.NotificationID(p.Execution, p.Generation+1, p.Target)
				s.Execution = e.ID
			}
		})},
	{name: "the state of an end is reported as another", promise: "G19", write: eachDelivery(
		func(_ *Execution, s *Spec) {
			var p belay.NotificationPayload
			if json.Unmarshal(s.TriggerPayload, &p) == nil && p.State == belay.Cancelled {
				p.State = belay.Failed
				s.TriggerPayload, _ = json.Marshal(p)
			}
		})},
	{name: "ends are reported whatever their state", promise: "G19", read: func(_ *keeper, r *Rows) {
		for _, e := range r.Executions {
			e.Notify = slices.Clone(e.Notify)
			for i := range e.Notify {
				e.Notify[i].On = []belay.State{belay.Succeeded, belay.Failed, belay.Cancelled}
			}
		}
	}, write: eachChanged(func(is, was *Execution) { is.Notify = was.Notify })},
}

// eachDelivery makes a planted bug from a function, which it calls for each delivery that a batch writes.
func eachDelivery(with func(*Execution, *Spec)) func(*keeper, *Changes) {
	return func(_ *keeper, c *Changes) {
		c.Keys, c.Places = nil, nil
		for _, s := range c.Specs {
			for _, e := range c.Executions {
				if e.ID == s.Execution && e.New && belay.IsNotificationID(e.ID) {
					with(e, s)
				}
			}
		}
	}
}
