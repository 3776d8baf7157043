package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
	"github.com/belaydev/belay/internal/store/memory"
)

// faulty is a memory store whose commits a test can delay, count and refuse.
type faulty struct {
	store.Store
	mu      sync.Mutex
	hold    chan struct{} // if set, commits wait until this channel is closed
	refuse  func(*machine.Changes) error
	batches []int // for each commit that passed, the number of executions that it wrote
}

func (f *faulty) Commit(ctx context.Context, need machine.Need, decide func(*machine.Rows) *machine.Changes) error {
	f.mu.Lock()
	hold, refuse := f.hold, f.refuse
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	var refused error
	err := f.Store.Commit(ctx, need, func(r *machine.Rows) *machine.Changes {
		c := decide(r)
		if refuse != nil {
			refused = refuse(c)
		}
		if refused != nil {
			return &machine.Changes{}
		}
		f.mu.Lock()
		if n := len(c.Executions); n > 0 {
			f.batches = append(f.batches, n)
		}
		f.mu.Unlock()
		return c
	})
	if refused != nil {
		return refused
	}
	return err
}

// Commands that arrive during a commit become one batch.
func TestCommandsQueuedDuringACommitAreOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := &faulty{Store: memory.New(time.Now), hold: hold}
		e := engine.New(f, engine.Options{})
		defer e.Close()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := e.Submit(t.Context(), belay.Submission{Workflow: "w"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		f.mu.Lock()
		f.hold = nil
		f.mu.Unlock()
		close(hold)
		wg.Wait()
		if n := len(f.batches); n != 2 {
			t.Errorf("50 submissions took %d commits %v, want 2: the first to come, then all others", n, f.batches)
		}
	})
}

// The submissions of one call are queued together, so that no batch has only some of them.
func TestSubmissionsOfOneCallAreOneBatch(t *testing.T) {
	f := &faulty{Store: memory.New(time.Now)}
	e := engine.New(f, engine.Options{})
	defer e.Close()
	for range 20 {
		s := make([]belay.Submission, 100)
		for i := range s {
			s[i].Workflow = "w"
		}
		must[[]belay.Submitted](t)(e.Submit(t.Context(), s...))
	}
	if n := len(f.batches); n != 20 {
		t.Errorf("20 submissions of 100 took %d commits: %v", n, f.batches)
	}
}

// If the store refuses one command of a batch, only this command fails; the other commands of the
// batch are committed.
func TestARefusedCommandDoesNotFailItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		poison := errors.New("constraint failed")
		hold := make(chan struct{})
		f := &faulty{Store: memory.New(time.Now), hold: hold, refuse: func(c *machine.Changes) error {
			for _, e := range c.Executions {
				if e.Workflow == "poison" {
					return &belay.Error{Code: belay.CodeInternal, Err: poison}
				}
			}
			return nil
		}}
		e := engine.New(f, engine.Options{})
		defer e.Close()
		var wg sync.WaitGroup
		for i := range 41 {
			wg.Go(func() {
				w := "sound"
				if i == 17 || i == 30 {
					w = "poison"
				}
				out, err := e.Submit(t.Context(), belay.Submission{Workflow: w})
				if err != nil {
					t.Error(err)
				}
				if got, want := errors.Is(out[0].Err, poison), w == "poison"; got != want {
					t.Errorf("%s got %v", w, out[0].Err)
				}
			})
		}
		synctest.Wait()
		close(hold)
		wg.Wait()
		page := must[belay.Page](t)(e.Executions(t.Context(), belay.Filter{Limit: 100}))
		if len(page.Executions) != 39 {
			t.Errorf("%d of 39 sound executions are there", len(page.Executions))
		}
	})
}

// If the store is unavailable, the whole batch is refused with CodeUnavailable and is not tried
// again, because it may have been written.
func TestACommitWithUnknownOutcomeIsNotRepeated(t *testing.T) {
	calls := 0
	f := &faulty{Store: memory.New(time.Now), refuse: func(c *machine.Changes) error {
		if len(c.Executions) == 0 {
			return nil
		}
		calls++
		return &belay.Error{Code: belay.CodeUnavailable}
	}}
	e := engine.New(f, engine.Options{})
	defer e.Close()
	out := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{Workflow: "w"},
		belay.Submission{Workflow: "w"}))
	for _, o := range out {
		if belay.CodeOf(o.Err) != belay.CodeUnavailable {
			t.Errorf("got %v", o.Err)
		}
	}
	if calls > 2 {
		t.Errorf("the store was asked %d times", calls)
	}
}

// Close commits the commands that are in the queue. After Close every call is refused with
// CodeUnavailable.
func TestCloseCommitsTheQueueAndRefusesNewCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := &faulty{Store: memory.New(time.Now), hold: hold}
		e := engine.New(f, engine.Options{})
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				out, err := e.Submit(t.Context(), belay.Submission{Workflow: "w"})
				errs <- errors.Join(err, out[0].Err)
			}()
		}
		synctest.Wait()
		closed := make(chan struct{})
		go func() { defer close(closed); _ = e.Close() }()
		synctest.Wait()
		if out, _ := e.Submit(t.Context(),
			belay.Submission{Workflow: "w"}); belay.CodeOf(out[0].Err) != belay.CodeUnavailable {
			t.Errorf("a submission while closing got %v", out[0].Err)
		}
		close(hold)
		for range 3 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		<-closed
	})
}

// Guarantee G2 (no stale write): a write that was committed is never refused as stale. If the store
// cannot look up whether the first try of a repeated write was committed, the engine answers
// CodeUnavailable, because the outcome is unknown.
func TestARepeatedWriteThatCannotBeLookedUpIsUnavailable(t *testing.T) {
	f := &faulty{Store: memory.New(time.Now)}
	e := engine.New(f, engine.Options{})
	defer e.Close()
	s := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{Name: "w", Workflows: noop, Capacity: 1}))
	submit(t, e)
	r := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{Worker: s.ID, Number: 1, Slots: 1}))
	end := belay.Settlement{Lease: r.Assignments[0].Lease, Op: belay.OpID{1}, Outcome: belay.OutcomeSucceeded}
	if err := e.Settle(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	calls := 0
	f.mu.Lock()
	f.refuse = func(*machine.Changes) error {
		// In the first commit the rules refuse the repeated write. The second commit looks up the
		// first try, and fails.
		if calls++; calls == 2 {
			return &belay.Error{Code: belay.CodeUnavailable}
		}
		return nil
	}
	f.mu.Unlock()
	if err := e.Settle(t.Context(), end); belay.CodeOf(err) != belay.CodeUnavailable {
		t.Errorf("got %v", err)
	}
	if err := e.Settle(t.Context(), end); err != nil {
		t.Errorf("repeated again: %v", err)
	}
}

// When the store refuses all writes because it is broken, the engine closes the channel of Failed,
// and does not try the batch again in halves.
func TestABrokenStoreEndsTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		hold := make(chan struct{})
		f := &faulty{Store: memory.New(time.Now), hold: hold, refuse: func(c *machine.Changes) error {
			if len(c.Executions) == 0 {
				return nil
			}
			asked++
			return &belay.Error{Code: belay.CodeInternal, Err: store.ErrBroken}
		}}
		e := engine.New(f, engine.Options{Log: slog.New(slog.DiscardHandler)})
		defer e.Close()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				out, _ := e.Submit(t.Context(), belay.Submission{Workflow: "w"})
				if !errors.Is(out[0].Err, store.ErrBroken) {
					t.Errorf("got %v", out[0].Err)
				}
			})
		}
		synctest.Wait()
		close(hold)
		wg.Wait()
		<-e.Failed()
		if !errors.Is(e.Failure(), store.ErrBroken) || asked > 2 {
			t.Errorf("failure %v, asked %d times", e.Failure(), asked)
		}
	})
}

// A store that refuses a write counts as not writable until a write succeeds. The engine itself
// tries a small write; the success of that write counts only ten seconds after the last refused
// write.
func TestAStoreThatRefusesWritesIsNotWritable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := &belay.Error{Code: belay.CodeUnavailable, Message: "the disk is full"}
		f := &faulty{Store: memory.New(time.Now)}
		e := engine.New(f, engine.Options{})
		defer e.Close()
		submit := func(refuse error) {
			f.mu.Lock()
			f.refuse = func(*machine.Changes) error { return refuse }
			f.mu.Unlock()
			out := must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{Workflow: "w"}))
			if !errors.Is(out[0].Err, refuse) {
				t.Fatalf("submit: %v", out[0].Err)
			}
		}
		submit(full)
		if err := e.Writable(); !errors.Is(err, full) {
			t.Errorf("after a refused write: %v", err)
		}
		submit(nil)
		if err := e.Writable(); err != nil {
			t.Errorf("after a write that passed: %v", err)
		}
		submit(full)
		time.Sleep(time.Hour)
		if err := e.Writable(); !errors.Is(err, full) {
			t.Errorf("an hour after a refused write: %v", err)
		}
		f.mu.Lock()
		f.refuse = nil
		f.mu.Unlock()
		time.Sleep(15 * time.Second)
		if err := e.Writable(); err != nil {
			t.Errorf("fifteen seconds after the store was mended: %v", err)
		}
	})
}
