package belay

import (
	"context"
	"time"
)

// Backend is the interface through which a program uses Belay. Every method is safe for concurrent
// use, honours its context, and returns an *Error when it refuses a call.
//
// If the reply to a write was lost, the Backend may have carried the write out. Send the write
// again with the same operation id (ID, Op or Number): the Backend carries it out at most once and
// returns the first reply again.
type Backend interface {
	Client
	Owner
	Keyring
	Auditor
	Meter
	Gatekeeper
	DeadLetterOffice
	Bulker
	Library
	Scheduler
	Webhooker
	Notifier
	// Close releases the resources of the Backend in this process: goroutines, connections and the
	// store. It blocks until they are released.
	Close() error
}

// Client has the calls for programs that submit, control and watch executions.
type Client interface {
	// Submit accepts executions. It accepts or refuses each submission independently of the others;
	// the Err of a refused submission's Submitted says why. If Submit itself returns an error, the
	// caller does not know whether any of the submissions was accepted.
	Submit(ctx context.Context, s ...Submission) ([]Submitted, error)
	// Control carries out an action. It returns CodeConflict if the action is not legal in the
	// execution's state. Repeating an action that was already carried out is no error.
	Control(ctx context.Context, c Control) (Execution, error)
	// Signal delivers a signal. The store keeps the signal until the execution waits for it. Signal
	// returns CodeConflict if the execution has ended.
	Signal(ctx context.Context, s SignalRequest) error
	// Execution reads one execution. It returns CodeNotFound if no execution has the id.
	Execution(ctx context.Context, id ExecutionID) (Execution, error)
	// Detail reads one execution with its trigger payload, its newest change by a person or program, and
	// its metrics. It costs more than Execution. It returns CodeNotFound if no execution has the id.
	Detail(ctx context.Context, id ExecutionID) (ExecutionDetail, error)
	// Await returns the execution as soon as it has ended. After the time wait, Await returns the
	// execution in its current state. The reply may leave out input, labels and policy.
	Await(ctx context.Context, id ExecutionID, wait time.Duration) (Execution, error)
	// Executions lists executions, the newest first.
	Executions(ctx context.Context, f Filter) (Page, error)
	// Follow calls f with the states of the executions that a query selects: first a snapshot, unless
	// q.After names a position after which the Backend has all changes, and then every change of
	// state of an execution that matches the query before or after the change. It reports the changes
	// of one execution in order of seq, each once; several transitions in one commit are one change.
	// A new snapshot, with its cause, follows whenever changes may be missing: if f is too slow, or
	// if changes of other servers were lost. The deletion of an ended execution is no change. f is
	// called from one goroutine. Follow ends when f returns an error, which it returns; when ctx
	// ends; or with CodeUnavailable. Call it again then, with the last position.
	Follow(ctx context.Context, q StatusQuery, f func(StatusNews) error) error
	// Events reads the history of an execution: ordered by seq, without duplicates or gaps. With
	// Wait, the call is a long poll: it returns as soon as there is an event, or with no event when
	// the time Wait has passed.
	Events(ctx context.Context, q EventQuery) ([]Event, error)
	// Runs reads the runs (attempts) of an execution, the newest first, 200 at most. It returns
	// CodeNotFound if no execution has the id.
	Runs(ctx context.Context, id ExecutionID) ([]RunRecord, error)
	// ListRuns lists the runs of all executions that have started, the run that started last first.
	ListRuns(ctx context.Context, f RunFilter) (RunPage, error)
	// Explain gives the reason for the current state of an execution, in sentences.
	Explain(ctx context.Context, id ExecutionID) (Explanation, error)
	// Chunks reads a log or artifact.
	Chunks(ctx context.Context, q ChunkQuery) ([]StoredChunk, error)
	// Workers lists the sessions of workers: first the sessions that have not ended, then the ended
	// sessions; each group is sorted from the newest to the oldest.
	Workers(ctx context.Context) ([]Worker, error)
}

// Owner has the calls for workers and other owners of executions. Package worker makes these calls
// in the right order and at the right time. Programs in other languages use the same protocol over
// HTTP.
type Owner interface {
	// OpenWorker opens a session.
	OpenWorker(ctx context.Context, s WorkerSpec) (Session, error)
	// Claim takes due executions for a worker's free slots. While no execution is due, it waits for
	// the time Wait at most. It returns early, with Attention set, when the engine has a cancel, a
	// signal or another message for the worker; the reply to the worker's next heartbeat has this
	// message. Claim returns CodeLeaseLost if the session has ended.
	Claim(ctx context.Context, r ClaimRequest) (ClaimReply, error)
	// OpenMailbox makes the mailbox of a worker: a queue in the message broker. From now on, the engine
	// schedules executions to the worker and sends messages about them; see Accept. A worker that loses its
	// mailbox calls it again. It returns CodeNotFound if the server has no broker, and CodeLeaseLost if the
	// session has ended.
	OpenMailbox(ctx context.Context, id WorkerID) (Mailbox, error)
	// CloseMailbox ends the messages to a worker, which then gets all executions by Claim. Executions that are
	// scheduled to the worker are due again.
	CloseMailbox(ctx context.Context, id WorkerID) error
	// Accept begins the runs of executions that are scheduled to the worker, under the tokens that their
	// messages had. A repetition gets the same leases. It returns CodeLeaseLost if the session has ended.
	Accept(ctx context.Context, r AcceptRequest) (AcceptReply, error)
	// Heartbeat renews the session and every lease under it. It returns CodeLeaseLost if the
	// session has ended: the worker then owns none of its executions any more.
	Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error)
	// Drain makes the worker claim nothing more. Its current runs continue.
	Drain(ctx context.Context, id WorkerID) error
	// Cordon stops the worker from claiming executions, or with c.Off allows it again. The worker's
	// current runs continue. A cordon belongs to the session: it outlives restarts of the server, and
	// ends with the session, so that a program that is started again is not cordoned. Cordon returns
	// CodeConflict if the worker is draining, and CodeLeaseLost if the session has ended.
	Cordon(ctx context.Context, c Cordon) error
	// CloseWorker ends a session normally. Executions that the session still owns are released:
	// another worker claims them, and their retry budget is not charged.
	CloseWorker(ctx context.Context, id WorkerID) error
	// Save writes a checkpoint and returns its seq. It returns CodeLeaseLost, with the Cause, if
	// the lease is not valid any more.
	Save(ctx context.Context, s Save) (int64, error)
	// Settle ends a run with its outcome. It returns CodeLeaseLost if the lease is not valid any
	// more.
	Settle(ctx context.Context, s Settlement) error
	// Signals reads the signals that no checkpoint has consumed yet, in order of seq, up to some
	// megabytes in one reply. To read all signals, call Signals again with the highest seq of the
	// last reply, until a reply has no signal.
	Signals(ctx context.Context, q SignalQuery) ([]Signal, error)
	// Resume reads the input, checkpoints and signals for which the reply to Claim or Lock had no
	// room. It returns CodeLeaseLost if the lease is not valid any more.
	Resume(ctx context.Context, q ResumeQuery) (Resumed, error)
	// CallTarget asks, before a step calls an external service, whether the circuit breaker of this
	// target lets the call through, and reports afterwards how the call ended. A repeated report of a
	// failure may count as two failures. It returns CodeLeaseLost if the lease is not valid any more.
	CallTarget(ctx context.Context, c TargetCall) (TargetAnswer, error)
	// Append writes a chunk of a log or artifact under a lease. It returns CodeLeaseLost if the
	// lease is not valid any more.
	Append(ctx context.Context, c Chunk) error
	// Lock makes the caller, a program that is not a worker, the owner of one execution. The reply
	// has the new token, the execution and its checkpoints, all read in the transaction that takes
	// the lock. The execution must be due or waiting, and must have no owner. Lock returns
	// CodeLeaseHeld, with the Holder, while the execution has an owner, and CodeConflict if the
	// execution cannot be locked for another reason. After Lock, the owner uses Renew, Save, Append
	// and Settle.
	Lock(ctx context.Context, r LockRequest) (Lock, error)
	// Renew is the heartbeat of one run: it renews the session to which the lease belongs. It does
	// not count as progress of the run; see Policy.IdleTimeout. Unlike Heartbeat, Renew does not
	// compare the owner's list of runs with the store's list. If l has no Token, Renew finds the
	// lease by its Secret. Renew returns CodeLeaseLost if the lease is not valid any more.
	Renew(ctx context.Context, l Lease) (HeartbeatReply, error)
}

// Keyring manages the API keys with which clients use a server.
type Keyring interface {
	// CreateKey makes a key. Only this reply has the key's secret. It returns CodeConflict if the operation s.Op has
	// made a key already.
	CreateKey(ctx context.Context, s KeySpec) (NewKey, error)
	// Keys lists all keys, revoked keys included, the oldest first.
	Keys(ctx context.Context) ([]Key, error)
	// RevokeKey revokes a key for ever. Revoking a revoked key is no error. It returns CodeNotFound
	// if no key has the id.
	RevokeKey(ctx context.Context, r Revocation) error
}

// Auditor shows which person or program did what.
type Auditor interface {
	// Audit lists the entries of the audit that a filter selects, the newest first.
	Audit(ctx context.Context, f AuditFilter) (AuditPage, error)
}

// Meter shows the usage of language models.
type Meter interface {
	// Usage sums up the usage that runs have reported with Save. It returns CodeInvalid for a wrong filter, and
	// for a filter that selects too many executions and days.
	Usage(ctx context.Context, f UsageFilter) (UsageReport, error)
}

// Gatekeeper shows and changes gates: limits, rates, circuit breakers and pauses. See [GateID].
type Gatekeeper interface {
	// Gates lists the gates that an operator has set or that executions have named, in the order of
	// their ids. The gates of the list are without Held and Waiting.
	Gates(ctx context.Context, f GateFilter) (GatePage, error)
	// Gate reads one gate. A gate that no operator has set and no execution has named is open.
	Gate(ctx context.Context, id GateID) (GateDetail, error)
	// ChangeGate changes a gate and returns the gate after the change. A change that leaves the gate
	// as it is does nothing. It returns CodeIdempotencyMismatch if the gate has already made another
	// change with the same Op.
	ChangeGate(ctx context.Context, c GateChange) (GateDetail, error)
}

// DeadLetterOffice shows and resolves dead letters.
type DeadLetterOffice interface {
	// DeadLetters lists dead letters, the newest first: the open ones, unless the filter says otherwise.
	DeadLetters(ctx context.Context, f DeadLetterFilter) (DeadLetterPage, error)
	// DeadLetterGroups counts the dead letters of a filter by their fingerprints. It ignores Cursor and
	// Limit.
	DeadLetterGroups(ctx context.Context, f DeadLetterFilter) (DeadLetterGroups, error)
	// DeadLetter reads one dead letter, with everything that a person needs to repair the execution.
	// Generation 0 means the newest dead letter of the execution. It returns CodeNotFound if the
	// execution has no such dead letter.
	DeadLetter(ctx context.Context, id ExecutionID, generation int) (DeadLetterDetail, error)
	// ChangeDeadLetter resolves a dead letter, or adds a note to it. It returns CodeConflict, with the
	// first resolution in the message, if the dead letter is resolved already, and CodeNotFound if the
	// execution has no such dead letter.
	ChangeDeadLetter(ctx context.Context, c DeadLetterChange) (DeadLetter, error)
}

// Bulker acts on many executions at once.
type Bulker interface {
	// Bulk accepts a bulk and returns the execution of BulkWorkflow that carries it out, or, with DryRun,
	// counts the selection. It returns CodeInvalid if the filter selects everything and All is not set. A
	// server runs the execution; a program without a server gets an execution that waits until a server,
	// or belay bulk, opens the store.
	Bulk(ctx context.Context, b Bulk) (BulkReply, error)
}

// Library keeps documents: workflows that are written in YAML or JSON, in versions that do not change.
// An execution that was submitted with Submission.Document contains the text of its version, so that
// no change of a stored document concerns it.
type Library interface {
	// Documents lists the stored documents without their texts, in the order of their names.
	Documents(ctx context.Context, f DocumentFilter) (DocumentPage, error)
	// DocumentVersions lists the versions of a document, the newest first. It returns CodeNotFound if
	// the document has none.
	DocumentVersions(ctx context.Context, name string) (DocumentVersions, error)
	// Document reads one version with its text. Version 0 stands for the newest version that is not
	// deprecated; if there is none, Document returns CodeConflict. It returns CodeNotFound if there
	// is no such version.
	Document(ctx context.Context, name string, version int) (Document, error)
	// ApplyDocument makes a text the newest version of a document, and in the same commit makes the
	// schedules and webhooks of the document those that the text defines under its key on. If the newest
	// version has this text, there is no new version. It returns CodeConflict if IfVersion or IfNew do
	// not hold, if there are too many documents, versions, schedules or webhooks, or if there is a schedule
	// or webhook of the same name that the document does not define. It returns CodeInvalid if a schedule
	// or webhook is wrong. A server also checks the rest of the text, and returns CodeInvalid with its
	// problems; the Backend of an engine in this process does not.
	ApplyDocument(ctx context.Context, a DocumentApply) (DocumentApplied, error)
	// ChangeDocument deprecates, restores or removes versions, and returns the version after the
	// change; of a removed version only Name and Version are set. The removal of the last version
	// removes the schedules and webhooks of the document too. A change that was made before changes
	// nothing. It returns CodeNotFound if there is no such version.
	ChangeDocument(ctx context.Context, c DocumentChange) (DocumentVersion, error)
}

// Scheduler starts executions at regular times. See [Schedule].
type Scheduler interface {
	// Schedules lists schedules in the order of their names, without their next slots.
	Schedules(ctx context.Context, f ScheduleFilter) (SchedulePage, error)
	// Schedule reads one schedule with its next slots. It returns CodeNotFound if there is none.
	Schedule(ctx context.Context, name string) (ScheduleInfo, error)
	// PutSchedule creates a schedule or changes its terms. If the schedule has these terms already,
	// nothing changes. It returns CodeInvalid if the terms are wrong, CodeNotFound if they name a
	// document that is not stored, and CodeConflict if IfVersion or IfNew do not hold, if there are
	// too many schedules, or if a document defines the schedule.
	PutSchedule(ctx context.Context, p SchedulePut) (SchedulePutResult, error)
	// ChangeSchedule carries out an action on a schedule. It returns CodeNotFound if there is no such
	// schedule. A repeated ScheduleRun or ScheduleBackfill with the same Op starts nothing again.
	ChangeSchedule(ctx context.Context, c ScheduleChange) (ScheduleChanged, error)
}

// Webhooker starts executions for signed HTTP requests. See [Webhook].
type Webhooker interface {
	// Webhooks lists webhooks in the order of their names, without their newest deliveries.
	Webhooks(ctx context.Context, f WebhookFilter) (WebhookPage, error)
	// Webhook reads one webhook. It returns CodeNotFound if there is none.
	Webhook(ctx context.Context, name string) (WebhookInfo, error)
	// PutWebhook creates a webhook or changes its terms. If the webhook has these terms already,
	// nothing changes. Its errors are those of Scheduler.PutSchedule.
	PutWebhook(ctx context.Context, p WebhookPut) (WebhookPutResult, error)
	// ChangeWebhook carries out an action on a webhook. Its answer to a removal has only a name. It
	// returns CodeNotFound if there is no such webhook.
	ChangeWebhook(ctx context.Context, c WebhookChange) (WebhookInfo, error)
	// Deliver starts the execution of a delivery. It returns CodeConflict if the webhook is paused, and
	// the errors of Client.Submit that another attempt may not have, such as CodeQueueFull. A
	// delivery of which no execution can be made has the outcome DeliveryFailed, and no error.
	Deliver(ctx context.Context, d WebhookEvent) (WebhookDelivery, error)
	// WebhookDelivery reads one of the newest deliveries with its data. It returns CodeNotFound if the
	// webhook does not remember the delivery.
	WebhookDelivery(ctx context.Context, webhook, id string) (WebhookDeliveryData, error)
	// ReplayDelivery starts another execution of a remembered delivery.
	ReplayDelivery(ctx context.Context, r WebhookReplay) (WebhookDelivery, error)
	// Publish delivers CloudEvents to the webhooks that want them, and returns a result for each event. If
	// it returns an error, the caller can repeat the call: nothing is started twice.
	Publish(ctx context.Context, p CloudEventPublish) ([]CloudEventResult, error)
}

// Notifier reports ends of executions, and alerts, to targets that operators set. See [NotificationTarget].
type Notifier interface {
	// NotificationTargets lists all targets in the order of their names.
	NotificationTargets(ctx context.Context) ([]NotificationTargetInfo, error)
	// NotificationTarget reads one target. It returns CodeNotFound if there is none.
	NotificationTarget(ctx context.Context, name string) (NotificationTargetInfo, error)
	// PutNotificationTarget creates a target or changes its terms. If the target has these terms
	// already, nothing changes. It returns CodeInvalid if the terms are wrong, and CodeConflict if
	// IfVersion or IfNew do not hold, or if there are too many targets.
	PutNotificationTarget(ctx context.Context, p NotificationTargetPut) (NotificationTargetPutResult, error)
	// ChangeNotificationTarget carries out an action on a target. Its answer to a removal has only a
	// name. It returns CodeNotFound if there is no such target.
	ChangeNotificationTarget(ctx context.Context, c NotificationTargetChange) (NotificationTargetInfo, error)
	// TestNotificationTarget sends a test to a target, and returns the delivery. It returns CodeNotFound
	// if there is no such target.
	TestNotificationTarget(ctx context.Context, t NotificationTargetTest) (ExecutionID, error)
}
