package chaos

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/promise"
)

// recorder is a Backend that records the results of its caller's calls.
type recorder struct {
	belay.Backend
	who  string
	book notebook
}

// recorded makes a call and records the result that the caller got.
func recorded[T any](r *recorder, kind string, request any, call func() (T, error)) (T, error) {
	began := entry{Kind: kind, Who: r.who, At: time.Now()}
	got, err := call()
	for _, e := range promise.Entries(began, request, got, time.Now(), err) {
		r.book.note(e)
	}
	return got, err
}

// OpenWorker opens a session.
func (r *recorder) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	return recorded(r, "open", &s, func() (belay.Session, error) { return r.Backend.OpenWorker(ctx, s) })
}

// Claim claims executions. It records each claimed execution as an entry of its own.
func (r *recorder) Claim(ctx context.Context, q belay.ClaimRequest) (belay.ClaimReply, error) {
	return recorded(r, "claim", &q, func() (belay.ClaimReply, error) { return r.Backend.Claim(ctx, q) })
}

// Accept begins the runs of executions that are scheduled to the worker, and records each.
func (r *recorder) Accept(ctx context.Context, q belay.AcceptRequest) (belay.AcceptReply, error) {
	return recorded(r, "accept", &q, func() (belay.AcceptReply, error) { return r.Backend.Accept(ctx, q) })
}

// Heartbeat renews a session.
func (r *recorder) Heartbeat(ctx context.Context, q belay.Heartbeat) (belay.HeartbeatReply, error) {
	return recorded(r, "heartbeat", &q, func() (belay.HeartbeatReply, error) { return r.Backend.Heartbeat(ctx, q) })
}

// Save writes a checkpoint.
func (r *recorder) Save(ctx context.Context, s belay.Save) (int64, error) {
	r.intent(&s, s.CostTokens)
	return recorded(r, "save", &s, func() (int64, error) { return r.Backend.Save(ctx, s) })
}

// Settle ends a run.
func (r *recorder) Settle(ctx context.Context, s belay.Settlement) error {
	r.intent(&s, s.CostTokens)
	_, err := recorded(r, "settle", &s, func() (struct{}, error) { return struct{}{}, r.Backend.Settle(ctx, s) })
	return err
}

// Submit submits executions, and records each separately.
func (r *recorder) Submit(ctx context.Context, all ...belay.Submission) ([]belay.Submitted, error) {
	return recorded(r, "submit", all, func() ([]belay.Submitted, error) { return r.Backend.Submit(ctx, all...) })
}

// Control carries out an action.
func (r *recorder) Control(ctx context.Context, c belay.Control) (belay.Execution, error) {
	return recorded(r, "control", &c, func() (belay.Execution, error) { return r.Backend.Control(ctx, c) })
}

// Signal delivers a signal.
func (r *recorder) Signal(ctx context.Context, s belay.SignalRequest) error {
	_, err := recorded(r, "signal", &s, func() (struct{}, error) { return struct{}{}, r.Backend.Signal(ctx, s) })
	return err
}

// ledger is a notebook in a file, which outlives its process: each entry is one write.
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
		panic(err) // cannot happen: the values of e were decoded from JSON
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		panic(err) // an entry that is not in the ledger cannot be checked
	}
}

func (l *ledger) close() error { return l.file.Close() }
