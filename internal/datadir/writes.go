package datadir

import (
	"context"
	"slices"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// Submit submits executions. It gives each execution its id before the first call, so that the
// store finds the execution if the call is repeated.
func (b *Backend) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	s = slices.Clone(s)
	for i := range s {
		if s[i].ID.IsZero() {
			s[i].ID = belay.ExecutionID(embedded.NewID())
		}
	}
	out := make([]belay.Submitted, len(s))
	open := make([]int, len(s)) // indices of submissions without a final answer
	for i := range s {
		open[i] = i
	}
	err := do(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) error {
		again := make([]belay.Submission, len(open))
		for k, i := range open {
			again[k] = s[i]
		}
		got, err := to.Submit(ctx, again...)
		if err != nil {
			return err
		}
		var unanswered []int
		for k, i := range open {
			if out[i] = got[k]; belay.CodeOf(out[i].Err) == belay.CodeUnavailable && out[i].Err != nil {
				unanswered, err = append(unanswered, i), out[i].Err
			}
		}
		open = unanswered
		return err
	})
	if err != nil && len(open) == len(s) {
		return nil, err
	}
	for _, i := range open {
		out[i] = belay.Submitted{ID: s[i].ID, Err: err}
	}
	return out, nil
}

// Control applies an action of an operator.
func (b *Backend) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	if c.Op.IsZero() {
		c.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.Control, c)
}

// Signal delivers a signal.
func (b *Backend) Signal(ctx context.Context, s belay.SignalRequest) error {
	if s.Op.IsZero() {
		s.Op = belay.OpID(embedded.NewID())
	}
	return tell(ctx, b, belay.Backend.Signal, s)
}

// OpenWorker opens a session. The session belongs to the store and outlives the process with the
// engine.
func (b *Backend) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	if s.ID.IsZero() {
		s.ID = belay.WorkerID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.OpenWorker, s)
}

// Claim makes a worker the owner of due executions.
func (b *Backend) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	began, wait := time.Now(), r.Wait
	return call(ctx, b, func(ctx context.Context, to belay.Backend, repeat bool) (belay.ClaimReply, error) {
		r.Wait, r.Repeat = left(began, wait), r.Repeat || repeat
		return to.Claim(ctx, r)
	})
}

// OpenMailbox makes the queue in the broker from which a worker gets its messages.
func (b *Backend) OpenMailbox(ctx context.Context, id belay.WorkerID) (belay.Mailbox, error) {
	return pass(ctx, b, belay.Backend.OpenMailbox, id)
}

// CloseMailbox ends the messages to a worker.
func (b *Backend) CloseMailbox(ctx context.Context, id belay.WorkerID) error {
	return tell(ctx, b, belay.Backend.CloseMailbox, id)
}

// Accept begins the runs of executions that are scheduled to a worker.
func (b *Backend) Accept(ctx context.Context, r belay.AcceptRequest) (belay.AcceptReply, error) {
	return pass(ctx, b, belay.Backend.Accept, r)
}

// Heartbeat renews a session.
func (b *Backend) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	return pass(ctx, b, belay.Backend.Heartbeat, h)
}

// Drain stops new claims of a worker.
func (b *Backend) Drain(ctx context.Context, id belay.WorkerID) error {
	return tell(ctx, b, belay.Backend.Drain, id)
}

// Cordon stops the claims of a worker for a while.
func (b *Backend) Cordon(ctx context.Context, c belay.Cordon) error {
	return tell(ctx, b, belay.Backend.Cordon, c)
}

// CloseWorker ends a session.
func (b *Backend) CloseWorker(ctx context.Context, id belay.WorkerID) error {
	return tell(ctx, b, belay.Backend.CloseWorker, id)
}

// Save writes a checkpoint.
func (b *Backend) Save(ctx context.Context, s belay.Save) (int64, error) {
	return call(ctx, b, func(ctx context.Context, to belay.Backend, repeat bool) (int64, error) {
		s.Repeat = s.Repeat || repeat
		return to.Save(ctx, s)
	})
}

// Settle ends a run.
func (b *Backend) Settle(ctx context.Context, s belay.Settlement) error {
	return do(ctx, b, func(ctx context.Context, to belay.Backend, repeat bool) error {
		s.Repeat = s.Repeat || repeat
		return to.Settle(ctx, s)
	})
}

// Append writes a chunk of a log or artifact.
func (b *Backend) Append(ctx context.Context, c belay.Chunk) error {
	return tell(ctx, b, belay.Backend.Append, c)
}

// Lock makes the caller the owner of an execution, without a worker.
func (b *Backend) Lock(ctx context.Context, r belay.LockRequest) (belay.Lock, error) {
	if r.ID.IsZero() {
		r.ID = belay.WorkerID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.Lock, r)
}

// CallTarget asks a circuit breaker whether a step may call a target, or reports how the call ended.
func (b *Backend) CallTarget(ctx context.Context, c belay.TargetCall) (belay.TargetAnswer, error) {
	return pass(ctx, b, belay.Backend.CallTarget, c)
}

// Renew sends the heartbeat of one run.
func (b *Backend) Renew(ctx context.Context, l belay.Lease) (belay.HeartbeatReply, error) {
	return pass(ctx, b, belay.Backend.Renew, l)
}

// ChangeDeadLetter resolves a dead letter, or adds a note to it.
func (b *Backend) ChangeDeadLetter(ctx context.Context, c belay.DeadLetterChange) (belay.DeadLetter, error) {
	if c.Op.IsZero() {
		c.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.ChangeDeadLetter, c)
}

// Bulk accepts a bulk, or carries out its dry run.
func (b *Backend) Bulk(ctx context.Context, r belay.Bulk) (belay.BulkReply, error) {
	if r.Op.IsZero() && !r.DryRun {
		r.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.Bulk, r)
}

// ChangeGate changes a gate.
func (b *Backend) ChangeGate(ctx context.Context, c belay.GateChange) (belay.GateDetail, error) {
	if c.Op.IsZero() {
		c.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.ChangeGate, c)
}

// ApplyDocument makes a text the newest version of a document.
func (b *Backend) ApplyDocument(ctx context.Context, a belay.DocumentApply) (belay.DocumentApplied, error) {
	if a.Op.IsZero() {
		a.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.ApplyDocument, a)
}

// ChangeDocument deprecates, restores or removes versions of a document.
func (b *Backend) ChangeDocument(ctx context.Context, c belay.DocumentChange) (belay.DocumentVersion, error) {
	if c.Op.IsZero() {
		c.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.ChangeDocument, c)
}

// PutSchedule creates a schedule or changes its terms.
func (b *Backend) PutSchedule(ctx context.Context, p belay.SchedulePut) (belay.SchedulePutResult, error) {
	if p.Op.IsZero() {
		p.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.PutSchedule, p)
}

// ChangeSchedule carries out an action on a schedule.
func (b *Backend) ChangeSchedule(ctx context.Context, c belay.ScheduleChange) (belay.ScheduleChanged, error) {
	if c.Op.IsZero() {
		c.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.ChangeSchedule, c)
}

// PutWebhook creates a webhook or changes its terms.
func (b *Backend) PutWebhook(ctx context.Context, p belay.WebhookPut) (belay.WebhookPutResult, error) {
	if p.Op.IsZero() {
		p.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.PutWebhook, p)
}

// ChangeWebhook carries out an action on a webhook.
func (b *Backend) ChangeWebhook(ctx context.Context, c belay.WebhookChange) (belay.WebhookInfo, error) {
	if c.Op.IsZero() {
		c.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.ChangeWebhook, c)
}

// PutNotificationTarget creates a target of notifications or changes its terms.
func (b *Backend) PutNotificationTarget(
	ctx context.Context, p belay.NotificationTargetPut,
) (belay.NotificationTargetPutResult, error) {
	if p.Op.IsZero() {
		p.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.PutNotificationTarget, p)
}

// ChangeNotificationTarget carries out an action on a target of notifications.
func (b *Backend) ChangeNotificationTarget(
	ctx context.Context, c belay.NotificationTargetChange,
) (belay.NotificationTargetInfo, error) {
	if c.Op.IsZero() {
		c.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.ChangeNotificationTarget, c)
}

// TestNotificationTarget sends a test to a target of notifications.
func (b *Backend) TestNotificationTarget(
	ctx context.Context, t belay.NotificationTargetTest,
) (belay.ExecutionID, error) {
	if t.Op.IsZero() {
		t.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.TestNotificationTarget, t)
}

// Deliver starts the execution of a delivery.
func (b *Backend) Deliver(ctx context.Context, d belay.WebhookEvent) (belay.WebhookDelivery, error) {
	return pass(ctx, b, belay.Backend.Deliver, d)
}

// Publish delivers CloudEvents to the webhooks that want them.
func (b *Backend) Publish(ctx context.Context, p belay.CloudEventPublish) ([]belay.CloudEventResult, error) {
	return pass(ctx, b, belay.Backend.Publish, p)
}

// ReplayDelivery starts another execution of a remembered delivery.
func (b *Backend) ReplayDelivery(ctx context.Context, r belay.WebhookReplay) (belay.WebhookDelivery, error) {
	if r.Op.IsZero() {
		r.Op = belay.OpID(embedded.NewID())
	}
	return pass(ctx, b, belay.Backend.ReplayDelivery, r)
}

// RevokeKey revokes an API key.
func (b *Backend) RevokeKey(ctx context.Context, r belay.Revocation) error {
	return tell(ctx, b, belay.Backend.RevokeKey, r)
}

// CreateKey makes an API key. The call has no operation id, and only its answer shows the secret,
// so the call is not repeated if the answer is lost.
func (b *Backend) CreateKey(ctx context.Context, s belay.KeySpec) (belay.NewKey, error) {
	r, err := b.role(ctx)
	if err != nil {
		return belay.NewKey{}, err
	}
	return r.CreateKey(ctx, s)
}
