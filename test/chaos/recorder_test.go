package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// recorder is a Backend whose user writes down what it was told.
type recorder struct {
	belay.Backend
	who  string
	book notebook
}

func (r *recorder) begin(kind string) entry { return entry{Kind: kind, Who: r.who, At: time.Now()} }

// OpenWorker opens a session.
func (r *recorder) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	e := r.begin("open")
	got, err := r.Backend.OpenWorker(ctx, s)
	e.Worker = got.ID
	told(r.book, e, err)
	return got, err
}

// Claim wins executions. Only what it won is written down, each by itself.
func (r *recorder) Claim(ctx context.Context, q belay.ClaimRequest) (belay.ClaimReply, error) {
	e := r.begin("claim")
	got, err := r.Backend.Claim(ctx, q)
	e.Worker, e.Number = q.Worker, q.Number
	if err != nil {
		told(r.book, e, err)
	}
	for i := range got.Assignments {
		a := &got.Assignments[i]
		e.Execution, e.Token, e.Had = a.Lease.Execution, a.Lease.Token, a.Checkpoints
		told(r.book, e, nil)
	}
	return got, err
}

// Heartbeat renews a session.
func (r *recorder) Heartbeat(ctx context.Context, q belay.Heartbeat) (belay.HeartbeatReply, error) {
	e := r.begin("heartbeat")
	got, err := r.Backend.Heartbeat(ctx, q)
	e.Worker, e.Revoked = q.Worker, len(got.Revoked)
	told(r.book, e, err)
	return got, err
}

// Save writes a checkpoint.
func (r *recorder) Save(ctx context.Context, s belay.Save) (int64, error) {
	e := r.begin("save")
	seq, err := r.Backend.Save(ctx, s)
	e.lease(s.Lease)
	e.Op, e.Check, e.Name, e.Data, e.Seq, e.Replayed = s.Op, s.Kind, s.Key, s.Data, seq, s.Repeat
	told(r.book, e, err)
	return seq, err
}

// Settle ends a run.
func (r *recorder) Settle(ctx context.Context, s belay.Settlement) error {
	e := r.begin("settle")
	err := r.Backend.Settle(ctx, s)
	e.lease(s.Lease)
	e.Op, e.Outcome, e.Data, e.Delay, e.Replayed = s.Op, s.Outcome, s.Output, s.RetryAfter, s.Repeat
	told(r.book, e, err)
	return err
}

// Submit submits executions, each written down by itself.
func (r *recorder) Submit(ctx context.Context, all ...belay.Submission) ([]belay.Submitted, error) {
	began := r.begin("submit")
	got, err := r.Backend.Submit(ctx, all...)
	for i := range all {
		e, s, one := began, &all[i], err
		e.Execution, e.Name, e.Key, e.Data = s.ID, s.Workflow, s.IdempotencyKey, s.Input
		if s.Parent != nil {
			e.Parent, e.Token = s.Parent.Execution, s.Parent.Token
		}
		if i < len(got) {
			e.Named, e.Replayed = got[i].ID, got[i].Replayed
			one = errors.Join(err, got[i].Err)
		}
		told(r.book, e, one)
	}
	return got, err
}

// Control carries out an action.
func (r *recorder) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	e := r.begin("control")
	x, err := r.Backend.Control(ctx, c)
	e.Execution, e.Name, e.Op, e.Key, e.Seq = c.Execution, string(c.Action), c.Op, c.Reason, x.Seq
	told(r.book, e, err)
	return x, err
}

// Signal delivers a signal.
func (r *recorder) Signal(ctx context.Context, s belay.SignalRequest) error {
	e := r.begin("signal")
	err := r.Backend.Signal(ctx, s)
	e.Execution, e.Name, e.Op, e.Data = s.Execution, s.Name, s.Op, s.Payload
	told(r.book, e, err)
	return err
}

func (e *entry) lease(l belay.Lease) { e.Execution, e.Worker, e.Token = l.Execution, l.Worker, l.Token }

func causeOf(err error) belay.Cause {
	var refusal *belay.Error
	if errors.As(err, &refusal) {
		return refusal.Cause
	}
	return ""
}

// ledger is a notebook in a file, which outlives its process: each entry is one
// write.
type ledger struct {
	mu   sync.Mutex
	file *os.File
}

func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &ledger{file: f}, nil
}

func (l *ledger) note(e entry) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // made of what came as JSON
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		panic(err) // what is not written down cannot be checked
	}
}

func (l *ledger) close() error { return l.file.Close() }
