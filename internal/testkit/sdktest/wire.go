package sdktest

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/belaydev/belay"
)

// call is a worker's call in flight.
type call struct {
	op      string
	request any
	// done is false before the call reaches the Backend, and true when its reply is on the way
	// back.
	done bool
	// err is the error that the Backend returned, once done is true.
	err error
}

// wire is the Backend of one worker. It calls the hook before and after each call. If the hook
// returns an error, the worker gets that error: an error before the call means that the call never
// arrives, and an error after the call means that the reply is lost.
type wire struct {
	belay.Backend
	mu   sync.Mutex
	hook func(ctx context.Context, c call) error
}

var (
	errCut  = &belay.Error{Code: belay.CodeUnavailable, Message: "the wire is cut"}
	errGone = &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Message: "the worker has crashed"}
	errDead = &belay.Error{Code: belay.CodeForbidden, Message: "the worker has crashed"}
)

// set replaces the hook.
func (w *wire) set(hook func(ctx context.Context, c call) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hook = hook
}

// on calls the hook for the first n calls of one operation: before the call or, if done is true,
// after the call.
func (w *wire) on(op string, done bool, n int, hook func(ctx context.Context, c call) error) {
	var seen atomic.Int32
	w.set(func(ctx context.Context, c call) error {
		if c.op != op || c.done != done || int(seen.Add(1)) > n {
			return nil
		}
		return hook(ctx, c)
	})
}

// cut makes all calls fail before they reach the Backend.
func (w *wire) cut() { w.set(func(context.Context, call) error { return errCut }) }

func (w *wire) pass(ctx context.Context, c call) error {
	w.mu.Lock()
	hook := w.hook
	w.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(ctx, c)
}

func through[Q, A any](ctx context.Context, w *wire, op string, q Q, do func(context.Context, Q) (A, error)) (A,
	error) {
	var zero A
	if err := w.pass(ctx, call{op: op, request: q}); err != nil {
		return zero, err
	}
	a, err := do(ctx, q)
	if lost := w.pass(ctx, call{op: op, request: q, done: true, err: err}); lost != nil {
		return zero, lost
	}
	return a, err
}

// none adapts a call that returns only an error to the signature of a call with a result.
func none[Q any](do func(context.Context, Q) error) func(context.Context, Q) (struct{}, error) {
	return func(ctx context.Context, q Q) (struct{}, error) { return struct{}{}, do(ctx, q) }
}

func (w *wire) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	return through(ctx, w, "submit", s, func(ctx context.Context, s []belay.Submission) ([]belay.Submitted, error) {
		return w.Backend.Submit(ctx, s...)
	})
}

func (w *wire) Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error) {
	return through(ctx, w, "execution", id, w.Backend.Execution)
}

func (w *wire) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	return through(ctx, w, "open", s, w.Backend.OpenWorker)
}

func (w *wire) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	return through(ctx, w, "claim", r, w.Backend.Claim)
}

func (w *wire) Accept(ctx context.Context, r belay.AcceptRequest) (belay.AcceptReply, error) {
	return through(ctx, w, "accept", r, w.Backend.Accept)
}

func (w *wire) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	return through(ctx, w, "heartbeat", h, w.Backend.Heartbeat)
}

func (w *wire) Cordon(ctx context.Context, c belay.Cordon) error {
	_, err := through(ctx, w, "cordon", c, none(w.Backend.Cordon))
	return err
}

func (w *wire) Drain(ctx context.Context, id belay.WorkerID) error {
	_, err := through(ctx, w, "drain", id, none(w.Backend.Drain))
	return err
}

func (w *wire) CloseWorker(ctx context.Context, id belay.WorkerID) error {
	_, err := through(ctx, w, "close", id, none(w.Backend.CloseWorker))
	return err
}

func (w *wire) Save(ctx context.Context, s belay.Save) (int64, error) {
	return through(ctx, w, "save", s, w.Backend.Save)
}

func (w *wire) Settle(ctx context.Context, s belay.Settlement) error {
	_, err := through(ctx, w, "settle", s, none(w.Backend.Settle))
	return err
}

func (w *wire) Signals(ctx context.Context, q belay.SignalQuery) ([]belay.Signal, error) {
	return through(ctx, w, "signals", q, w.Backend.Signals)
}

func (w *wire) Resume(ctx context.Context, q belay.ResumeQuery) (belay.Resumed, error) {
	return through(ctx, w, "resume", q, w.Backend.Resume)
}

func (w *wire) CallTarget(ctx context.Context, c belay.TargetCall) (belay.TargetAnswer, error) {
	return through(ctx, w, "call target", c, w.Backend.CallTarget)
}

func (w *wire) Append(ctx context.Context, c belay.Chunk) error {
	_, err := through(ctx, w, "append", c, none(w.Backend.Append))
	return err
}

func (w *wire) Chunks(ctx context.Context, q belay.ChunkQuery) ([]belay.StoredChunk, error) {
	return through(ctx, w, "chunks", q, w.Backend.Chunks)
}
