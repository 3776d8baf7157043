package datadir

import (
	"cmp"
	"context"
	"time"

	"github.com/belaydev/belay"
)

// Execution reads one execution.
func (b *Backend) Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error) {
	return pass(ctx, b, belay.Backend.Execution, id)
}

// Detail reads one execution with its trigger payload, its newest action and its metrics.
func (b *Backend) Detail(ctx context.Context, id belay.ExecutionID) (belay.ExecutionDetail, error) {
	return pass(ctx, b, belay.Backend.Detail, id)
}

// Await waits for the end of an execution, also while the engine moves to another process.
func (b *Backend) Await(ctx context.Context, id belay.ExecutionID, wait time.Duration) (belay.Execution, error) {
	began := time.Now()
	return call(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) (belay.Execution, error) {
		return to.Await(ctx, id, left(began, wait))
	})
}

// Executions lists executions.
func (b *Backend) Executions(ctx context.Context, f belay.Filter) (belay.Page, error) {
	return pass(ctx, b, belay.Backend.Executions, f)
}

// Follow reports the states of executions, also while the engine moves to another process.
func (b *Backend) Follow(ctx context.Context, q belay.StatusQuery, f func(belay.StatusNews) error) error {
	var refused error // the error of f
	err := do(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) error {
		if refused != nil {
			return nil //nolint:nilerr // so that do does not call Follow again; Follow returns the error below
		}
		return to.Follow(ctx, q, func(n belay.StatusNews) error {
			if n.Position != "" {
				q.After = n.Position
			}
			refused = f(n)
			return refused
		})
	})
	return cmp.Or(refused, err)
}

// Events reads the events of a history, or waits for new events, also while the engine moves to
// another process.
func (b *Backend) Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	began, wait := time.Now(), q.Wait
	return call(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) ([]belay.Event, error) {
		q.Wait = left(began, wait)
		return to.Events(ctx, q)
	})
}

// Runs reads the attempts at an execution.
func (b *Backend) Runs(ctx context.Context, id belay.ExecutionID) ([]belay.RunRecord, error) {
	return pass(ctx, b, belay.Backend.Runs, id)
}

// ListRuns lists runs of all executions.
func (b *Backend) ListRuns(ctx context.Context, f belay.RunFilter) (belay.RunPage, error) {
	return pass(ctx, b, belay.Backend.ListRuns, f)
}

// Audit lists entries of the audit.
func (b *Backend) Audit(ctx context.Context, f belay.AuditFilter) (belay.AuditPage, error) {
	return pass(ctx, b, belay.Backend.Audit, f)
}

// Usage sums up the usage of language models.
func (b *Backend) Usage(ctx context.Context, f belay.UsageFilter) (belay.UsageReport, error) {
	return pass(ctx, b, belay.Backend.Usage, f)
}

// Explain says why an execution is in its state.
func (b *Backend) Explain(ctx context.Context, id belay.ExecutionID) (belay.Explanation, error) {
	return pass(ctx, b, belay.Backend.Explain, id)
}

// Chunks reads a log or artifact.
func (b *Backend) Chunks(ctx context.Context, q belay.ChunkQuery) ([]belay.StoredChunk, error) {
	return pass(ctx, b, belay.Backend.Chunks, q)
}

// Workers lists the sessions.
func (b *Backend) Workers(ctx context.Context) ([]belay.Worker, error) {
	return call(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) ([]belay.Worker, error) {
		return to.Workers(ctx)
	})
}

// Signals reads the signals that no checkpoint has consumed yet.
func (b *Backend) Signals(ctx context.Context, q belay.SignalQuery) ([]belay.Signal, error) {
	return pass(ctx, b, belay.Backend.Signals, q)
}

// Resume reads what the owner of a lease needs to continue the execution.
func (b *Backend) Resume(ctx context.Context, q belay.ResumeQuery) (belay.Resumed, error) {
	return pass(ctx, b, belay.Backend.Resume, q)
}

// Keys lists the API keys.
func (b *Backend) Keys(ctx context.Context) ([]belay.Key, error) {
	return call(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) ([]belay.Key, error) {
		return to.Keys(ctx)
	})
}

// DeadLetters lists dead letters.
func (b *Backend) DeadLetters(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterPage, error) {
	return pass(ctx, b, belay.Backend.DeadLetters, f)
}

// DeadLetterGroups counts dead letters by their fingerprints.
func (b *Backend) DeadLetterGroups(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterGroups, error) {
	return pass(ctx, b, belay.Backend.DeadLetterGroups, f)
}

// DeadLetter reads one dead letter.
func (b *Backend) DeadLetter(ctx context.Context, id belay.ExecutionID, generation int) (belay.DeadLetterDetail,
	error) {
	return call(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) (belay.DeadLetterDetail, error) {
		return to.DeadLetter(ctx, id, generation)
	})
}

// Gates lists gates.
func (b *Backend) Gates(ctx context.Context, f belay.GateFilter) (belay.GatePage, error) {
	return pass(ctx, b, belay.Backend.Gates, f)
}

// Gate reads one gate.
func (b *Backend) Gate(ctx context.Context, id belay.GateID) (belay.GateDetail, error) {
	return pass(ctx, b, belay.Backend.Gate, id)
}

// Documents lists the stored documents.
func (b *Backend) Documents(ctx context.Context, f belay.DocumentFilter) (belay.DocumentPage, error) {
	return pass(ctx, b, belay.Backend.Documents, f)
}

// DocumentVersions lists the versions of a document.
func (b *Backend) DocumentVersions(ctx context.Context, name string) (belay.DocumentVersions, error) {
	return pass(ctx, b, belay.Backend.DocumentVersions, name)
}

// Document reads a version of a document.
func (b *Backend) Document(ctx context.Context, name string, version int) (belay.Document, error) {
	return call(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) (belay.Document, error) {
		return to.Document(ctx, name, version)
	})
}

// Schedules lists schedules.
func (b *Backend) Schedules(ctx context.Context, f belay.ScheduleFilter) (belay.SchedulePage, error) {
	return pass(ctx, b, belay.Backend.Schedules, f)
}

// Schedule reads one schedule.
func (b *Backend) Schedule(ctx context.Context, name string) (belay.ScheduleInfo, error) {
	return pass(ctx, b, belay.Backend.Schedule, name)
}

// Webhooks lists webhooks.
func (b *Backend) Webhooks(ctx context.Context, f belay.WebhookFilter) (belay.WebhookPage, error) {
	return pass(ctx, b, belay.Backend.Webhooks, f)
}

// Webhook reads one webhook.
func (b *Backend) Webhook(ctx context.Context, name string) (belay.WebhookInfo, error) {
	return pass(ctx, b, belay.Backend.Webhook, name)
}

// NotificationTargets lists the targets of notifications.
func (b *Backend) NotificationTargets(ctx context.Context) ([]belay.NotificationTargetInfo, error) {
	return call(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) ([]belay.NotificationTargetInfo, error) {
		return to.NotificationTargets(ctx)
	})
}

// NotificationTarget reads one target of notifications.
func (b *Backend) NotificationTarget(ctx context.Context, name string) (belay.NotificationTargetInfo, error) {
	return pass(ctx, b, belay.Backend.NotificationTarget, name)
}

// WebhookDelivery reads a delivery of a webhook.
func (b *Backend) WebhookDelivery(ctx context.Context, webhook, id string) (belay.WebhookDeliveryData, error) {
	return call(ctx, b, func(ctx context.Context, to belay.Backend, _ bool) (belay.WebhookDeliveryData, error) {
		return to.WebhookDelivery(ctx, webhook, id)
	})
}
