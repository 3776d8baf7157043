package sdktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
)

// receivers stand for the hosts of notifications: the function with the name of a host answers its requests.
type receivers struct {
	mu       sync.Mutex
	requests []string // host, type of the event and generation
	down     map[string]bool
}

// hireReceivers starts a worker that runs the workflow w and stands for the workflow of HTTP requests.
func (e *env) hireReceivers() *receivers {
	e.Helper()
	r := &receivers{down: make(map[string]bool)}
	e.hire(func(w *worker.Worker) {
		worker.Register(w, "w", hurt)
		worker.Register(w, belay.NotificationWorkflow, r.answer)
	})
	return r
}

func (r *receivers) answer(_ context.Context, in struct {
	URL  string
	Body belay.NotificationEvent
}) (string, error) {
	host := strings.Split(in.URL, "/")[2]
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down[host] && host == "gone" {
		return "", belay.Permanent(errors.New("HTTP 410"))
	}
	if r.down[host] {
		return "", errors.New("HTTP 503")
	}
	r.requests = append(r.requests, fmt.Sprintf("%s %s %d", host, in.Body.Type, in.Body.Data.Generation))
	return host, nil
}

// got returns the requests since the last call.
func (r *receivers) got() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.Join(r.requests, ", ")
	r.requests = nil
	return text
}

func (r *receivers) set(host string, down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down[host] = down
}

// hook is a notification to a host.
func hook(host string, on ...belay.State) belay.Notification {
	return belay.Notification{URL: "https://" + host + "/hook", On: on}
}

// reported checks which requests the receivers got since the last call.
func (e *env) reported(r *receivers, want string) {
	e.Helper()
	e.settle()
	if got := r.got(); got != want {
		e.Errorf("the receivers got %q, want %q", got, want)
	}
}

var notifications = []testCase{
	{"the ends that a submission names are reported, each generation once", func(e *env) {
		r := e.hireReceivers()
		notify := belay.Notify(hook("a"), hook("b", belay.Succeeded), hook("c", belay.Cancelled))
		id := e.start(map[string]any{"N": 1}, notify)
		wantEnd(e, id, belay.Failed, "no address")
		e.reported(r, "a execution.failed 1")
		e.act(id, belay.ActionRetry)
		wantEnd(e, id, belay.Failed, "no address")
		e.reported(r, "a execution.failed 2")
		_, err := e.b.Control(e.ctx, belay.Control{
			Execution: id, Action: belay.ActionRequeue, Input: json.RawMessage(`{"N": 2}`),
		})
		e.must(err)
		want(e, id, 2)
		e.reported(r, "b execution.succeeded 3")
		late := e.start(map[string]any{"N": 2}, notify, belay.DueAt(time.Now().Add(time.Hour)))
		e.act(late, belay.ActionCancel)
		e.reported(r, "c execution.cancelled 1")
		e.sleep(time.Hour)
		e.reported(r, "")
	}},

	{"a delivery says which end it reports, and has no notifications", func(e *env) {
		e.hireReceivers()
		n := hook("a")
		n.Secret, n.Format = "${{ secrets.HOOK }}", belay.FormatEvent
		id := e.start(map[string]any{"N": 1}, belay.Notify(hook("b", belay.Succeeded), n))
		wantEnd(e, id, belay.Failed, "no address")
		if x := e.get(id); len(x.Notify) != 2 || x.Notify[1].URL != n.URL || x.Notify[0].On[0] != belay.Succeeded {
			e.Errorf("the execution has the notifications %+v", x.Notify)
		}
		d := e.detail(belay.NotificationID(id, 1, 1))
		var p belay.NotificationPayload
		if err := json.Unmarshal(d.TriggerPayload, &p); err != nil ||
			p != (belay.NotificationPayload{Execution: id, Generation: 1, State: belay.Failed, Target: 1}) {
			e.Errorf("%v: the delivery reports %s", err, d.TriggerPayload)
		}
		if d.Trigger != belay.TriggerNotification || d.Labels[belay.LabelNotification] != id.String() ||
			len(d.Notify) > 0 || d.CreatedBy != "notification" || !strings.Contains(string(d.Input), "secrets.HOOK") {
			e.Errorf("the delivery is %+v", d)
		}
		labels := map[string]string{belay.LabelNotification: id.String()}
		page, err := e.b.Executions(e.ctx, belay.Filter{Labels: labels})
		if err != nil || len(page.Executions) != 1 || page.Executions[0].ID != d.ID {
			e.Errorf("%d deliveries, %v", len(page.Executions), err)
		}
	}},

	{"a receiver that is down delays no other, and gets its deliveries later", func(e *env) {
		r := e.hireReceivers()
		r.set("down", true)
		var ids []belay.ExecutionID
		for range 20 {
			ids = append(ids, e.start(map[string]any{"N": 1}, belay.Notify(hook("down"), hook("up"))))
		}
		for _, id := range ids {
			wantEnd(e, id, belay.Failed, "no address")
		}
		e.sleep(5 * time.Second)
		if got := r.got(); strings.Count(got, "up execution.failed 1") != len(ids) {
			e.Errorf("the other receiver got %q", got)
		}
		e.sleep(30 * time.Minute)
		r.set("down", false)
		for _, id := range ids {
			want(e, belay.NotificationID(id, 1, 0), "down")
		}
	}},

	{"a delivery that its receiver refuses is a dead letter, and can be sent again", func(e *env) {
		r := e.hireReceivers()
		r.set("gone", true)
		id := e.start(map[string]any{"N": 1}, belay.Notify(hook("gone")))
		wantEnd(e, id, belay.Failed, "no address")
		d := belay.NotificationID(id, 1, 0)
		wantEnd(e, d, belay.Failed, "HTTP 410")
		if l := e.letter(d); l.Reason != "permanent_error" || l.Workflow != belay.NotificationWorkflow {
			e.Errorf("the dead letter of the delivery is %+v", l)
		}
		r.set("gone", false)
		e.act(d, belay.ActionRetry)
		want(e, d, "gone")
	}},

	{"the executions of a schedule report their ends", func(e *env) {
		r := e.hireReceivers()
		e.aligned()
		notify := func(all ...belay.Notification) func(*belay.SchedulePut) {
			return func(p *belay.SchedulePut) {
				p.Execution.Input, p.Execution.Notify = json.RawMessage(`{"N": 1}`), all
			}
		}
		e.putSchedule("tick", notify(hook("a"), hook("b", belay.Succeeded)))
		e.sleep(2 * time.Minute)
		e.reported(r, "a execution.failed 1, a execution.failed 1")
		s, err := e.b.Schedule(e.ctx, "tick")
		if err != nil || len(s.Execution.Notify) != 2 || s.Execution.Notify[1].On[0] != belay.Succeeded {
			e.Errorf("%+v, %v", s.Execution.Notify, err)
		}
		p := belay.SchedulePut{Schedule: s.Schedule}
		p.Execution.Notify = []belay.Notification{hook("me@a")}
		if _, err := e.b.PutSchedule(e.ctx, p); belay.CodeOf(err) != belay.CodeInvalid {
			e.Errorf("a wrong notification: %v", err)
		}
	}},

	{"an execution of a stored document reports its end", func(e *env) {
		r := e.hireReceivers()
		_, err := e.apply("d", "name: d\n")
		e.must(err)
		answers, err := e.b.Submit(e.ctx, belay.Submission{
			Document: "d", Notify: []belay.Notification{hook("a", belay.Cancelled)},
		})
		e.must(err)
		e.must(answers[0].Err)
		e.act(answers[0].ID, belay.ActionCancel)
		e.reported(r, "a execution.cancelled 1")
	}},

	{"the executions of a document report their ends to the notifications of the document", func(e *env) {
		r := e.hireReceivers()
		text := "name: d\nnotify:\n  - {url: 'https://a/hook', on: [cancelled]}\n"
		_, err := e.apply("d", text)
		e.must(err)
		input, err := json.Marshal(map[string]string{"document": text})
		e.must(err)
		submit := func(what string, s belay.Submission) belay.Submitted {
			answers, err := e.b.Submit(e.ctx, s)
			e.must(err)
			if answers[0].Err != nil {
				e.Fatalf("%s: %v", what, answers[0].Err)
			}
			return answers[0]
		}
		own := []belay.Notification{hook("b", belay.Cancelled), hook("a", belay.Cancelled)}
		for what, s := range map[string]belay.Submission{
			"stored": {Document: "d", Notify: own, IdempotencyKey: "k"},
			"a text": {Workflow: "document", Input: input, Notify: own, Idempotency: belay.IdempotencyByContent},
		} {
			first := submit(what, s)
			if again := submit(what, s); again.ID != first.ID || !again.Replayed {
				e.Errorf("%s: the repetition is %+v, the first %+v", what, again, first)
			}
			if x := e.get(first.ID); len(x.Notify) != 2 || x.Notify[0].URL != own[0].URL {
				e.Errorf("%s: the notifications are %+v", what, x.Notify)
			}
			e.act(first.ID, belay.ActionCancel)
			e.settle()
			if got := r.got(); len(got) != 2*len("a execution.cancelled 1")+2 ||
				!strings.Contains(got, "a execution.cancelled 1") || !strings.Contains(got, "b execution.cancelled 1") {
				e.Errorf("%s: the receivers got %q", what, got)
			}
		}
		repeated := submit("a changed document", belay.Submission{Document: "d", IdempotencyKey: "old"})
		_, err = e.apply("d", strings.Replace(text, "//a/", "//c/", 1))
		e.must(err)
		again := submit("a changed document", belay.Submission{Document: "d", IdempotencyKey: "old"})
		if again.ID != repeated.ID || !again.Replayed {
			e.Errorf("the repetition after a change is %+v, the first %+v", again, repeated)
		}
		fork, err := e.b.Control(e.ctx, belay.Control{
			Execution: repeated.ID, Action: belay.ActionFork,
			Input: []byte(`{"document": "name: d\nnotify: [{url: 'https://evil/'}]"}`),
		})
		if err != nil || len(fork.Notify) != 1 || fork.Notify[0].URL != "https://a/hook" {
			e.Errorf("a fork with another text: %+v, %v", fork.Notify, err)
		}
	}},

	{"the notifications of a document belong to schedules and webhooks that name it, and not to children",
		func(e *env) {
			text := "name: d\nnotify: [{url: 'https://a/hook'}]\n"
			_, err := e.apply("d", text)
			e.must(err)
			e.aligned()
			e.putSchedule("tick", func(p *belay.SchedulePut) {
				p.Execution = belay.Submission{Document: "d", Notify: []belay.Notification{hook("b")}}
			})
			e.sleep(time.Minute)
			s := e.slotsAre("tick", "[started:1]")
			if x := e.get(s.Recent[0].Execution); len(x.Notify) != 2 || x.Notify[1].URL != "https://a/hook" {
				e.Errorf("the execution of the schedule has %+v", x.Notify)
			}
			e.changeSchedule("tick", belay.ScheduleRemove)
			e.putWebhook("h", func(p *belay.WebhookPut) { p.Execution = belay.Submission{Document: "d"} })
			if x := e.get(e.deliver("h", "1", "{}").Execution); len(x.Notify) != 1 {
				e.Errorf("the execution of the webhook has %+v", x.Notify)
			}
			e.putWebhook("text", func(p *belay.WebhookPut) { p.Execution = belay.Submission{Workflow: "document"} })
			input, err := json.Marshal(map[string]string{"document": text})
			e.must(err)
			if x := e.get(e.deliver("text", "1", string(input)).Execution); len(x.Notify) != 1 {
				e.Errorf("the execution of the webhook with a text has %+v", x.Notify)
			}
			parent := e.lock(e.start(nil, func(s *belay.Submission) { s.External = true }), "me")
			for key, s := range map[string]belay.Submission{
				"stored": {Document: "d"}, "text": {Workflow: "document", Input: input},
			} {
				s.Parent, s.ParentKey, s.Trigger = &parent.Lease, key, belay.TriggerParent
				s.ID = belay.ChildID(parent.Lease.Execution, 1, key)
				answers, err := e.b.Submit(e.ctx, s)
				e.must(err)
				if answers[0].Err != nil || len(e.get(answers[0].ID).Notify) > 0 {
					e.Errorf("the child %s: %+v", key, answers[0])
				}
			}
		}},

	{"documents with wrong or too many notifications are not submitted", func(e *env) {
		var many strings.Builder
		for i := range 9 {
			fmt.Fprintf(&many, "  - url: https://a/%d\n", i)
		}
		for text, want := range map[string]string{
			"name: d\nnotify: [{url: 'https://me:pw@a/'}]\n":     "user name or password",
			"name: d\nnotify: [{url: 'https://a/', to: 'me'}]\n": "no key",
			"name: d\nnotify:\n" + many.String():                 "11 notifications together",
		} {
			input, err := json.Marshal(map[string]string{"document": text})
			e.must(err)
			own := []belay.Notification{hook("b"), hook("c")}
			all := []belay.Submission{{Workflow: "document", Input: input, Notify: own}}
			_, err = e.apply("d", text)
			if err == nil {
				all = append(all, belay.Submission{Document: "d", Notify: own})
			} else { // a server does not store the document
				e.refused("apply", err, belay.CodeInvalid, "")
			}
			for _, s := range all {
				answers, err := e.b.Submit(e.ctx, s, belay.Submission{Workflow: "w"})
				e.must(err)
				if err := answers[0].Err; belay.CodeOf(err) != belay.CodeInvalid ||
					!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw@") {
					e.Errorf("%q: %v", text, err)
				}
				e.must(answers[1].Err)
			}
		}
	}},

	{"submissions with wrong notifications, and submissions that pose as deliveries, are refused", func(e *env) {
		id := e.start(nil, belay.Notify(hook("a", belay.Cancelled)))
		for name, s := range map[string]belay.Submission{
			"a user name":    {Workflow: "w", Notify: []belay.Notification{hook("me@a")}},
			"no host":        {Workflow: "w", Notify: []belay.Notification{hook("")}},
			"a plain secret": {Workflow: "w", Notify: []belay.Notification{{URL: "https://a/", Secret: "plain"}}},
			"an open state":  {Workflow: "w", Notify: []belay.Notification{hook("a", belay.Running)}},
			"the id":         {Workflow: "w", ID: belay.NotificationID(id, 1, 0)},
			"the key":        {Workflow: "w", IdempotencyKey: belay.NotificationPrefix + id.String() + ":1:0"},
			"the trigger":    {Workflow: "w", Trigger: belay.TriggerNotification},
			"the target":     {Workflow: "w", Gates: belay.Gates{Target: "notification:a:0"}},
			"the limit": {Workflow: "w", Gates: belay.Gates{
				Concurrency: &belay.Concurrency{Name: "notification:a:0", Max: 1},
			}},
		} {
			answers, err := e.b.Submit(e.ctx, s)
			if err == nil {
				err = answers[0].Err
			}
			if code := belay.CodeOf(err); code != belay.CodeInvalid && code != belay.CodeMalformed {
				e.Errorf("%s: %v", name, err)
			}
		}
		e.act(id, belay.ActionCancel)
		if d := e.get(belay.NotificationID(id, 1, 0)); d.State != belay.Pending {
			e.Errorf("the delivery is %s", d.State)
		}
	}},
}
