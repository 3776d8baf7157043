package sdktest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
)

// putTarget sets a target of notifications at the host with its name.
func (e *env) putTarget(name string, with ...func(*belay.NotificationTargetPut)) belay.NotificationTargetPutResult {
	e.Helper()
	p := belay.NotificationTargetPut{
		NotificationTarget: belay.NotificationTarget{Name: name, Notification: hook(name)}, Actor: "me",
	}
	for _, f := range with {
		f(&p)
	}
	r, err := e.b.PutNotificationTarget(e.ctx, p)
	if err != nil {
		e.Fatalf("put notification target %s: %v", name, err)
	}
	return r
}

func (e *env) changeTarget(name string, a belay.NotificationTargetAction) belay.NotificationTargetInfo {
	e.Helper()
	r, err := e.b.ChangeNotificationTarget(e.ctx, belay.NotificationTargetChange{Name: name, Action: a, Actor: "ann"})
	if err != nil {
		e.Fatalf("%s notification target %s: %v", a, name, err)
	}
	return r
}

// fails starts an execution of the workflow w that fails for good.
func (e *env) fails(opts ...belay.SubmitOption) belay.ExecutionID {
	e.Helper()
	id := e.start(map[string]any{"N": 1}, opts...)
	wantEnd(e, id, belay.Failed, "no address")
	return id
}

// alerted returns the newest alert to a target.
func (e *env) alerted(name string) belay.AlertEvent {
	e.Helper()
	labels := map[string]string{belay.LabelNotificationTarget: name}
	page, err := e.b.Executions(e.ctx, belay.Filter{Labels: labels, Limit: 1})
	e.must(err)
	var in struct{ Body belay.AlertEvent }
	if len(page.Executions) == 1 {
		x := e.get(page.Executions[0].ID)
		e.must(json.Unmarshal(x.Input, &in))
	}
	return in.Body
}

func alerts(all ...belay.Alert) func(*belay.NotificationTargetPut) {
	return func(p *belay.NotificationTargetPut) { p.Alerts = all }
}

var notificationTargets = []testCase{
	{"a target gets the ends of the executions that it selects", func(e *env) {
		r := e.hireReceivers()
		first := e.putTarget("a")
		if !first.Created || !first.Changed || first.Version != 1 || first.UpdatedBy != "me" ||
			first.URL != hook("a").URL {
			e.Errorf("%+v", first)
		}
		if again := e.putTarget("a"); again.Created || again.Changed || again.Version != 1 {
			e.Errorf("%+v", again)
		}
		e.putTarget("b", func(p *belay.NotificationTargetPut) { p.On = []belay.State{belay.Succeeded} })
		e.putTarget("c", func(p *belay.NotificationTargetPut) { p.Labels = map[string]string{"team": "web"} })
		e.putTarget("d", func(p *belay.NotificationTargetPut) { p.Workflows = []string{"x*"} })
		id := e.fails()
		e.reported(r, "a execution.failed 1")
		d := e.detail(belay.TargetNotificationID(id, 1, "a"))
		var p belay.NotificationPayload
		if err := json.Unmarshal(d.TriggerPayload, &p); err != nil || d.Trigger != belay.TriggerNotification ||
			p != (belay.NotificationPayload{Execution: id, Generation: 1, State: belay.Failed, Name: "a"}) ||
			d.Labels[belay.LabelNotificationTarget] != "a" || d.Labels[belay.LabelNotification] != id.String() {
			e.Errorf("%v: the delivery is %+v with %s", err, d, d.TriggerPayload)
		}
		e.act(id, belay.ActionRetry)
		wantEnd(e, id, belay.Failed, "no address")
		e.reported(r, "a execution.failed 2")
		e.changeTarget("a", belay.NotificationTargetPause)
		web := e.fails(belay.Label("team", "web"), belay.Label("x", "y"))
		e.reported(r, "c execution.failed 1")
		if x := e.changeTarget("a", belay.NotificationTargetResume); x.Version != 3 || x.Paused != nil {
			e.Errorf("%+v", x)
		}
		e.changeTarget("c", belay.NotificationTargetRemove)
		e.act(web, belay.ActionRetry)
		wantEnd(e, web, belay.Failed, "no address")
		e.reported(r, "a execution.failed 2")
		all, err := e.b.NotificationTargets(e.ctx)
		e.must(err)
		if len(all) != 3 || all[0].Name != "a" || all[2].Workflows[0] != "x*" {
			e.Errorf("%+v", all)
		}
		if _, err := e.b.NotificationTarget(e.ctx, "c"); belay.CodeOf(err) != belay.CodeNotFound {
			e.Errorf("a removed target: %v", err)
		}
	}},

	{"dead letters that arrive together are one alert, and deliveries raise none", func(e *env) {
		r := e.hireReceivers()
		r.set("gone", true)
		e.fails() // before a target wants to know
		e.sleep(time.Millisecond)
		e.putTarget("a", alerts(belay.AlertDeadLetter))
		e.putTarget("b", alerts(belay.AlertBreakerOpen))
		for range 3 {
			e.fails(belay.Notify(hook("gone"))) // the delivery fails too
		}
		e.sleep(2 * time.Second)
		e.reported(r, "a alert.dead_letter 0")
		a := e.alerted("a")
		if a.Data.Count != 3 || len(a.Data.DeadLetters) != 3 || a.Data.Text != "3 dead letters arrived: w (3); `belay dead ls` lists them" ||
			a.Data.DeadLetters[0].Message != "order 4711 has no address" || a.Data.Name != "a" {
			e.Errorf("%+v", a)
		}
		e.sleep(10 * time.Second)
		e.fails()
		e.sleep(15 * time.Second)
		e.reported(r, "a alert.dead_letter 0")
		if a := e.alerted("a"); a.Data.Count != 1 {
			e.Errorf("%+v", a)
		}
		e.sleep(10 * time.Minute)
		e.reported(r, "")
	}},

	{"a circuit breaker that opens is an alert", func(e *env) {
		r := e.hireReceivers()
		e.putTarget("a", alerts(belay.AlertBreakerOpen))
		e.putTarget("b", alerts(belay.AlertNoWorker))
		e.hire(func(w *worker.Worker) {
			worker.Register(w, "pays", func(context.Context, any) (any, error) { return nil, errors.New("HTTP 503") })
		})
		for range 5 {
			answers, err := e.b.Submit(e.ctx, belay.Submission{
				Workflow: "pays", Gates: belay.Gates{Target: "pay"}, Policy: belay.Policy{MaxAttempts: 1},
			})
			e.must(err)
			e.sleep(100 * time.Millisecond)
			e.wantState(answers[0].ID, belay.Failed)
		}
		e.sleep(2 * time.Second)
		e.reported(r, "a alert.breaker_open 0")
		if b := e.alerted("a").Data.Breakers; len(b) != 1 || b[0].Target != "pay" || b[0].NextRetryAt.IsZero() {
			e.Errorf("%+v", b)
		}
		e.sleep(5 * time.Minute) // half open, and still not closed
		e.reported(r, "")
		e.changed(belay.Gate(belay.GateTarget, "pay"), belay.GateForceOpen)
		e.sleep(5 * time.Minute) // by an operator
		e.reported(r, "")
	}},

	{"a lane without a worker is an alert, once", func(e *env) {
		r := e.hireReceivers()
		e.putTarget("a", alerts(belay.AlertNoWorker))
		id, err := e.submitTo("nobody")
		e.must(err)
		e.sleep(25 * time.Second)
		e.reported(r, "")
		e.sleep(35 * time.Second)
		e.reported(r, "a alert.no_worker 0")
		if l := e.alerted("a").Data.Lanes; len(l) != 1 || l[0].Workflow != "nobody" || l[0].Oldest != id {
			e.Errorf("%+v", l)
		}
		_, err = e.submitTo("nobody")
		e.must(err)
		e.sleep(5 * time.Minute)
		e.reported(r, "")
		paused, err := e.submitTo("paused")
		e.must(err)
		e.changed(belay.Gate(belay.GateWorkflow, "paused"), belay.GatePause)
		e.sleep(5 * time.Minute)
		e.reported(r, "")
		e.act(paused, belay.ActionCancel)
		e.changed(belay.Gate(belay.GateQueue, "default"), belay.GateSetLimit, func(c *belay.GateChange) { c.Max = 1 })
		w := e.runner("busy", 1) // its run has the only place of the queue
		e.start(nil)
		e.acquire(w, 1, 1)
		_, err = e.submitTo("other")
		e.must(err)
		e.sleep(61 * time.Second)
		e.reported(r, "a alert.no_worker 0")
	}},

	{"a test shows whether a target receives, once for each operation", func(e *env) {
		r := e.hireReceivers()
		e.putTarget("a", func(p *belay.NotificationTargetPut) { p.Secret = "${{ secrets.HOOK }}" })
		e.changeTarget("a", belay.NotificationTargetPause)
		t := belay.NotificationTargetTest{Name: "a", Actor: "ann", Op: e.op()}
		id, err := e.b.TestNotificationTarget(e.ctx, t)
		e.must(err)
		again, err := e.b.TestNotificationTarget(e.ctx, t)
		if err != nil || again != id {
			e.Errorf("%s, %v", again, err)
		}
		e.reported(r, "a alert.test 0")
		if x := e.detail(id); x.CreatedBy != "ann" || x.State != belay.Succeeded ||
			!strings.Contains(string(x.Input), "secrets.HOOK") {
			e.Errorf("%+v", x)
		}
		t.Name = "none"
		if _, err := e.b.TestNotificationTarget(e.ctx, t); belay.CodeOf(err) != belay.CodeNotFound {
			e.Errorf("%v", err)
		}
	}},

	{"wrong targets are refused", func(e *env) {
		e.putTarget("a")
		for name, with := range map[string]func(*belay.NotificationTargetPut){
			"name":    func(p *belay.NotificationTargetPut) { p.Name = "a/b" },
			"url":     func(p *belay.NotificationTargetPut) { p.URL = "https://me:secret@a/" },
			"secret":  func(p *belay.NotificationTargetPut) { p.Secret = "hunter2" },
			"alert":   func(p *belay.NotificationTargetPut) { p.Alerts = []belay.Alert{"odd"} },
			"pattern": func(p *belay.NotificationTargetPut) { p.Queues = []string{""} },
			"label":   func(p *belay.NotificationTargetPut) { p.Labels = map[string]string{"": "x"} },
			"state":   func(p *belay.NotificationTargetPut) { p.On = []belay.State{belay.Running} },
		} {
			var p belay.NotificationTargetPut
			p.Name, p.Notification = "a", hook("x")
			with(&p)
			_, err := e.b.PutNotificationTarget(e.ctx, p)
			if code := belay.CodeOf(err); err == nil || code != belay.CodeInvalid && code != belay.CodeMalformed ||
				strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "secret@") {
				e.Errorf("%s: %v", name, err)
			}
		}
		for _, p := range []belay.NotificationTargetPut{{IfNew: true}, {IfVersion: 2}} {
			p.NotificationTarget = belay.NotificationTarget{Name: "a", Notification: hook("x")}
			if _, err := e.b.PutNotificationTarget(e.ctx, p); belay.CodeOf(err) != belay.CodeConflict {
				e.Errorf("%+v: %v", p, err)
			}
		}
		none := belay.NotificationTargetChange{Name: "none", Action: belay.NotificationTargetRemove}
		if _, err := e.b.ChangeNotificationTarget(e.ctx, none); belay.CodeOf(err) != belay.CodeNotFound {
			e.Errorf("%v", err)
		}
		if x, err := e.b.NotificationTarget(e.ctx, "a"); err != nil || x.Version != 1 || x.URL != hook("a").URL {
			e.Errorf("%+v, %v", x, err)
		}
	}},
}

// submitTo submits an execution of a workflow.
func (e *env) submitTo(workflow string) (belay.ExecutionID, error) {
	answers, err := e.b.Submit(e.ctx, belay.Submission{Workflow: workflow})
	if err != nil {
		return belay.ExecutionID{}, err
	}
	return answers[0].ID, answers[0].Err
}
