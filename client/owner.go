package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// OpenWorker opens a session.
func (c *Client) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	if s.ID.IsZero() {
		s.ID = belay.WorkerID(c.set.ids())
	}
	var session belay.Session
	err := c.post(ctx, "open worker "+s.Name, "/v1/workers", s, &session)
	return session, err
}

// Claim takes due executions.
func (c *Client) Claim(ctx context.Context, q belay.ClaimRequest) (belay.ClaimReply, error) {
	wait := max(0, min(q.Wait, wire.MaxWait))
	w := wire.Claim{Number: q.Number, Slots: q.Slots, WaitMS: wire.Millis(wait), Repeat: q.Repeat, Messages: q.Messages}
	var reply wire.ClaimReply
	r := request{op: "claim", method: http.MethodPost, path: workerPath(q.Worker) + "/claim", reply: &reply, wait: wait}
	var err error
	if r.body, err = body(r.op, w); err != nil {
		return belay.ClaimReply{}, err
	}
	if err := c.once(ctx, &r); err != nil {
		return belay.ClaimReply{}, err
	}
	return reply.Reply(), nil
}

// OpenMailbox makes the queue in the broker from which a worker gets its messages.
func (c *Client) OpenMailbox(ctx context.Context, id belay.WorkerID) (belay.Mailbox, error) {
	var m belay.Mailbox
	err := c.retry(ctx, &request{
		op: "open the mailbox of " + id.String(), method: http.MethodPost, path: workerPath(id) + "/mailbox", reply: &m,
	})
	return m, err
}

// CloseMailbox ends the messages to a worker.
func (c *Client) CloseMailbox(ctx context.Context, id belay.WorkerID) error {
	return c.retry(ctx, &request{
		op: "close the mailbox of " + id.String(), method: http.MethodDelete, path: workerPath(id) + "/mailbox",
	})
}

// Accept begins the runs of executions that are scheduled to the worker.
func (c *Client) Accept(ctx context.Context, q belay.AcceptRequest) (belay.AcceptReply, error) {
	var reply wire.AcceptReply
	r := request{op: "accept", method: http.MethodPost, path: workerPath(q.Worker) + "/accept", reply: &reply}
	var err error
	if r.body, err = body(r.op, wire.AcceptOf(q)); err == nil {
		err = c.retry(ctx, &r)
	}
	if err != nil {
		return belay.AcceptReply{}, err
	}
	return reply.Reply(), nil
}

// Heartbeat renews a session.
func (c *Client) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	var reply wire.HeartbeatReply
	r := request{
		op: "heartbeat", method: http.MethodPost, path: workerPath(h.Worker) + "/heartbeat", reply: &reply, alive: true,
	}
	var err error
	if r.body, err = body(r.op, wire.HeartbeatOf(h)); err == nil {
		err = c.once(ctx, &r)
	}
	if err != nil {
		return belay.HeartbeatReply{}, err
	}
	return reply.Reply(), nil
}

// Drain makes a worker claim nothing more.
func (c *Client) Drain(ctx context.Context, id belay.WorkerID) error {
	return c.retry(ctx, &request{
		op: "drain " + id.String(), method: http.MethodPost, path: workerPath(id) + "/drain",
	})
}

// Cordon stops a worker from claiming executions, or with Off allows it again.
func (c *Client) Cordon(ctx context.Context, r belay.Cordon) error {
	verb := "cordon"
	if r.Off {
		verb = "uncordon"
	}
	q := request{
		op: verb + " " + r.Worker.String(), method: http.MethodPost, path: workerPath(r.Worker) + "/" + verb,
	}
	if !r.Off {
		var err error
		if q.body, err = body(q.op, wire.WorkerCordon{Reason: r.Reason, Actor: r.Actor}); err != nil {
			return err
		}
	}
	return c.retry(ctx, &q)
}

// CloseWorker ends a session normally.
func (c *Client) CloseWorker(ctx context.Context, id belay.WorkerID) error {
	return c.once(ctx, &request{op: "close " + id.String(), method: http.MethodDelete, path: workerPath(id)})
}

// Save writes a checkpoint.
func (c *Client) Save(ctx context.Context, s belay.Save) (int64, error) {
	w := wire.SaveOf(s)
	r, err := c.batches.do(ctx, "save "+s.Key+" of "+s.Lease.Execution.String(), wire.Op{Save: &w})
	return r.Seq, err
}

// Settle ends a run.
func (c *Client) Settle(ctx context.Context, s belay.Settlement) error {
	w := wire.SettleOf(s)
	_, err := c.batches.do(ctx, "settle "+s.Lease.Execution.String(), wire.Op{Settle: &w})
	return err
}

// CallTarget asks a circuit breaker whether a step may call a target, or reports how the call ended.
// The Client does not repeat the report of a failure, which could then count twice.
func (c *Client) CallTarget(ctx context.Context, t belay.TargetCall) (belay.TargetAnswer, error) {
	var reply wire.TargetAnswer
	r := request{
		op: "call target " + t.Target, method: http.MethodPost, path: "/v1/runs/" + t.Lease.Run().String() + "/target",
		header: http.Header{}, reply: &reply,
	}
	setLease(r.header, t.Lease)
	var err error
	if r.body, err = body(r.op, wire.TargetCallOf(t)); err != nil {
		return belay.TargetAnswer{}, err
	}
	err = c.once(ctx, &r)
	return reply.Answer(), err
}

func setLease(h http.Header, l belay.Lease) {
	h.Set("Lease-Id", wire.LeaseID{Worker: l.Worker, Secret: l.Secret}.String())
	h.Set("Lease-Token", strconv.FormatInt(int64(l.Token), 10))
}

// Append writes a chunk of a log or artifact.
func (c *Client) Append(ctx context.Context, k belay.Chunk) error {
	w := wire.AppendOf(k)
	_, err := c.batches.do(ctx, "append to "+k.Name+" of "+k.Lease.Execution.String(), wire.Op{Append: &w})
	return err
}

// Signals reads the signals that no checkpoint has consumed.
func (c *Client) Signals(ctx context.Context, q belay.SignalQuery) ([]belay.Signal, error) {
	query := url.Values{}
	number(query, "after", q.After)
	reply, err := get[wire.Signals](ctx, c, "signals of "+q.Execution.String(), executionPath(q.Execution)+"/signals",
		query)
	return reply.Signals, err
}

// Resume reads one part of the input, checkpoints and signals that an owner needs to continue an
// execution.
func (c *Client) Resume(ctx context.Context, q belay.ResumeQuery) (belay.Resumed, error) {
	var reply wire.Resumed
	r := request{
		op: "resume " + q.Lease.Execution.String(), method: http.MethodGet, path: executionPath(q.Lease.Execution) +
			"/checkpoints",
		query: url.Values{}, header: http.Header{}, reply: &reply, read: true,
	}
	number(r.query, "after", q.After)
	setLease(r.header, q.Lease)
	if err := c.once(ctx, &r); err != nil {
		return belay.Resumed{}, err
	}
	return reply.Resumed(), nil
}

// Lock makes the caller the owner of an execution. If the Client gets no answer, it repeats the
// call with the same ID, so that the server returns the lock if an earlier try has taken it.
func (c *Client) Lock(ctx context.Context, l belay.LockRequest) (belay.Lock, error) {
	if l.ID.IsZero() {
		l.ID = belay.WorkerID(c.set.ids())
	}
	var reply wire.LockReply
	r := request{
		op: "lock " + l.Execution.String(), method: http.MethodPost, path: executionPath(l.Execution) + "/lock",
		reply: &reply,
	}
	var err error
	if r.body, err = body(r.op, wire.Lock{ID: l.ID, Owner: l.Owner, TTL: l.TTL, Reopen: l.Reopen}); err != nil {
		return belay.Lock{}, err
	}
	if err := c.retry(ctx, &r); err != nil {
		return belay.Lock{}, err
	}
	lock := reply.Lock()
	lock.Replayed = r.answer.Get("Idempotency-Replayed") == "true"
	return lock, nil
}

// Renew is the heartbeat of one run.
func (c *Client) Renew(ctx context.Context, l belay.Lease) (belay.HeartbeatReply, error) {
	id := wire.LeaseID{Worker: l.Worker, Secret: l.Secret}
	var reply wire.Renewal
	r := request{op: "renew " + l.Execution.String(), method: http.MethodPut, reply: &reply}
	r.path = executionPath(l.Execution) + "/lock/" + id.String()
	if err := c.once(ctx, &r); err != nil {
		return belay.HeartbeatReply{}, err
	}
	return reply.Reply(l), nil
}

// post sends a body once and does not repeat the call.
func (c *Client) post(ctx context.Context, op, path string, v, reply any) error {
	data, err := body(op, v)
	if err != nil {
		return err
	}
	return c.once(ctx, &request{op: op, method: http.MethodPost, path: path, body: data, reply: reply})
}

func workerPath(id belay.WorkerID) string { return "/v1/workers/" + id.String() }
