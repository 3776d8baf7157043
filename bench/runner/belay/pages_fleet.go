package belay

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/bench/trial"
	"github.com/belaydev/belay/worker"
)

// The content of the store beside the executions.
const (
	slotsEach     = 4  // slots of a worker, all of which are used
	someGates     = 60 // limits that an operator has set
	someDocuments = 30
	someSchedules = 40
	someTargets   = 10 // targets of notifications, and webhooks
	lineLimit     = 5  // the limit with the long line
	lineName      = "licences"
	wideTasks     = 100 // tasks of the document that runs
)

// startFleet connects r.Workers workers whose slots are all used, and adds the rest of the content of the store through
// the API. The fleet that it returns must be stopped, whatever the error is.
func startFleet(ctx context.Context, url string, r trial.Request) (f *fleet, err error) {
	f = &fleet{}
	if f.calls, err = f.dial(ctx, url); err != nil {
		return f, err
	}
	if err := f.startWorkers(ctx, url, r.Workers); err != nil {
		return f, err
	}
	if err := f.fillLine(ctx, r.N/100); err != nil {
		return f, err
	}
	return f, errors.Join(f.addGates(ctx), f.addDocuments(ctx), f.addSchedules(ctx), f.addTargets(ctx))
}

// startWorkers starts n workers that run an execution in each slot until they stop, and one worker for the load and the
// limit.
func (f *fleet) startWorkers(ctx context.Context, url string, n int) error {
	block := func(ctx context.Context, _ any) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	for i := range n {
		b, err := f.dial(ctx, url)
		if err != nil {
			return err
		}
		o := worker.Options{
			Concurrency: slotsEach, Name: fmt.Sprintf("worker-%02d", i), Version: "1.4.2", Grace: -1, Log: quiet(),
			Labels: map[string]string{"zone": string(rune('a' + i%3)), "gpu": "no"},
		}
		for _, k := range kinds {
			o.Queues = append(o.Queues, k.queue)
		}
		w := worker.New(b, o)
		for _, k := range kinds {
			worker.Register(w, k.workflow, block)
		}
		f.crews = append(f.crews, run(ctx, w))
	}
	b, err := f.dial(ctx, url)
	if err != nil {
		return err
	}
	w := worker.New(b, worker.Options{Concurrency: 50, Queues: []string{specialQueue}, Name: "special", Grace: -1,
		Log: quiet()})
	worker.Register(w, "noop", func(context.Context, trial.Payload) (string, error) { return "", nil })
	worker.Register(w, "licensed", block)
	f.crews = append(f.crews, run(ctx, w))
	return f.await(ctx, fmt.Sprintf("the slots of %d workers are used", n), func() (bool, error) {
		all, err := b.Workers(ctx)
		used := 0
		for i := range all {
			if !all[i].State.Ended() {
				used += all[i].Running
			}
		}
		return used >= slotsEach*n, err
	})
}

// await waits until done reports true.
func (f *fleet) await(ctx context.Context, what string, done func() (bool, error)) error {
	late := time.After(4 * patience)
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-late:
			return fmt.Errorf("waited in vain until %s", what)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fillLine submits n executions with one limit, most of which wait at it.
func (f *fleet) fillLine(ctx context.Context, n int) error {
	_, err := fillWith(ctx, trial.Request{}, f.calls, 1, n+lineLimit, func(i int) belay.Submission {
		return belay.Submission{Workflow: "licensed", Queue: specialQueue, Input: input(i), Gates: belay.Gates{
			Concurrency: &belay.Concurrency{Name: lineName, Max: lineLimit},
		}}
	})
	if err != nil {
		return err
	}
	gate := belay.Gate(belay.GateLimit, lineName)
	return f.await(ctx, "executions wait at the limit", func() (bool, error) {
		g, err := f.calls.Gate(ctx, gate)
		return g.Held >= lineLimit && g.Waiting >= min(n, 100), err
	})
}

func (f *fleet) addGates(ctx context.Context) error {
	for i := range someGates {
		_, err := f.calls.ChangeGate(ctx, belay.GateChange{
			Gate: belay.Gate(belay.GateLimit, fmt.Sprintf("customer-%02d", i)), Action: belay.GateSetLimit, Max: 3,
			Actor: "ops", Reason: "the contract of the customer allows three",
		})
		if err != nil {
			return err
		}
	}
	_, err := f.calls.ChangeGate(ctx, belay.GateChange{
		Gate: belay.Gate(belay.GateTarget, "payments"), Action: belay.GatePause, Reason: "maintenance",
	})
	return err
}

// addDocuments stores documents, and starts one with many tasks.
func (f *fleet) addDocuments(ctx context.Context) error {
	for i := range someDocuments {
		var b strings.Builder
		fmt.Fprintf(&b, "name: nightly-%02d\ntasks:\n  - {id: t0, uses: report.build, queue: reports}\n", i)
		for k := 1; k < 20; k++ {
			fmt.Fprintf(&b, "  - {id: t%d, uses: report.build, queue: reports, needs: t%d}\n", k, k/2)
		}
		_, err := f.calls.ApplyDocument(ctx, belay.DocumentApply{
			Name: fmt.Sprintf("nightly-%02d", i), Text: b.String(),
		})
		if err != nil {
			return err
		}
	}
	wide := fmt.Sprintf("name: wide\ntasks:\n  - {id: each, uses: report.build, queue: reports, foreach: '1..%d', "+
		"parallel: %d}\n", wideTasks, wideTasks)
	if _, err := f.calls.ApplyDocument(ctx, belay.DocumentApply{Name: "wide", Text: wide}); err != nil {
		return err
	}
	out, err := f.calls.Submit(ctx, belay.Submission{Document: "wide", IdempotencyKey: "wide"})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		return err
	}
	return f.await(ctx, "the document has started its tasks", func() (bool, error) {
		e, err := f.calls.Execution(ctx, out[0].ID)
		return e.OpenChildren >= wideTasks, err
	})
}

func (f *fleet) addSchedules(ctx context.Context) error {
	for i := range someSchedules {
		_, err := f.calls.PutSchedule(ctx, belay.SchedulePut{Schedule: belay.Schedule{
			Name: fmt.Sprintf("every-year-%02d", i), Cron: "0 4 29 2 *",
			Execution: belay.Submission{Workflow: "report.build", Input: json.RawMessage(`{"i":1}`)},
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) addTargets(ctx context.Context) error {
	for i := range someTargets {
		_, err := f.calls.PutWebhook(ctx, belay.WebhookPut{Webhook: belay.Webhook{
			Name: fmt.Sprintf("push-%02d", i), Scheme: belay.SchemeGitHub, Secrets: []string{"${{ secrets.PUSH }}"},
			Execution: belay.Submission{Workflow: "report.build"},
		}})
		if err != nil {
			return err
		}
		// the target matches no execution of the trial, so that it sends nothing
		target := belay.NotificationTarget{
			Name: fmt.Sprintf("chat-%02d", i), Workflows: []string{"other.*"},
			Notification: belay.Notification{URL: "http://127.0.0.1:1/hook"},
		}
		_, err = f.calls.PutNotificationTarget(ctx, belay.NotificationTargetPut{NotificationTarget: target})
		if err != nil {
			return err
		}
	}
	return nil
}

// pages lists the pages to request: every page of the web UI, and the list of executions with every filter.
func (f *fleet) pages(ctx context.Context, made filled) ([]webPage, error) {
	one := func(q belay.Filter) (e belay.Execution, err error) {
		q.Limit = 1
		page, err := f.calls.Executions(ctx, q)
		if err == nil && len(page.Executions) == 0 {
			err = fmt.Errorf("no execution matches %+v", q)
		}
		if err != nil {
			return e, err
		}
		return page.Executions[0], nil
	}
	state := func(s belay.State) belay.Filter { return belay.Filter{States: []belay.State{s}} }
	var named [5]belay.Execution
	for i, q := range []belay.Filter{
		state(belay.Succeeded), state(belay.Failed), state(belay.Pending), state(belay.Running),
		{Labels: map[string]string{belay.LabelDocument: "wide"}},
	} {
		var err error
		if named[i], err = one(q); err != nil {
			return nil, err
		}
	}
	groups, err := f.calls.DeadLetterGroups(ctx, belay.DeadLetterFilter{})
	if err != nil {
		return nil, err
	}
	letters, err := f.calls.DeadLetters(ctx, belay.DeadLetterFilter{Limit: 1000})
	if err != nil {
		return nil, err
	}
	var deep belay.ExecutionID // older than half of the executions
	binary.BigEndian.PutUint64(deep[:8], uint64(time.Now().Add(-endedSpan/2).UnixMilli())<<16|0x7000)
	deep[8] = 0x80
	x := func(id belay.ExecutionID, rest string) string { return "/executions/" + id.String() + rest }
	list := func(name, value string) string {
		return "/executions?" + url.Values{name: {value}}.Encode()
	}
	const found = `class="list cards"`
	all := []webPage{
		{"overview", "/", "Overview"},
		{"executions", "/executions", found},
		{"executions, half way back", list("cursor", deep.String()), found},
		{"executions, active", list("state", "active"), found},
		{"executions, pending", list("state", "pending"), found},
		{"executions, running", list("state", "running"), found},
		{"executions, succeeded", list("state", "succeeded"), found},
		{"executions, failed", list("state", "failed"), found},
		{"executions, cancelled", list("state", "cancelled"), found},
		{"executions, workflow", list("workflow", "invoice.send"), found},
		{"executions, queue", list("queue", "mail"), found},
		{"executions, label", list("label", "customer=c-7"), found},
		{"executions, text of the error", list("error", "for SHARD q"), "Executions"},
		{"executions, workflow absent", list("workflow", "absent"), "Executions"},
		{"executions, label absent", list("label", "a=b"), "Executions"},
		{"executions, text of the error absent", list("error", "absent"), "Executions"},
		{"executions, id or key absent", list("find", "absent"), "No execution has"},
		{"executions, idempotency key", list("find", "order-8-1"), "order-8-1"},
		{"execution succeeded", x(named[0].ID, ""), "succeeded"},
		{"execution failed", x(named[1].ID, ""), "shard"},
		{"execution pending", x(named[2].ID, ""), "pending"},
		{"execution running", x(named[3].ID, ""), "running"},
		{"execution of a document", x(named[4].ID, ""), "each"},
		{"execution with a long history", x(made.long, ""), "load"},
		{"checkpoints of a long history", x(made.long, "/checkpoints"), "Checkpoints"},
		{"bulk actions", "/bulks", "Bulk actions"},
		{"audit", "/audit", "Audit"},
		{"keys", "/keys", "Keys"},
		{"form: start an execution", "/start", "Start an execution"},
		{"execution with a long history, its begin", x(made.long, "?after=0"), "load"},
		{"form: cancel an execution", x(named[2].ID, "/cancel"), "reason"},
		{"dead letters", "/dead", "Dead letters"},
		{"dead letters, all", "/dead?resolution=all", "Dead letters"},
		{"dead letters, workflow", "/dead?workflow=" + groups.Groups[0].Workflow, "Dead letters"},
		{"dead letters of a group", "/dead?fingerprint=" + groups.Groups[0].Fingerprint, "Retry"},
		{"dead letters of a group, older", "/dead?" + url.Values{
			"fingerprint": {groups.Groups[0].Fingerprint}, "cursor": {letters.Next},
		}.Encode(), "Dead"},
		{"workers", "/workers", "worker-0"},
		{"queues and gates", "/queues", "customer-00"},
		{"gate with a long line", "/queues?gate=" + url.QueryEscape("limit:"+lineName), lineName},
		{"workflows", "/workflows", "nightly-00"},
		{"workflow", "/workflows/nightly-00", "svg"},
		{"schedules", "/schedules", "every-year-00"},
		{"schedule", "/schedules/every-year-00", "every-year-00"},
		{"webhooks", "/webhooks", "push-00"},
		{"webhook", "/webhooks/push-00", "push-00"},
		{"notifications", "/notifications", "chat-00"},
		{"notification target", "/notifications/chat-00", "chat-00"},
	}
	return all, nil
}
