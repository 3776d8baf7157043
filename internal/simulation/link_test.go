package simulation

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belaydev/belay"
)

// link is the network between one process and the nodes. It is a belay.Backend. Each call stops at
// the simulation's gate on the way to the node and on the way back. There the driver decides
// whether the call goes on.
type link struct {
	w     *world
	actor string

	// Only the driver uses these fields: the node to which the link leads, whether the link's
	// process is stopped, and which directions are cut off.
	node              int
	frozen            bool
	cutThere, cutBack bool

	died chan struct{}
	dead atomic.Bool
	wg   sync.WaitGroup // calls on their way, also calls for which no caller waits any more

	mu       sync.Mutex
	sessions map[belay.WorkerID]belay.WorkerID
}

var _ belay.Backend = (*link)(nil)

func (w *world) newLink(actor string, node int) *link {
	l := &link{w: w, actor: actor, node: node, died: make(chan struct{})}
	w.links = append(w.links, l)
	return l
}

// name returns a name that no other call of the link has, because it contains the time of the call.
func (l *link) name(c *call) string {
	return l.actor + " " + c.kind + " " + c.about + " " + strconv.FormatInt(int64(c.from), 36)
}

// session returns the id under which the nodes know a worker's session. This id depends only on the
// seed. It replaces the random id that the worker chose, because the worker's id may depend on the
// order in which the worker's goroutines get random numbers.
func (l *link) session(drawn belay.WorkerID) belay.WorkerID {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		l.sessions = make(map[belay.WorkerID]belay.WorkerID)
	}
	id, known := l.sessions[drawn]
	if !known {
		id = belay.WorkerID(l.w.id(l.actor, uint64(len(l.sessions))))
		l.sessions[drawn] = id
	}
	return id
}

// kill ends the process behind the link: its calls get no answer, and requests that the process
// sent may still arrive.
func (l *link) kill() {
	if !l.dead.Swap(true) {
		close(l.died)
	}
}

// send carries a call to the node and the reply back.
func send[T any](ctx context.Context, l *link, kind, about string, request any,
	do func(context.Context, belay.Backend) (T, error)) (T, error) {
	var zero T
	if l.dead.Load() {
		return zero, errGone
	}
	type answer struct {
		v   T
		err error
	}
	c := l.w.history.call(l.actor, kind, about, l.w.mutant.asSent(request))
	name := l.name(c)
	out := make(chan answer, 1)
	there, cancel := context.WithCancel(withActor(name))
	var gone atomic.Bool
	l.wg.Go(func() {
		defer cancel()
		v, err, arrived := carry(there, l, name, &gone, func(ctx context.Context, b belay.Backend) (T, error) {
			l.w.mutant.requested(l.w, request)
			v, err := do(ctx, b)
			l.w.mutant.replied(&v)
			return v, err
		})
		if arrived {
			l.w.history.noteAnswer(c, v, err)
		}
		out <- answer{v, err}
	})
	select {
	case a := <-out:
		return a.v, a.err
	case <-l.died:
		gone.Store(true)
		return zero, errGone
	case <-ctx.Done():
		gone.Store(true)
		err := &belay.Error{Code: belay.CodeUnavailable, Op: kind, Message: "gave up waiting", Err: context.Cause(ctx)}
		l.w.history.noteAnswer(c, nil, err)
		if !l.w.livesOn(name) {
			cancel()
		}
		return zero, err
	}
}

// carry carries the request, makes the call and carries the reply. arrived reports whether the
// caller still waited for the reply.
//
//nolint:revive // the error belongs to the value
func carry[T any](ctx context.Context, l *link, name string, gone *atomic.Bool,
	do func(context.Context, belay.Backend) (T, error)) (v T, err error, arrived bool) {
	t := &ticket{place: onRequest, name: name, link: l}
	if f := l.w.gate.pass(ctx, t); f != goes {
		return v, errUnknown(name), !gone.Load()
	}
	life := t.life // when the driver let the call go, it chose this life (from a start to a stop) of the node
	v, err = do(ctx, life.engine)
	if life.dead.Load() {
		var zero T
		v, err = zero, errUnknown(name)
	}
	if gone.Load() {
		return v, err, false
	}
	if f := l.w.gate.pass(context.Background(), &ticket{place: onReply, name: name, link: l, life: life}); f != goes {
		var zero T
		v, err = zero, errUnknown(name)
	}
	return v, err, !gone.Load()
}

func one[T any](ctx context.Context, l *link, kind, about string, request any, do func(context.Context,
	belay.Backend) error) (T, error) {
	return send(ctx, l, kind, about, request, func(ctx context.Context, b belay.Backend) (v T, err error) {
		return v, do(ctx, b)
	})
}

// Submit implements belay.Client.
func (l *link) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	return send(ctx, l, "submit", l.w.short(s[0].ID), s, func(ctx context.Context, b belay.Backend) ([]belay.Submitted,
		error) {
		return b.Submit(ctx, s...)
	})
}

// Control implements belay.Client.
func (l *link) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	return send(ctx, l, "control", string(c.Action)+" "+l.w.short(c.Execution), &c, func(ctx context.Context,
		b belay.Backend) (belay.Execution, error) {
		return b.Control(ctx, c)
	})
}

// Signal implements belay.Client.
func (l *link) Signal(ctx context.Context, s belay.SignalRequest) error {
	_, err := one[struct{}](ctx, l, "signal", l.w.short(s.Execution), &s, func(ctx context.Context,
		b belay.Backend) error {
		return b.Signal(ctx, s)
	})
	return err
}

// Execution implements belay.Client.
func (l *link) Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error) {
	return send(ctx, l, "execution", l.w.short(id), id, func(ctx context.Context, b belay.Backend) (belay.Execution,
		error) {
		return b.Execution(ctx, id)
	})
}

// Detail implements belay.Client.
func (l *link) Detail(ctx context.Context, id belay.ExecutionID) (belay.ExecutionDetail, error) {
	return send(ctx, l, "detail", l.w.short(id), id, func(ctx context.Context,
		b belay.Backend) (belay.ExecutionDetail, error) {
		return b.Detail(ctx, id)
	})
}

// Await implements belay.Client.
func (l *link) Await(ctx context.Context, id belay.ExecutionID, wait time.Duration) (belay.Execution, error) {
	wait = l.w.unlike(l.actor, wait)
	return send(ctx, l, "await", l.w.short(id), id, func(ctx context.Context, b belay.Backend) (belay.Execution,
		error) {
		return b.Await(ctx, id, wait)
	})
}

// Executions implements belay.Client.
func (l *link) Executions(ctx context.Context, f belay.Filter) (belay.Page, error) {
	return send(ctx, l, "executions", "", f, func(ctx context.Context, b belay.Backend) (belay.Page, error) {
		return b.Executions(ctx, f)
	})
}

// Follow implements belay.Client. No program of the simulation follows states.
func (l *link) Follow(context.Context, belay.StatusQuery, func(belay.StatusNews) error) error {
	return &belay.Error{Code: belay.CodeUnavailable, Op: "follow", Message: "the simulation has no followers"}
}

// Events implements belay.Client.
func (l *link) Events(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	return send(ctx, l, "events", l.w.short(q.Execution), q, func(ctx context.Context, b belay.Backend) ([]belay.Event,
		error) {
		return b.Events(ctx, q)
	})
}

// Explain implements belay.Client.
func (l *link) Explain(ctx context.Context, id belay.ExecutionID) (belay.Explanation, error) {
	return send(ctx, l, "explain", l.w.short(id), id, func(ctx context.Context, b belay.Backend) (belay.Explanation,
		error) {
		return b.Explain(ctx, id)
	})
}

// Chunks implements belay.Client.
func (l *link) Chunks(ctx context.Context, q belay.ChunkQuery) ([]belay.StoredChunk, error) {
	return send(ctx, l, "chunks", l.w.short(q.Execution), q, func(ctx context.Context,
		b belay.Backend) ([]belay.StoredChunk, error) {
		return b.Chunks(ctx, q)
	})
}

// Workers implements belay.Client.
func (l *link) Workers(ctx context.Context) ([]belay.Worker, error) {
	return send(ctx, l, "workers", "", nil, func(ctx context.Context, b belay.Backend) ([]belay.Worker, error) {
		return b.Workers(ctx)
	})
}

// OpenWorker implements belay.Owner.
func (l *link) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	s.ID = l.session(s.ID)
	return send(ctx, l, "open", "", &s, func(ctx context.Context, b belay.Backend) (belay.Session, error) {
		got, err := b.OpenWorker(ctx, s)
		if err == nil && l.w.plan.mailboxes && strings.HasPrefix(l.actor, "w") { // the others accept nothing
			_, err = b.OpenMailbox(ctx, got.ID)
		}
		return got, err
	})
}

// Claim implements belay.Owner.
func (l *link) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	r.Wait = l.w.unlike(l.actor, r.Wait)
	return send(ctx, l, "claim", strconv.Itoa(r.Slots), &r, func(ctx context.Context,
		b belay.Backend) (belay.ClaimReply, error) {
		return b.Claim(ctx, r)
	})
}

// Heartbeat implements belay.Owner.
func (l *link) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	return send(ctx, l, "heartbeat", "", &h, func(ctx context.Context, b belay.Backend) (belay.HeartbeatReply, error) {
		return b.Heartbeat(ctx, h)
	})
}

// Cordon implements belay.Owner.
func (l *link) Cordon(ctx context.Context, c belay.Cordon) error {
	_, err := one[struct{}](ctx, l, "cordon", "", c, func(ctx context.Context, b belay.Backend) error {
		return b.Cordon(ctx, c)
	})
	return err
}

// Drain implements belay.Owner.
func (l *link) Drain(ctx context.Context, id belay.WorkerID) error {
	_, err := one[struct{}](ctx, l, "drain", "", id, func(ctx context.Context, b belay.Backend) error {
		return b.Drain(ctx, id)
	})
	return err
}

// CloseWorker implements belay.Owner.
func (l *link) CloseWorker(ctx context.Context, id belay.WorkerID) error {
	_, err := one[struct{}](ctx, l, "close", "", id, func(ctx context.Context, b belay.Backend) error {
		return b.CloseWorker(ctx, id)
	})
	return err
}

// Save implements belay.Owner.
func (l *link) Save(ctx context.Context, s belay.Save) (int64, error) {
	return send(ctx, l, "save", l.w.short(s.Lease.Execution)+" "+s.Key, &s, func(ctx context.Context,
		b belay.Backend) (int64, error) {
		return b.Save(ctx, s)
	})
}

// Settle implements belay.Owner.
func (l *link) Settle(ctx context.Context, s belay.Settlement) error {
	_, err := one[struct{}](ctx, l, "settle", l.w.short(s.Lease.Execution), &s, func(ctx context.Context,
		b belay.Backend) error {
		return b.Settle(ctx, s)
	})
	return err
}

// Signals implements belay.Owner.
func (l *link) Signals(ctx context.Context, q belay.SignalQuery) ([]belay.Signal, error) {
	return send(ctx, l, "signals", l.w.short(q.Execution), q, func(ctx context.Context,
		b belay.Backend) ([]belay.Signal, error) {
		return b.Signals(ctx, q)
	})
}

// Resume implements belay.Owner.
func (l *link) Resume(ctx context.Context, q belay.ResumeQuery) (belay.Resumed, error) {
	return send(ctx, l, "resume", l.w.short(q.Lease.Execution), q, func(ctx context.Context,
		b belay.Backend) (belay.Resumed, error) {
		return b.Resume(ctx, q)
	})
}

// CallTarget implements belay.Owner.
func (l *link) CallTarget(ctx context.Context, c belay.TargetCall) (belay.TargetAnswer, error) {
	return send(ctx, l, "target", l.w.short(c.Lease.Execution)+" "+c.Target+" "+c.Step, c, func(ctx context.Context,
		b belay.Backend) (belay.TargetAnswer, error) {
		return b.CallTarget(ctx, c)
	})
}

// Append implements belay.Owner.
func (l *link) Append(ctx context.Context, c belay.Chunk) error {
	_, err := one[struct{}](ctx, l, "append", l.w.short(c.Lease.Execution)+" "+c.Name, &c, func(ctx context.Context,
		b belay.Backend) error {
		return b.Append(ctx, c)
	})
	return err
}

// Runs implements belay.Client.
func (l *link) Runs(ctx context.Context, id belay.ExecutionID) ([]belay.RunRecord, error) {
	return send(ctx, l, "runs", l.w.short(id), id, func(ctx context.Context, b belay.Backend) ([]belay.RunRecord,
		error) {
		return b.Runs(ctx, id)
	})
}

// ListRuns implements belay.Client.
func (l *link) ListRuns(ctx context.Context, f belay.RunFilter) (belay.RunPage, error) {
	return send(ctx, l, "list runs", "", &f, func(ctx context.Context, b belay.Backend) (belay.RunPage, error) {
		return b.ListRuns(ctx, f)
	})
}

// Lock implements belay.Owner.
func (l *link) Lock(ctx context.Context, r belay.LockRequest) (belay.Lock, error) {
	return send(ctx, l, "lock", l.w.short(r.Execution), &r, func(ctx context.Context, b belay.Backend) (belay.Lock,
		error) {
		return b.Lock(ctx, r)
	})
}

// Renew implements belay.Owner.
func (l *link) Renew(ctx context.Context, x belay.Lease) (belay.HeartbeatReply, error) {
	return send(ctx, l, "renew", l.w.short(x.Execution), &x, func(ctx context.Context,
		b belay.Backend) (belay.HeartbeatReply, error) {
		return b.Renew(ctx, x)
	})
}

// errNoKeys refuses calls on API keys, which the simulation does not have.
var errNoKeys = &belay.Error{Code: belay.CodeForbidden, Message: "there are no keys in the simulation"}

// CreateKey implements belay.Keyring.
func (l *link) CreateKey(context.Context, belay.KeySpec) (belay.NewKey, error) {
	return belay.NewKey{}, errNoKeys
}

// Keys implements belay.Keyring.
func (l *link) Keys(context.Context) ([]belay.Key, error) { return nil, errNoKeys }

// RevokeKey implements belay.Keyring.
func (l *link) RevokeKey(context.Context, belay.Revocation) error { return errNoKeys }

// Audit implements belay.Auditor.
func (l *link) Audit(ctx context.Context, f belay.AuditFilter) (belay.AuditPage, error) {
	return send(ctx, l, "audit", "", &f, func(ctx context.Context, b belay.Backend) (belay.AuditPage, error) {
		return b.Audit(ctx, f)
	})
}

// DeadLetters implements belay.DeadLetterOffice.
func (l *link) DeadLetters(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterPage, error) {
	return send(ctx, l, "dead letters", "", &f, func(ctx context.Context, b belay.Backend) (belay.DeadLetterPage,
		error) {
		return b.DeadLetters(ctx, f)
	})
}

// DeadLetterGroups implements belay.DeadLetterOffice.
func (l *link) DeadLetterGroups(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterGroups, error) {
	return send(ctx, l, "dead letter groups", "", &f, func(ctx context.Context,
		b belay.Backend) (belay.DeadLetterGroups, error) {
		return b.DeadLetterGroups(ctx, f)
	})
}

// DeadLetter implements belay.DeadLetterOffice.
func (l *link) DeadLetter(ctx context.Context, id belay.ExecutionID, generation int) (belay.DeadLetterDetail, error) {
	return send(ctx, l, "dead letter", short(id), &id, func(ctx context.Context,
		b belay.Backend) (belay.DeadLetterDetail, error) {
		return b.DeadLetter(ctx, id, generation)
	})
}

// ChangeDeadLetter implements belay.DeadLetterOffice.
func (l *link) ChangeDeadLetter(ctx context.Context, c belay.DeadLetterChange) (belay.DeadLetter, error) {
	return send(ctx, l, "change dead letter", short(c.Execution), &c, func(ctx context.Context,
		b belay.Backend) (belay.DeadLetter, error) {
		return b.ChangeDeadLetter(ctx, c)
	})
}

// Bulk implements belay.Bulker.
func (l *link) Bulk(ctx context.Context, r belay.Bulk) (belay.BulkReply, error) {
	return send(ctx, l, "bulk", string(r.Action), &r, func(ctx context.Context, b belay.Backend) (belay.BulkReply,
		error) {
		return b.Bulk(ctx, r)
	})
}

// Gates implements belay.Gatekeeper.
func (l *link) Gates(ctx context.Context, f belay.GateFilter) (belay.GatePage, error) {
	return send(ctx, l, "gates", f.Kind, &f, func(ctx context.Context, b belay.Backend) (belay.GatePage, error) {
		return b.Gates(ctx, f)
	})
}

// Gate implements belay.Gatekeeper.
func (l *link) Gate(ctx context.Context, id belay.GateID) (belay.GateDetail, error) {
	return send(ctx, l, "gate", string(id), &id, func(ctx context.Context, b belay.Backend) (belay.GateDetail, error) {
		return b.Gate(ctx, id)
	})
}

// ChangeGate implements belay.Gatekeeper.
func (l *link) ChangeGate(ctx context.Context, c belay.GateChange) (belay.GateDetail, error) {
	return send(ctx, l, "change gate", string(c.Gate), &c, func(ctx context.Context,
		b belay.Backend) (belay.GateDetail, error) {
		return b.ChangeGate(ctx, c)
	})
}

// Documents implements belay.Library.
func (l *link) Documents(ctx context.Context, f belay.DocumentFilter) (belay.DocumentPage, error) {
	return send(ctx, l, "documents", "", &f, func(ctx context.Context, b belay.Backend) (belay.DocumentPage, error) {
		return b.Documents(ctx, f)
	})
}

// DocumentVersions implements belay.Library.
func (l *link) DocumentVersions(ctx context.Context, name string) (belay.DocumentVersions, error) {
	return send(ctx, l, "document versions", name, &name, func(ctx context.Context,
		b belay.Backend) (belay.DocumentVersions, error) {
		return b.DocumentVersions(ctx, name)
	})
}

// Document implements belay.Library.
func (l *link) Document(ctx context.Context, name string, version int) (belay.Document, error) {
	return send(ctx, l, "document", name, &version, func(ctx context.Context, b belay.Backend) (belay.Document, error) {
		return b.Document(ctx, name, version)
	})
}

// ApplyDocument implements belay.Library.
func (l *link) ApplyDocument(ctx context.Context, a belay.DocumentApply) (belay.DocumentApplied, error) {
	return send(ctx, l, "apply document", a.Name, &a, func(ctx context.Context,
		b belay.Backend) (belay.DocumentApplied, error) {
		return b.ApplyDocument(ctx, a)
	})
}

// ChangeDocument implements belay.Library.
func (l *link) ChangeDocument(ctx context.Context, c belay.DocumentChange) (belay.DocumentVersion, error) {
	return send(ctx, l, "change document", c.Name, &c, func(ctx context.Context,
		b belay.Backend) (belay.DocumentVersion, error) {
		return b.ChangeDocument(ctx, c)
	})
}

// Schedules implements belay.Scheduler.
func (l *link) Schedules(ctx context.Context, f belay.ScheduleFilter) (belay.SchedulePage, error) {
	return send(ctx, l, "schedules", "", &f, func(ctx context.Context, b belay.Backend) (belay.SchedulePage, error) {
		return b.Schedules(ctx, f)
	})
}

// Schedule implements belay.Scheduler.
func (l *link) Schedule(ctx context.Context, name string) (belay.ScheduleInfo, error) {
	return send(ctx, l, "schedule", name, &name, func(ctx context.Context,
		b belay.Backend) (belay.ScheduleInfo, error) {
		return b.Schedule(ctx, name)
	})
}

// PutSchedule implements belay.Scheduler.
func (l *link) PutSchedule(ctx context.Context, p belay.SchedulePut) (belay.SchedulePutResult, error) {
	return send(ctx, l, "put schedule", p.Name, &p, func(ctx context.Context,
		b belay.Backend) (belay.SchedulePutResult, error) {
		return b.PutSchedule(ctx, p)
	})
}

// ChangeSchedule implements belay.Scheduler.
func (l *link) ChangeSchedule(ctx context.Context, c belay.ScheduleChange) (belay.ScheduleChanged, error) {
	return send(ctx, l, "change schedule", c.Name, &c, func(ctx context.Context,
		b belay.Backend) (belay.ScheduleChanged, error) {
		return b.ChangeSchedule(ctx, c)
	})
}

// Webhooks implements belay.Webhooker.
func (l *link) Webhooks(ctx context.Context, f belay.WebhookFilter) (belay.WebhookPage, error) {
	return send(ctx, l, "webhooks", f.Cursor, &f, func(ctx context.Context,
		b belay.Backend) (belay.WebhookPage, error) {
		return b.Webhooks(ctx, f)
	})
}

// PutWebhook implements belay.Webhooker.
func (l *link) PutWebhook(ctx context.Context, p belay.WebhookPut) (belay.WebhookPutResult, error) {
	return send(ctx, l, "put webhook", p.Name, &p, func(ctx context.Context,
		b belay.Backend) (belay.WebhookPutResult, error) {
		return b.PutWebhook(ctx, p)
	})
}

// ChangeWebhook implements belay.Webhooker.
func (l *link) ChangeWebhook(ctx context.Context, c belay.WebhookChange) (belay.WebhookInfo, error) {
	return send(ctx, l, "change webhook", c.Name, &c, func(ctx context.Context,
		b belay.Backend) (belay.WebhookInfo, error) {
		return b.ChangeWebhook(ctx, c)
	})
}

// Deliver implements belay.Webhooker.
func (l *link) Deliver(ctx context.Context, d belay.WebhookEvent) (belay.WebhookDelivery, error) {
	return send(ctx, l, "deliver", d.Webhook, &d, func(ctx context.Context,
		b belay.Backend) (belay.WebhookDelivery, error) {
		return b.Deliver(ctx, d)
	})
}

// ReplayDelivery implements belay.Webhooker.
func (l *link) ReplayDelivery(ctx context.Context, r belay.WebhookReplay) (belay.WebhookDelivery, error) {
	return send(ctx, l, "replay delivery", r.Webhook, &r, func(ctx context.Context,
		b belay.Backend) (belay.WebhookDelivery, error) {
		return b.ReplayDelivery(ctx, r)
	})
}

// Publish implements belay.Webhooker.
func (l *link) Publish(ctx context.Context, p belay.CloudEventPublish) ([]belay.CloudEventResult, error) {
	return send(ctx, l, "publish", "", &p, func(ctx context.Context,
		b belay.Backend) ([]belay.CloudEventResult, error) {
		return b.Publish(ctx, p)
	})
}

// Webhook implements belay.Webhooker.
func (l *link) Webhook(ctx context.Context, name string) (belay.WebhookInfo, error) {
	return send(ctx, l, "webhook", name, &name, func(ctx context.Context,
		b belay.Backend) (belay.WebhookInfo, error) {
		return b.Webhook(ctx, name)
	})
}

// WebhookDelivery implements belay.Webhooker.
func (l *link) WebhookDelivery(ctx context.Context, webhook, id string) (belay.WebhookDeliveryData, error) {
	return send(ctx, l, "webhook delivery", webhook, &id, func(ctx context.Context,
		b belay.Backend) (belay.WebhookDeliveryData, error) {
		return b.WebhookDelivery(ctx, webhook, id)
	})
}

// Close implements belay.Backend.
func (l *link) Close() error { return nil }
