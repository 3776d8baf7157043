package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// putTo sets the target t.
func putTo(with ...func(*belay.NotificationTargetPut)) *PutTarget {
	c := &PutTarget{belay.NotificationTargetPut{NotificationTarget: belay.NotificationTarget{
		Name: "t", Notification: belay.Notification{URL: "https://t.example/h"},
	}, Actor: "ann"}}
	for _, f := range with {
		f(&c.NotificationTargetPut)
	}
	return c
}

func changeTo(action belay.NotificationTargetAction, with ...func(*belay.NotificationTargetChange)) *ChangeTarget {
	c := &ChangeTarget{belay.NotificationTargetChange{Name: "t", Action: action, Actor: "ann"}}
	for _, f := range with {
		f(&c.NotificationTargetChange)
	}
	return c
}

// targetsNow describes all targets, and when the engine looks for alerts.
func (s *stage) targetsNow() string {
	s.t.Helper()
	list, err := TargetsOf(s.objects[TargetsRef()])
	if err != nil {
		s.t.Fatal(err)
	}
	var text []string
	for _, v := range list.View() {
		one := fmt.Sprintf("%s v%d", v.Name, v.Version)
		if v.Paused != nil {
			one += " paused"
		}
		text = append(text, one)
	}
	if o := s.objects[AlertsRef()]; o != nil && o.NextAt != 0 {
		text = append(text, "watched")
	}
	return strings.Join(text, ", ")
}

// targetStep is a command about targets, and the description of the targets afterwards.
type targetStep struct {
	c    func(*stage) Command
	code belay.Code // empty if the command is accepted
	want string
}

func targetSteps() []targetStep {
	put := func(with ...func(*belay.NotificationTargetPut)) func(*stage) Command {
		return func(*stage) Command { return putTo(with...) }
	}
	type edit = func(*belay.NotificationTargetChange)
	change := func(a belay.NotificationTargetAction, with ...edit) func(*stage) Command {
		return func(*stage) Command { return changeTo(a, with...) }
	}
	url := func(u string) func(*belay.NotificationTargetPut) {
		return func(p *belay.NotificationTargetPut) { p.URL = u }
	}
	name := func(n string) func(*belay.NotificationTargetPut) {
		return func(p *belay.NotificationTargetPut) { p.Name = n }
	}
	version := func(n int) func(*belay.NotificationTargetPut) {
		return func(p *belay.NotificationTargetPut) { p.IfVersion = n }
	}
	op := func(n byte) func(*belay.NotificationTargetPut) {
		return func(p *belay.NotificationTargetPut) { p.Op = belay.OpID{n} }
	}
	changeOp := func(n byte) func(*belay.NotificationTargetChange) {
		return func(c *belay.NotificationTargetChange) { c.Op = belay.OpID{n} }
	}
	fresh := func(p *belay.NotificationTargetPut) { p.IfNew = true }
	alerts := func(all ...belay.Alert) func(*belay.NotificationTargetPut) {
		return func(p *belay.NotificationTargetPut) { p.Alerts = all }
	}
	labels := func(n int) func(*belay.NotificationTargetPut) {
		return func(p *belay.NotificationTargetPut) {
			p.Labels = map[string]string{}
			for i := range n {
				p.Labels[fmt.Sprint("l", i)] = "x"
			}
		}
	}
	patterns := func(all ...string) func(*belay.NotificationTargetPut) {
		return func(p *belay.NotificationTargetPut) { p.Workflows = all }
	}
	test := func(n byte, target string) func(*stage) Command {
		return func(*stage) Command {
			return &TestTarget{belay.NotificationTargetTest{Name: target, Actor: "ann", Op: belay.OpID{n}}}
		}
	}
	raise := func(version int64) func(*stage) Command {
		return func(*stage) Command { return &RaiseAlerts{Version: version} }
	}
	const pause, resume, remove = belay.NotificationTargetPause, belay.NotificationTargetResume,
		belay.NotificationTargetRemove
	return []targetStep{
		{put(name("a/b")), belay.CodeInvalid, ""},
		{put(url("ftp://x")), belay.CodeInvalid, ""},
		{put(url("https://u:p@x/")), belay.CodeInvalid, ""},
		{put(alerts("odd")), belay.CodeInvalid, ""},
		{put(alerts(belay.AlertTest)), belay.CodeInvalid, ""},
		{put(alerts(belay.AlertNoWorker, belay.AlertNoWorker)), belay.CodeInvalid, ""},
		{put(labels(belay.MaxLabels + 1)), belay.CodeInvalid, ""},
		{put(patterns("")), belay.CodeInvalid, ""},
		{put(patterns("*a*b*c*d*e")), belay.CodeInvalid, ""},
		{put(patterns(slices.Repeat([]string{"x"}, belay.MaxTargetPatterns+1)...)), belay.CodeInvalid, ""},
		{put(patterns(slices.Repeat([]string{strings.Repeat("x", 200)}, 20)...), func(p *belay.NotificationTargetPut) {
			p.Queues, p.URL = p.Workflows, p.URL+strings.Repeat("x", 2000)
		}), belay.CodePayloadTooLarge, ""},
		{change(pause), belay.CodeNotFound, ""},
		{test(1, "t"), belay.CodeNotFound, ""},
		{raise(0), belay.CodeConflict, ""},
		{put(version(1)), belay.CodeConflict, ""},
		{put(fresh, op(1)), "", "t v1"},
		{put(fresh, op(1)), "", "t v1"},
		{put(fresh), belay.CodeConflict, "t v1"},
		{change(pause, changeOp(1)), belay.CodeIdempotencyMismatch, "t v1"},
		{put(url("https://another/"), op(1)), belay.CodeIdempotencyMismatch, "t v1"},
		{put(), "", "t v1"},
		{put(url("https://other/"), version(2)), belay.CodeConflict, "t v1"},
		{put(url("https://other/"), version(1)), "", "t v2"},
		{put(name("a")), "", "a v1, t v2"},
		{put(name("z"), alerts(belay.AlertNoWorker)), "", "a v1, t v2, z v1, watched"},
		{raise(7), belay.CodeConflict, "a v1, t v2, z v1, watched"},
		{raise(1), "", "a v1, t v2, z v1, watched"},
		{raise(1), belay.CodeConflict, "a v1, t v2, z v1, watched"},
		{change(pause, func(c *belay.NotificationTargetChange) { c.Name = "z" }), "", "a v1, t v2, z v2 paused"},
		{change(pause), "", "a v1, t v3 paused, z v2 paused"},
		{change(pause), "", "a v1, t v3 paused, z v2 paused"},
		{test(2, "t"), "", "a v1, t v3 paused, z v2 paused"},
		{test(2, "t"), "", "a v1, t v3 paused, z v2 paused"},
		{test(0, "t"), belay.CodeInvalid, "a v1, t v3 paused, z v2 paused"},
		{change(resume), "", "a v1, t v4, z v2 paused"},
		{change("burn"), belay.CodeInvalid, "a v1, t v4, z v2 paused"},
		{change(remove, func(c *belay.NotificationTargetChange) { c.IfVersion = 3 }), belay.CodeConflict,
			"a v1, t v4, z v2 paused"},
		{change(remove, changeOp(9)), "", "a v1, z v2 paused"},
		{change(remove, changeOp(9)), "", "a v1, z v2 paused"}, // the repetition of a removal
		{change(remove), belay.CodeNotFound, "a v1, z v2 paused"},
		{put(fresh, op(1)), belay.CodeNotFound, "a v1, z v2 paused"}, // what it has created was removed
		{put(), "", "a v1, t v1, z v2 paused"},
	}
}

// Rule: each change of the targets leads from one state to another, or is refused.
func TestTargetsChangeByTheRules(t *testing.T) {
	s := newStage(t)
	for i, x := range targetSteps() {
		c := x.c(s)
		t.Logf("step %d", i)
		if x.code != "" {
			s.refused(c, x.code)
		} else {
			s.do(c)
		}
		if got := s.targetsNow(); got != x.want {
			t.Fatalf("step %d, %T: %s, want %s", i, c, got, x.want)
		}
	}
	if n := len(s.records); n != 1 {
		t.Errorf("%d deliveries of one test", n)
	}
}

func TestThereAreNotTooManyTargets(t *testing.T) {
	s := newStage(t)
	for i := range belay.MaxNotificationTargets + 1 {
		c := putTo(func(p *belay.NotificationTargetPut) { p.Name = fmt.Sprint(i) })
		if i < belay.MaxNotificationTargets {
			s.do(c)
		} else {
			s.refused(c, belay.CodeConflict)
		}
	}
	s.do(putTo(func(p *belay.NotificationTargetPut) { p.Name, p.URL = "7", "https://other/" }))
}

// Rule G19: an end is reported to the targets that select it, once for each generation, and to no other.
func TestATargetGetsTheEndsThatItSelects(t *testing.T) {
	failed, succeeded := []belay.State{belay.Failed}, []belay.State{belay.Succeeded}
	for name, c := range map[string]struct {
		target belay.NotificationTarget
		want   bool
	}{
		"default":     {belay.NotificationTarget{}, true},
		"failed":      {belay.NotificationTarget{Notification: belay.Notification{On: failed}}, true},
		"succeeded":   {belay.NotificationTarget{Notification: belay.Notification{On: succeeded}}, false},
		"alerts only": {belay.NotificationTarget{Alerts: belay.Alerts}, false},
		"alerts and end": {belay.NotificationTarget{
			Alerts: belay.Alerts, Notification: belay.Notification{On: failed},
		}, true},
		"workflow":       {belay.NotificationTarget{Workflows: []string{"x", "job"}}, true},
		"other workflow": {belay.NotificationTarget{Workflows: []string{"jobs", "jo"}}, false},
		"pattern":        {belay.NotificationTarget{Workflows: []string{"j*"}}, true},
		"queue":          {belay.NotificationTarget{Queues: []string{"def*lt"}}, true},
		"other queue":    {belay.NotificationTarget{Queues: []string{"def*lx"}, Workflows: []string{"job"}}, false},
		"labels":         {belay.NotificationTarget{Labels: map[string]string{"team": "web"}}, true},
		"more labels":    {belay.NotificationTarget{Labels: map[string]string{"team": "web", "x": ""}}, false},
		"other labels":   {belay.NotificationTarget{Labels: map[string]string{"team": "ops"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			w := s.worker("w")
			s.do(putTo(func(p *belay.NotificationTargetPut) {
				on, url := c.target.On, p.URL
				p.NotificationTarget = c.target
				p.Name, p.URL, p.On = "t", url, on
			}))
			l := s.run(w, policy(belay.Policy{MaxAttempts: 1}), func(x *belay.Submission) {
				x.Labels = map[string]string{"team": "web"}
			})
			s.do(s.settle(l, belay.OutcomeFailed))
			d := s.records[belay.TargetNotificationID(l.Execution, 1, "t")]
			if (d.execution != nil) != c.want {
				t.Fatalf("there is a delivery: %t", d.execution != nil)
			}
			if !c.want {
				if len(s.records) != 1 {
					t.Errorf("there are %d executions", len(s.records))
				}
				return
			}
			spec, e := d.specs[0], d.execution
			var p belay.NotificationPayload
			if err := json.Unmarshal(spec.TriggerPayload, &p); err != nil || p.Name != "t" || p.State != belay.Failed ||
				p.Execution != l.Execution || spec.Trigger != belay.TriggerNotification ||
				spec.Labels[belay.LabelNotificationTarget] != "t" ||
				spec.Labels[belay.LabelNotification] != l.Execution.String() ||
				!strings.HasPrefix(e.Gates.Target, "notification:t.example:") {
				t.Errorf("%v: the delivery is %+v, %+v", err, e, spec)
			}
			s.do(s.act(l.Execution, belay.ActionRetry))
			s.do(s.settle(s.win(w), belay.OutcomeFailed))
			if s.records[belay.TargetNotificationID(l.Execution, 2, "t")].execution == nil {
				t.Error("the second generation is not reported")
			}
		})
	}
}

// A target gets neither the ends of children nor those of deliveries, and nothing while it is paused.
func TestTargetsGetNoEndsOfChildrenAndDeliveries(t *testing.T) {
	s := newStage(t)
	w := s.worker("w", func(x *belay.WorkerSpec) {
		x.Workflows = append(x.Workflows, belay.Registration{Workflow: "http"})
	})
	s.do(putTo(func(p *belay.NotificationTargetPut) { p.On = anyEnd }))
	s.do(changeTo(belay.NotificationTargetPause))
	first := s.run(w)
	s.do(s.settle(first, belay.OutcomeSucceeded))
	s.do(changeTo(belay.NotificationTargetResume))
	parent := s.run(w)
	child := s.submit(s.childOf(parent, "c"))
	s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
	s.do(s.settle(parent, belay.OutcomeSucceeded))
	s.sweepGates()
	s.do(s.settle(s.win(w), belay.OutcomeSucceeded))
	if n := len(s.records); n != 4 || s.row(child).State != belay.Succeeded ||
		s.records[belay.TargetNotificationID(parent.Execution, 1, "t")].execution == nil {
		t.Errorf("there are %d executions", n)
	}
}

func TestPatternsMatchNames(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "a", true}, {"a*", "ba", false}, {"*", "", true},
		{"*b", "ab", true}, {"*b", "abc", false}, {"a*b", "ab", true}, {"a*b", "a", false}, {"ab*ba", "aba", false},
		{"a*b*c", "a1b2c", true},
		{"a*b*c", "acb", false}, {"a**c", "abc", true}, {"*a*", "bab", true}, {"*a*", "b", false}, {"", "a", false},
		{"a*a*a", "aa", false}, {"x.*", "xy", false},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("%q matches %q: %t", c.pattern, c.name, got)
		}
	}
}

// alertsTo returns the alerts that a target got, by the time of their creation.
func (s *stage) alertsTo(name string) string {
	s.t.Helper()
	var all []string
	for id, r := range s.records {
		var p belay.AlertPayload
		if !belay.IsNotificationID(id) || json.Unmarshal(r.specs[0].TriggerPayload, &p) != nil || p.Name != name {
			continue
		}
		var in struct{ Body belay.AlertEvent }
		if err := json.Unmarshal(r.specs[0].Input, &in); err != nil {
			s.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%06d %s: %s", r.execution.CreatedAt.Sub(began)/time.Second, in.Body.Type,
			in.Body.Data.Text))
	}
	slices.Sort(all)
	for i := range all {
		all[i] = all[i][7:]
	}
	return strings.Join(all, "; ")
}

// look looks for alerts as the engine does.
func (s *stage) look(with func(*RaiseAlerts)) {
	s.t.Helper()
	c := &RaiseAlerts{Version: s.objects[AlertsRef()].Version, LettersAt: s.now}
	with(c)
	s.do(c)
}

// Rule: an alert is sent once, to the targets that want it and select what it is about.
func TestAlertsAreRaisedOnce(t *testing.T) {
	s := newStage(t)
	target := func(name string, alerts []belay.Alert, workflows ...string) {
		s.do(putTo(func(p *belay.NotificationTargetPut) { p.Name, p.Alerts, p.Workflows = name, alerts, workflows }))
	}
	letter := func(n byte, workflow string) belay.AlertLetter {
		return belay.AlertLetter{
			Execution: belay.ExecutionID{n}, Generation: 1, Workflow: workflow, At: s.now.Time(),
			Message: strings.Repeat("x", 1000),
		}
	}
	lane := func(n LaneID, workflow string) UnstaffedLane {
		return UnstaffedLane{n, belay.AlertLane{Queue: "q", Workflow: workflow}}
	}
	old := letter(1, "before")
	s.pass(time.Second)
	target("all", belay.Alerts)
	target("some", belay.Alerts, "b*")
	target("none", nil)
	first, second := letter(2, "build"), letter(3, "<@deploy>")
	found := func(c *RaiseAlerts) {
		c.Letters = []belay.AlertLetter{first, second, old}
		c.Breakers = []belay.AlertBreaker{{Target: "pay"}, {Target: "notification:x:1"}}
		c.Lanes = []UnstaffedLane{lane(1, "build"), lane(2, "deploy")}
	}
	s.look(found)
	want := func(all, some string) {
		t.Helper()
		if got := s.alertsTo("all"); got != all {
			t.Errorf("the alerts to all are\n%s, want\n%s", got, all)
		}
		if got := s.alertsTo("some"); got != some {
			t.Errorf("the alerts to some are\n%s, want\n%s", got, some)
		}
	}
	none := belay.ExecutionID{}.String()
	const pay = "alert.breaker_open: 1 circuit breaker opened: pay; `belay gates ls` shows them"
	all := pay + "; alert.dead_letter: 2 dead letters arrived: build, <@deploy>; `belay dead ls` lists them"
	some := pay + "; alert.dead_letter: 1 dead letter arrived: build; `belay dead ls` lists them"
	want(all, some)
	s.look(found)
	s.pass(belay.NoWorkerAlertAfter - time.Second)
	s.look(found)
	want(all, some)
	if next := s.objects[AlertsRef()].NextAt; next != s.now.Add(time.Second) {
		t.Errorf("the next look is at %s", next.Time())
	}
	s.pass(time.Second)
	s.look(found)
	all += "; alert.no_worker: no worker for build in queue q, deploy in queue q; `belay explain " + none + "` says why"
	some += "; alert.no_worker: no worker for build in queue q; `belay explain " + none + "` says why"
	want(all, some)
	s.pass(time.Hour)
	s.look(found) // nothing is new, although the object has forgotten old dead letters
	want(all, some)
	s.look(func(*RaiseAlerts) {}) // the breaker has closed, and the lanes have workers
	s.look(func(c *RaiseAlerts) { c.Breakers = []belay.AlertBreaker{{Target: "pay"}} })
	want(all+"; "+pay, some+"; "+pay)
	if n := s.alertsTo("none"); n != "" {
		t.Errorf("a target that wants no alerts got %s", n)
	}
	s.do(changeTo(belay.NotificationTargetRemove, func(c *belay.NotificationTargetChange) { c.Name = "all" }))
	s.do(changeTo(belay.NotificationTargetPause, func(c *belay.NotificationTargetChange) { c.Name = "some" }))
	s.look(func(c *RaiseAlerts) { c.Breakers = []belay.AlertBreaker{{Target: "other"}} })
	want(all+"; "+pay, some+"; "+pay)
	if o := s.objects[AlertsRef()]; o.NextAt != 0 || string(o.Body) != "{}" {
		t.Errorf("no target wants alerts, and the object is %s at %d", o.Body, o.NextAt)
	}
}

// The objects of the alerts and the alerts themselves stay small, however much there is to say.
func TestAlertsAreBounded(t *testing.T) {
	s := newStage(t)
	s.do(putTo(func(p *belay.NotificationTargetPut) { p.Alerts, p.Format = belay.Alerts, belay.FormatSlack }))
	s.do(putTo(func(p *belay.NotificationTargetPut) { p.Name, p.Alerts = "u", belay.Alerts }))
	var lanes []UnstaffedLane
	s.look(func(c *RaiseAlerts) {
		for i := range 1000 {
			name := fmt.Sprintf("<!here> %d%s", i, strings.Repeat("y", 180))
			c.Letters = append(c.Letters, belay.AlertLetter{
				Execution: belay.ExecutionID{1, byte(i >> 8), byte(i)}, Generation: 1, Workflow: name, At: s.now.Time(),
			})
			c.Breakers = append(c.Breakers, belay.AlertBreaker{Target: name})
			labels := make(map[string]string)
			for k := range belay.MaxLabels {
				labels[fmt.Sprint(k, strings.Repeat("<", 190))] = strings.Repeat("<", 200)
			}
			c.Lanes = append(c.Lanes, UnstaffedLane{LaneID(i), belay.AlertLane{
				Queue: name, Workflow: name, Labels: labels,
			}})
		}
		c.MoreLetters = true
		lanes = c.Lanes
	})
	s.pass(belay.NoWorkerAlertAfter)
	s.look(func(c *RaiseAlerts) { c.Lanes = lanes })
	if got := s.alertsTo("u"); !strings.Contains(got, "no worker for") {
		t.Errorf("the alerts are %.300s", got)
	}
	if n := len(s.objects[AlertsRef()].Body); n > 200<<10 {
		t.Errorf("the object has %d bytes", n)
	}
	for id, r := range s.records {
		if in := string(r.specs[0].Input); len(in) > 100<<10 || strings.Contains(in, "<!here>") ||
			r.execution.Gates.Target == "" {
			t.Errorf("the delivery %s has %d bytes", id, len(in))
		}
	}
	if got := s.alertsTo("u"); !strings.Contains(got, "more than 1000 dead letters") {
		t.Errorf("the alerts are %.300s", got)
	}
}

// A look that is slow loses no dead letter that was written after it had read them.
func TestASlowLookLosesNoDeadLetter(t *testing.T) {
	s := newStage(t)
	s.do(putTo(func(p *belay.NotificationTargetPut) { p.Alerts = belay.Alerts }))
	read := s.now
	s.pass(time.Second)
	late := belay.AlertLetter{Execution: belay.ExecutionID{5}, Generation: 1, Workflow: "job", At: s.now.Time()}
	s.pass(10 * letterOverlap)
	s.look(func(c *RaiseAlerts) { c.LettersAt = read })
	state, err := AlertStateOf(s.objects[AlertsRef()])
	if err != nil || state.LettersFrom > At(late.At) {
		t.Fatalf("%v: dead letters count from %s, and this one is of %s", err, state.LettersFrom.Time(), late.At)
	}
	s.look(func(c *RaiseAlerts) { c.Letters = []belay.AlertLetter{late} })
	if got := s.alertsTo("t"); !strings.Contains(got, "1 dead letter arrived: job") {
		t.Errorf("the alerts are %q", got)
	}
}

// A target learns of a flood in which its own dead letters may be hidden.
func TestAFloodOfDeadLettersIsAnAlert(t *testing.T) {
	s := newStage(t)
	s.do(putTo(func(p *belay.NotificationTargetPut) { p.Alerts, p.Workflows = belay.Alerts, []string{"mine"} }))
	s.look(func(c *RaiseAlerts) {
		c.Letters = []belay.AlertLetter{{Execution: belay.ExecutionID{5}, Generation: 1, Workflow: "x"}}
		c.MoreLetters = true
	})
	if got := s.alertsTo("t"); !strings.Contains(got, "not all could be examined") {
		t.Errorf("the alerts are %q", got)
	}
}

// Many ends with many deliveries take time in proportion to their number. A quadratic batch would take minutes.
func TestManyDeliveriesAreQuick(t *testing.T) {
	const ends = 1000
	rows := &Rows{Now: began, Targets: &Targets{}}
	for i := range belay.MaxNotificationTargets {
		x := notifyTarget{Terms: putTo().NotificationTarget}
		x.Terms.Name, x.Terms.On = fmt.Sprint("t", i), anyEnd
		rows.Targets.all = append(rows.Targets.all, x)
	}
	var commands []Command
	for i := range ends {
		id := belay.ExecutionID{1, byte(i >> 8), byte(i)}
		rows.Executions = append(rows.Executions, &Execution{
			ID: id, Workflow: "w", Queue: "q", State: belay.Pending, Seq: 1, Generation: 1,
		})
		commands = append(commands, &Act{belay.Control{Execution: id, Action: belay.ActionCancel}})
	}
	changes, _ := Fold(rows, commands)
	if n := len(changes.Specs); n != ends*belay.MaxNotificationTargets || len(changes.Places) != n {
		t.Errorf("%d deliveries with %d places", n, len(changes.Places))
	}
}

// A target that a newer version has written in an unknown way gets nothing, no end fails because of it, and a change of
// another target leaves it as it is.
func TestAnUnreadableTargetIsPaused(t *testing.T) {
	s := newStage(t)
	s.do(putTo())
	s.do(putTo(func(p *belay.NotificationTargetPut) { p.Name = "u" }))
	o := copied(s.objects[TargetsRef()])
	o.Body = []byte(strings.Replace(string(o.Body), `"name":"t"`, `"name":"t","on":["exploded"]`, 1))
	s.objects[TargetsRef()] = o
	l := s.run(s.worker("w"), policy(belay.Policy{MaxAttempts: 1}))
	s.do(s.settle(l, belay.OutcomeFailed))
	if got := s.targetsNow(); got != "t v1 paused, u v1" || len(s.records) != 2 {
		t.Errorf("the targets are %s, and there are %d executions", got, len(s.records))
	}
	s.refused(changeTo(belay.NotificationTargetResume), belay.CodeConflict)
	s.do(changeTo(belay.NotificationTargetPause, func(c *belay.NotificationTargetChange) { c.Name = "u" }))
	if body := string(s.objects[TargetsRef()].Body); !strings.Contains(body, `"on":["exploded"]`) ||
		strings.Contains(body, "cannot read") {
		t.Errorf("a change of another target has changed it: %s", body)
	}
	s.do(putTo())
	if got := s.targetsNow(); got != "t v2, u v2 paused" {
		t.Errorf("the targets are %s", got)
	}
	s.do(changeTo(belay.NotificationTargetRemove))
	if got := s.targetsNow(); got != "u v2 paused" {
		t.Errorf("the targets are %s", got)
	}
}

// A circuit breaker that opens by itself says so, so that the engine looks for alerts soon.
func TestOpenedBreakersAreSeen(t *testing.T) {
	s := newStage(t)
	w := s.worker("w")
	for i := range breakerFailures {
		l := s.run(w, func(x *belay.Submission) { x.Target = "pay" })
		changes, _ := s.batch(s.settle(l, belay.OutcomeFailed))
		if last := i == breakerFailures-1; changes.Opened != last {
			t.Errorf("after failure %d it has opened: %t", i+1, changes.Opened)
		}
	}
	changes, _ := s.batch(s.set("target:other", belay.GateForceOpen))
	if changes.Opened {
		t.Error("an operator's order counts as opened")
	}
}
