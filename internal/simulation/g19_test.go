package simulation

import (
	"encoding/json"
	"slices"

	"github.com/belaydev/belay"
)

// g19 checks that each end of an execution is reported once. The commit that ends a generation of an execution has one
// delivery for each notification that reports this end, and no other commit has deliveries of that generation.
func g19(f *finding) {
	c := &endChecker{finding: f, sent: make(map[end]map[int]belay.State), last: make(map[belay.ExecutionID]row)}
	t := &targetChecker{finding: f, last: c.last, alerted: make(map[string]bool)}
	for _, x := range f.commits {
		t.commit(x)
		c.commit(x)
	}
}

type endChecker struct {
	*finding
	sent map[end]map[int]belay.State // by target, the states that the deliveries of an end report
	last map[belay.ExecutionID]row
}

// end is the end of a generation of an execution.
type end struct {
	id         belay.ExecutionID
	generation int
}

func (f *endChecker) commit(c *commit) {
	now := make(map[belay.ExecutionID]row)
	for _, e := range c.changes.Executions {
		now[e.ID] = row{e, c}
	}
	for _, s := range c.changes.Specs {
		if belay.IsNotificationID(s.Execution) && s.Generation == 1 && s.Labels[belay.LabelNotificationTarget] == "" {
			f.delivery(c, now, s.Execution, s.TriggerPayload)
		}
	}
	for id, r := range now {
		was, old := f.last[id]
		if f.last[id] = r; len(r.Notify) == 0 && (!old || len(was.Notify) == 0) {
			continue
		}
		if old && !slices.EqualFunc(was.Notify, r.Notify, func(a, b belay.Notification) bool {
			return a.URL == b.URL && slices.Equal(a.On, b.On)
		}) {
			f.violation(f.byID[id], c, "its notifications have changed")
			continue
		}
		first := 1
		if old {
			if first = was.Generation; was.State.Terminal() {
				first++
			}
		}
		for g := first; g < r.Generation; g++ {
			f.reopened(c, r, end{id, g})
		}
		if first <= r.Generation && r.State.Terminal() {
			f.ended(c, r, end{id, r.Generation})
		}
	}
}

// delivery checks that a new delivery reports an end that is in the same commit.
func (f *endChecker) delivery(c *commit, now map[belay.ExecutionID]row, id belay.ExecutionID, payload []byte) {
	var p belay.NotificationPayload
	err := json.Unmarshal(payload, &p)
	if err != nil || id != belay.NotificationID(p.Execution, p.Generation, p.Target) {
		f.violation(f.byID[id], c, "its id is not the id of the end %s: %v", payload, err)
		return
	}
	x, written := now[p.Execution]
	was, old := f.last[p.Execution]
	open := !old && p.Generation >= 1 || old && (p.Generation > was.Generation ||
		p.Generation == was.Generation && !was.State.Terminal())
	over := written && (p.Generation < x.Generation || p.Generation == x.Generation && x.State == p.State)
	if !open || !over || !p.State.Terminal() {
		f.violation(f.byID[id], c, "generation %d of %s did not end as %s in this commit", p.Generation,
			short(p.Execution), p.State)
		return
	}
	if n := x.Notify; p.Target >= len(n) || !reports(n[p.Target], p.State) {
		f.violation(f.byID[id], c, "it reports an end that its notification excludes: %s", payload)
	}
	if f.byID[id].rows[0].Workflow != belay.NotificationWorkflow || len(f.byID[id].rows[0].Notify) > 0 {
		f.violation(f.byID[id], c, "it is no delivery: %+v", *f.byID[id].rows[0].Execution)
	}
	ref := end{p.Execution, p.Generation}
	if f.sent[ref] == nil {
		f.sent[ref] = make(map[int]belay.State)
	}
	f.sent[ref][p.Target] = p.State
	f.count("end reported")
	if p.Generation > 1 {
		f.count("end of a later generation reported")
	}
}

func reports(n belay.Notification, s belay.State) bool {
	return slices.Contains(n.On, s) || len(n.On) == 0 && s == belay.Failed
}

// ended checks the deliveries of a generation that has just ended.
func (f *endChecker) ended(c *commit, r row, ref end) {
	for i, n := range r.Notify {
		switch state, there := f.sent[ref][i]; {
		case reports(n, r.State) && !there:
			f.violation(f.byID[ref.id], c, "the end of generation %d has no delivery for target %d", ref.generation, i)
		case there && state != r.State:
			f.violation(f.byID[ref.id], c, "generation %d is %s and was reported as %s", ref.generation, r.State, state)
		}
	}
	f.OK()
}

// reopened checks the deliveries of a generation that has ended and was reopened in the same commit. No row says in
// which state it ended, except that it was failed or cancelled.
func (f *endChecker) reopened(c *commit, r row, ref end) {
	possible := false
	for _, s := range []belay.State{belay.Failed, belay.Cancelled} {
		fits := true
		for i, n := range r.Notify {
			state, there := f.sent[ref][i]
			fits = fits && there == reports(n, s) && (!there || state == s)
		}
		possible = possible || fits
	}
	if !possible {
		f.violation(f.byID[ref.id], c, "the reopened generation %d has the wrong deliveries: %v", ref.generation,
			f.sent[ref])
	}
	f.OK()
}
