package httpapi

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/webhook"
)

// Admission judges a submission of one workflow before it is stored. It returns an error to refuse
// the submission. Otherwise it returns a function, which the API calls with the id of the stored
// execution, or with the zero id if no execution was stored.
type Admission func(ctx context.Context, s *belay.Submission) (stored func(belay.ExecutionID), err error)

// admitting is a Backend that passes each submission to its workflow's Admission, whatever the
// route: a single submission, a submission in a batch, a child, or an action that makes an old
// execution run again.
type admitting struct {
	belay.Backend
	by map[string]Admission
}

// Admitting returns a Backend that judges submissions, and actions that make an execution run again, by the Admission
// of their workflow. It refuses submissions of belay.BulkWorkflow, and no caller may own an execution of this workflow,
// except a worker that connects over the unix socket of the data directory: the state of a bulk names the executions on
// which a server acts next, so its owner could make the server act on any execution.
func Admitting(b belay.Backend, by map[string]Admission) belay.Backend { return &admitting{b, by} }

// admit judges a submission. If the Admission refuses the submission because the queue is full, but
// the submission is a repeat of a stored submission, admit lets it pass: the Backend answers it
// with the stored execution.
func (a *admitting) admit(ctx context.Context, s *belay.Submission) (func(belay.ExecutionID), error) {
	if s.Workflow == belay.BulkWorkflow {
		return nil, &belay.Error{
			Code: belay.CodeForbidden, Op: "submit",
			Message: "the workflow " + s.Workflow + " is the server's own; start a bulk with POST /v1/bulk",
		}
	}
	if err := a.admitNotify(ctx, s.Notify); err != nil {
		return nil, err
	}
	judge := a.by[s.Workflow]
	if judge == nil || s.Workflow == belay.PublishWorkflow { // the rules refuse it; see admitTerms
		return func(belay.ExecutionID) {}, nil
	}
	stored, err := judge(ctx, s)
	if err != nil && belay.CodeOf(err) == belay.CodeQueueFull && a.known(ctx, s) {
		return func(belay.ExecutionID) {}, nil
	}
	return stored, err
}

// admitNotify judges the notifications of a submission like the requests that they ask for, since the rules create
// their deliveries later without an Admission. A queue that is full now does not concern them.
func (a *admitting) admitNotify(ctx context.Context, all []belay.Notification) error {
	if err := belay.CheckNotifications("submit", all); err != nil {
		return err
	}
	judge := a.by[belay.NotificationWorkflow]
	if judge == nil {
		return nil
	}
	for i := range all {
		sample, err := machine.DeliverySample(&all[i])
		if err != nil {
			return err
		}
		stored, err := judge(ctx, &sample)
		switch {
		case err == nil:
			stored(belay.ExecutionID{})
		case belay.CodeOf(err) != belay.CodeQueueFull:
			return err
		}
	}
	return nil
}

// known reports whether a submission repeats a stored one.
func (a *admitting) known(ctx context.Context, s *belay.Submission) bool {
	if s.ID != (belay.ExecutionID{}) {
		if _, err := a.Execution(ctx, s.ID); err == nil {
			return true
		}
	}
	if s.IdempotencyKey == "" {
		return false
	}
	page, err := a.Executions(ctx, belay.Filter{Workflow: s.Workflow, Key: s.IdempotencyKey, Children: true, Limit: 1})
	return err == nil && len(page.Executions) > 0
}

// Submit submits those submissions that their Admission lets pass. An Admission sees the text of a
// stored document that a submission names, and the notifications of documents are judged like those of submissions.
func (a *admitting) Submit(ctx context.Context, list ...belay.Submission) ([]belay.Submitted, error) {
	return catalog.Submit(ctx, a, a.submit, list)
}

func (a *admitting) submit(ctx context.Context, list ...belay.Submission) ([]belay.Submitted, error) {
	answers := make([]belay.Submitted, len(list))
	stored := make([]func(belay.ExecutionID), len(list))
	var admitted []belay.Submission
	var which []int
	for i := range list {
		if stored[i], answers[i].Err = a.admit(ctx, &list[i]); answers[i].Err == nil {
			admitted, which = append(admitted, list[i]), append(which, i)
		}
	}
	if len(admitted) == 0 {
		return answers, nil
	}
	got, err := a.Backend.Submit(ctx, admitted...)
	for n, i := range which {
		var id belay.ExecutionID
		if err == nil {
			if answers[i] = got[n]; got[n].Err == nil {
				id = got[n].ID
			}
		}
		stored[i](id)
	}
	return answers, err
}

// PutSchedule judges the executions of a schedule like a submission, since the engine starts them later without an
// Admission.
func (a *admitting) PutSchedule(ctx context.Context, p belay.SchedulePut) (belay.SchedulePutResult, error) {
	x, err := catalog.Complete(ctx, a, p.Execution)
	if err == nil {
		err = a.admitLater(ctx, &x)
	}
	if err != nil {
		return belay.SchedulePutResult{}, err
	}
	return a.Backend.PutSchedule(ctx, p)
}

// Deliver judges the execution that a delivery starts, with the input that the sender has chosen.
func (a *admitting) Deliver(ctx context.Context, d belay.WebhookEvent) (belay.WebhookDelivery, error) {
	stored, err := a.admitDelivery(ctx, &d)
	if err != nil {
		return belay.WebhookDelivery{}, err
	}
	got, err := a.Backend.Deliver(ctx, d)
	stored(startedBy(&got, err))
	return got, err
}

// Publish judges the executions that events start, as Deliver does.
func (a *admitting) Publish(ctx context.Context, p belay.CloudEventPublish) ([]belay.CloudEventResult, error) {
	return webhook.Publish(ctx, a, p)
}

// ReplayDelivery judges the execution that a replay starts.
func (a *admitting) ReplayDelivery(ctx context.Context, r belay.WebhookReplay) (belay.WebhookDelivery, error) {
	d, err := a.WebhookDelivery(ctx, r.Webhook, r.ID)
	if err != nil {
		return belay.WebhookDelivery{}, err
	}
	e := belay.WebhookEvent{
		Webhook: r.Webhook, IfVersion: r.IfVersion, IfCreated: r.IfCreated, ID: d.ID, Type: d.Type, Source: d.Source,
		Headers: d.Headers, Data: d.Data, By: "replay",
	}
	stored, err := a.admitDelivery(ctx, &e)
	if err != nil {
		return belay.WebhookDelivery{}, err
	}
	r.IfVersion, r.IfCreated = e.IfVersion, e.IfCreated
	got, err := a.Backend.ReplayDelivery(ctx, r)
	stored(startedBy(&got, err))
	return got, err
}

func startedBy(d *belay.WebhookDelivery, err error) belay.ExecutionID {
	if err != nil || d.Outcome != belay.DeliveryStarted {
		return belay.ExecutionID{}
	}
	return d.Execution
}

// admitDelivery judges the execution that a delivery would start by the present terms of its webhook, and makes the
// Backend refuse the delivery if the terms change until then. A delivery that starts nothing, or that the Backend
// refuses for its own reasons, passes.
func (a *admitting) admitDelivery(ctx context.Context, d *belay.WebhookEvent) (func(belay.ExecutionID), error) {
	nothing := func(belay.ExecutionID) {}
	h, err := a.Webhook(ctx, d.Webhook)
	if err != nil {
		return nil, err
	}
	if d.IfVersion == 0 {
		d.IfVersion, d.IfCreated = h.Version, h.CreatedAt
	}
	if d.IfVersion != h.Version || !d.IfCreated.IsZero() && !d.IfCreated.Equal(h.CreatedAt) {
		return nothing, nil // the Backend refuses it
	}
	d.IfCreated = h.CreatedAt
	if h.Signal != nil {
		return nothing, nil
	}
	if w := h.Execution.Workflow; w != "" && w != belay.BulkWorkflow && w != catalog.Workflow && a.by[w] == nil {
		return nothing, nil
	}
	x, err := webhook.Execution(&h.Webhook, d, d.By == "replay")
	var complete belay.Submission
	if err == nil {
		complete, err = catalog.Complete(ctx, a, *x)
	}
	if err != nil {
		return nothing, nil //nolint:nilerr // the Backend records why nothing starts
	}
	return a.admit(ctx, &complete)
}

// PutWebhook refuses the workflows that no caller may submit, and judges the notifications, also those of a stored
// document. The input is judged at each delivery, and with it the notifications of a document in the input.
func (a *admitting) PutWebhook(ctx context.Context, p belay.WebhookPut) (belay.WebhookPutResult, error) {
	if p.Execution.Workflow == belay.BulkWorkflow {
		if _, err := a.admit(ctx, &p.Execution); err != nil {
			return belay.WebhookPutResult{}, err
		}
	}
	notify := p.Execution.Notify
	if p.Execution.Document != "" {
		x, err := catalog.Complete(ctx, a, belay.Submission{Document: p.Execution.Document, Notify: notify})
		if err != nil {
			return belay.WebhookPutResult{}, err
		}
		notify = x.Notify
	}
	if err := a.admitNotify(ctx, notify); err != nil {
		return belay.WebhookPutResult{}, err
	}
	return a.Backend.PutWebhook(ctx, p)
}

// PutNotificationTarget judges the requests, or the messages, that the target asks for.
func (a *admitting) PutNotificationTarget(
	ctx context.Context, p belay.NotificationTargetPut,
) (belay.NotificationTargetPutResult, error) {
	if err := a.admitTerms(ctx, &p.NotificationTarget); err != nil {
		return belay.NotificationTargetPutResult{}, err
	}
	return a.Backend.PutNotificationTarget(ctx, p)
}

// ChangeNotificationTarget judges the requests of a target that is resumed.
func (a *admitting) ChangeNotificationTarget(
	ctx context.Context, c belay.NotificationTargetChange,
) (belay.NotificationTargetInfo, error) {
	if c.Action == belay.NotificationTargetResume {
		if err := a.admitTarget(ctx, c.Name); err != nil {
			return belay.NotificationTargetInfo{}, err
		}
	}
	return a.Backend.ChangeNotificationTarget(ctx, c)
}

// TestNotificationTarget judges the request of a test.
func (a *admitting) TestNotificationTarget(
	ctx context.Context, t belay.NotificationTargetTest,
) (belay.ExecutionID, error) {
	if err := a.admitTarget(ctx, t.Name); err != nil {
		return belay.ExecutionID{}, err
	}
	return a.Backend.TestNotificationTarget(ctx, t)
}

// admitTarget judges the requests of a target that is set.
func (a *admitting) admitTarget(ctx context.Context, name string) error {
	t, err := a.NotificationTarget(ctx, name)
	if err != nil {
		return err
	}
	return a.admitTerms(ctx, &t.NotificationTarget)
}

// admitTerms judges the deliveries of a target. A server that cannot publish refuses a target with an exchange: only a
// server with RabbitMQ knows which exchanges are its own.
func (a *admitting) admitTerms(ctx context.Context, t *belay.NotificationTarget) error {
	const op = "notification target"
	if err := belay.CheckNotificationTarget(op, t); err != nil {
		return err
	}
	if t.Exchange == "" {
		return a.admitNotify(ctx, []belay.Notification{t.Notification})
	}
	judge := a.by[belay.PublishWorkflow]
	if judge == nil {
		return &belay.Error{Code: belay.CodeConflict, Op: op, Message: "this server publishes no messages, since its " +
			"configuration has no RabbitMQ (broker.url); configure it, or ask a server that has one"}
	}
	sample, err := machine.TargetSample(t)
	if err != nil {
		return err
	}
	stored, err := judge(ctx, &sample)
	if err == nil {
		stored(belay.ExecutionID{})
	}
	return err
}

// ApplyDocument judges the notifications of a document, since a schedule that names the document starts its newest
// version without an Admission, and the schedules that the document defines, as PutSchedule does. The executions of its
// webhooks have no other notifications, and are judged at each delivery.
func (a *admitting) ApplyDocument(ctx context.Context, d belay.DocumentApply) (belay.DocumentApplied, error) {
	const op = "apply document"
	notify, err := catalog.Notifications(op, d.Name, d.Text)
	if err == nil {
		err = a.admitNotify(ctx, notify)
	}
	if err != nil {
		return belay.DocumentApplied{}, err
	}
	t, err := catalog.Triggers(op, d.Name, d.Text)
	if err != nil {
		return belay.DocumentApplied{}, err
	}
	for i := range t.Schedules {
		x, err := catalog.Sample(t.Schedules[i].Execution, d.Name, d.Text)
		if err == nil {
			err = a.admitLater(ctx, &x)
		}
		if err != nil {
			return belay.DocumentApplied{}, err
		}
	}
	return a.Backend.ApplyDocument(ctx, d)
}

// admitLater judges a submission that the engine makes later without an Admission. A queue that is full now does not
// concern it.
func (a *admitting) admitLater(ctx context.Context, x *belay.Submission) error {
	stored, err := a.admit(ctx, x)
	switch {
	case err == nil:
		stored(belay.ExecutionID{})
	case belay.CodeOf(err) != belay.CodeQueueFull:
		return err
	}
	return nil
}

// Control carries out an action. An action that makes an old execution run again is judged like a
// new submission.
func (a *admitting) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	switch c.Action {
	case belay.ActionRetry, belay.ActionRequeue, belay.ActionFork:
	default:
		return a.Backend.Control(ctx, c)
	}
	x, err := a.Execution(ctx, c.Execution)
	if err == nil && x.Workflow == belay.BulkWorkflow && (c.Action != belay.ActionRetry || len(c.Input) > 0) {
		return belay.Execution{}, &belay.Error{
			Code: belay.CodeForbidden, Op: string(c.Action),
			Message: "a bulk can be retried, but not with another input, and not be forked; start another bulk instead",
		}
	}
	if err != nil || a.by[x.Workflow] == nil && len(x.Notify) == 0 ||
		c.Action != belay.ActionFork && !x.State.Terminal() {
		return a.Backend.Control(ctx, c) // the Backend refuses the action and says why
	}
	s := belay.Submission{
		ID: c.Fork, Workflow: x.Workflow, Input: x.Input, Queue: x.Queue, WorkerLabels: x.WorkerLabels,
		Notify: x.Notify,
	}
	switch {
	case len(c.Input) > 0:
		s.Input = c.Input
	case len(c.InputPatch) > 0:
		if s.Input, err = machine.MergePatch(x.Input, c.InputPatch); err != nil {
			return a.Backend.Control(ctx, c) // the Backend refuses the patch and says why
		}
	}
	stored, err := a.admit(context.WithValue(ctx, reopenedKey{}, x.Input), &s)
	if err != nil {
		return belay.Execution{}, err
	}
	x, err = a.Backend.Control(ctx, c)
	if err != nil {
		x.ID = belay.ExecutionID{}
	}
	stored(x.ID)
	return x, err
}

// reopenedKey is the key under which the context of an Admission has the input of an execution that is reopened.
type reopenedKey struct{}

// Reopened returns, in an Admission, the present input of the execution that an action reopens or forks; ok is false
// for a new submission. trusted says that the caller uses the socket of the data directory, so that it may write every
// file of the store.
func Reopened(ctx context.Context) (input json.RawMessage, trusted, ok bool) {
	input, ok = ctx.Value(reopenedKey{}).(json.RawMessage)
	return input, ok && socketed(ctx), ok
}

// OpenWorker refuses a worker that would claim executions of belay.BulkWorkflow.
func (a *admitting) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	for _, r := range s.Workflows {
		if r.Workflow == belay.BulkWorkflow && !socketed(ctx) {
			return belay.Session{}, noBulks("open worker")
		}
	}
	return a.Backend.OpenWorker(ctx, s)
}

// Lock refuses the execution of a bulk: if the Backend has locked such an execution, Lock releases it at once and
// returns an error. It does not reopen a bulk either.
func (a *admitting) Lock(ctx context.Context, r belay.LockRequest) (belay.Lock, error) {
	if r.Reopen {
		if x, err := a.Execution(ctx, r.Execution); err == nil && x.Workflow == belay.BulkWorkflow {
			return belay.Lock{}, noBulks("lock")
		}
	}
	l, err := a.Backend.Lock(ctx, r)
	if err != nil || l.Execution.Workflow != belay.BulkWorkflow {
		return l, err
	}
	err = a.Settle(ctx, belay.Settlement{Lease: l.Lease, Outcome: belay.OutcomeReleased})
	return belay.Lock{}, errors.Join(noBulks("lock"), err)
}

func noBulks(op string) error {
	return &belay.Error{
		Code: belay.CodeForbidden, Op: op, Message: "executions of " + belay.BulkWorkflow + " belong to the server",
	}
}
