package belaytest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/belaydev/belay"
)

// wire is the Backend of one worker. After the worker has crashed, every call fails.
type wire struct {
	belay.Backend
	die func(session belay.WorkerID)

	mu      sync.Mutex
	session belay.WorkerID
	dead    bool // the worker has crashed
	crashed chan struct{}
	left    int // number of checkpoints until the worker crashes; 0 means that it does not crash
	after   bool
}

// errCrashed is the error of every call of a crashed worker; its code ends the worker's runs.
// errNoSession prevents a crashed worker from opening another session.
var (
	errCrashed = &belay.Error{
		Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Message: "the test made this worker crash",
	}
	errNoSession = &belay.Error{Code: belay.CodeForbidden, Message: "the test made this worker crash"}
)

// arm makes the worker crash at its n-th checkpoint from now on: right after the checkpoint was saved
// if after is true, and before it is saved if after is false.
func (w *wire) arm(n int, after bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.after = n, after
}

func (w *wire) crash() {
	w.mu.Lock()
	first, session := !w.dead, w.session
	w.dead = true
	w.mu.Unlock()
	if first {
		w.die(session)
		close(w.crashed)
	}
}

func (w *wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// count counts a checkpoint, before its save if after is false and after its save if after is true.
// It reports whether the worker must crash now.
func (w *wire) count(after bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left == 0 || w.after != after {
		return false
	}
	w.left--
	return w.left == 0
}

// Save saves a checkpoint. If arm has chosen this checkpoint, Save makes the worker crash before or
// after the checkpoint is saved.
func (w *wire) Save(ctx context.Context, s belay.Save) (int64, error) {
	if w.count(false) {
		w.crash()
	}
	seq, err := through(w, func() (int64, error) { return w.Backend.Save(ctx, s) })
	if err == nil && w.count(true) {
		w.crash()
		return 0, errCrashed
	}
	return seq, err
}

// through passes a call of the worker on to the Backend. It returns errCrashed if the worker
// crashed before the call returned.
func through[A any](w *wire, call func() (A, error)) (A, error) {
	var none A
	if w.isDead() {
		return none, errCrashed
	}
	a, err := call()
	if w.isDead() {
		return none, errCrashed
	}
	return a, err
}

// Submit refuses a child whose workflow no worker runs, because its parent would wait for ever.
func (w *wire) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	workers, err := w.Workers(ctx)
	if err != nil {
		return nil, err
	}
	for i := range s {
		if c := &s[i]; c.Parent != nil && !c.External && !slices.ContainsFunc(workers, func(x belay.Worker) bool {
			return runs(&x, c)
		}) {
			return nil, &belay.Error{Code: belay.CodeInvalid, Op: "submit", Message: fmt.Sprintf(
				"no worker of this test runs workflow %q of queue %q: register it where belaytest.Open is called",
				c.Workflow, cmp.Or(c.Queue, "default"))}
		}
	}
	return through(w, func() ([]belay.Submitted, error) { return w.Backend.Submit(ctx, s...) })
}

// runs reports whether the worker x would claim the child c.
func runs(x *belay.Worker, c *belay.Submission) bool {
	name := c.Workflow
	if c.Document != "" {
		name = "document" // the built-in workflow that runs stored documents
	}
	return !x.State.Ended() && slices.Contains(x.Queues, cmp.Or(c.Queue, "default")) &&
		slices.Contains(x.Workflows, belay.Registration{Workflow: name, Version: c.Version})
}

func (w *wire) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	if w.isDead() {
		return belay.Session{}, errNoSession
	}
	got, err := w.Backend.OpenWorker(ctx, s)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = got.ID
	return got, err
}

func (w *wire) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	return through(w, func() (belay.ClaimReply, error) { return w.Backend.Claim(ctx, r) })
}

func (w *wire) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	return through(w, func() (belay.HeartbeatReply, error) { return w.Backend.Heartbeat(ctx, h) })
}

func (w *wire) Settle(ctx context.Context, s belay.Settlement) error {
	_, err := through(w, func() (struct{}, error) { return struct{}{}, w.Backend.Settle(ctx, s) })
	return err
}

func (w *wire) Append(ctx context.Context, c belay.Chunk) error {
	_, err := through(w, func() (struct{}, error) { return struct{}{}, w.Backend.Append(ctx, c) })
	return err
}

func (w *wire) Drain(ctx context.Context, id belay.WorkerID) error {
	_, err := through(w, func() (struct{}, error) { return struct{}{}, w.Backend.Drain(ctx, id) })
	return err
}

func (w *wire) CloseWorker(ctx context.Context, id belay.WorkerID) error {
	_, err := through(w, func() (struct{}, error) { return struct{}{}, w.Backend.CloseWorker(ctx, id) })
	return err
}
