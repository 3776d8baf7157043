package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// maxStart is the largest number of children that one request submits.
const maxStart = 200

// Start submits children of the run in as few requests as possible, without waiting for their ends. The ParentKey of
// each submission names the child; Start sets its id. A child that an earlier run of this generation has started keeps
// its first input. The errors belong to the submissions: nil for a child that was started. If Start itself returns an
// error, the run gives its execution back or has lost it; then some of the children may have been started.
func (r *Run) Start(ctx context.Context, children []belay.Submission) ([]error, error) {
	errs := make([]error, 0, len(children))
	for some := range slices.Chunk(children, maxStart) {
		if err := r.pass(ctx); err != nil {
			return errs, err
		}
		for i := range some {
			s := &some[i]
			s.ID = belay.ChildID(r.a.Lease.Execution, r.a.Generation, s.ParentKey)
			s.Parent, s.Trigger = &r.a.Lease, belay.TriggerParent
		}
		got, err := r.submitAll(some)
		if err != nil {
			return errs, err
		}
		errs = append(errs, got...)
	}
	return errs, nil
}

// submitAll submits children until each of them was accepted or refused.
func (r *Run) submitAll(all []belay.Submission) ([]error, error) {
	errs := make([]error, len(all))
	left := make([]int, len(all)) // the numbers of the submissions without an answer
	for i := range left {
		left[i] = i
	}
	ctx, t := r.calls(r.life)
	for {
		if err := r.enter(); err != nil {
			return nil, err
		}
		some := make([]belay.Submission, len(left))
		for i, n := range left {
			some[i] = all[n]
		}
		answers, err := r.s.Backend.Submit(ctx, some...)
		if err == nil && len(answers) != len(some) {
			err = fmt.Errorf("%d answers to %d submissions", len(answers), len(some))
		}
		var again error
		if err == nil {
			left, again = r.sort(&t, left, answers, errs)
		} else {
			again = err
		}
		if again == nil {
			return errs, nil
		}
		if !r.again(ctx, &t, again) {
			return nil, r.answer("start children", again)
		}
	}
}

// sort notes the answers to submissions. It returns the submissions to repeat, and the error of one of them.
func (r *Run) sort(t *tries, left []int, answers []belay.Submitted, errs []error) (repeat []int, why error) {
	for i, a := range answers {
		switch {
		case a.Err == nil, belay.CodeOf(a.Err) == belay.CodeIdempotencyMismatch:
			// A child that was started with another input keeps its first input.
		case belay.CodeOf(a.Err) == belay.CodeLeaseLost, t.retryable(a.Err):
			repeat, why = append(repeat, left[i]), a.Err
		default:
			errs[left[i]] = refused("start", a.Err)
		}
	}
	return repeat, why
}

// ChildID returns the id of the child that the present generation starts under the name.
func (r *Run) ChildID(key string) belay.ExecutionID {
	return belay.ChildID(r.a.Lease.Execution, r.a.Generation, key)
}

// Bell wakes the branch that waits in Ends. Its methods are safe for concurrent use.
type Bell struct {
	r    *Run
	rung bool
	w    *wait
}

// Bell returns a new Bell of the run.
func (r *Run) Bell() *Bell { return &Bell{r: r} }

// Ring makes the present call of Ends, or the next one, return.
func (b *Bell) Ring() {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	b.rung = true
	if b.w != nil {
		b.r.wakeLocked(b.w)
	}
}

// Ends blocks until children have ended or the bell was rung, and returns all ends of children that have arrived, in
// the order of their seq. The ends stay unconsumed until SaveState consumes them, but Ends returns each end only once
// in a run. The calling branch counts as waiting, so that the run suspends during a long wait; text describes the wait,
// and is empty if the waits of other branches do.
func (r *Run) Ends(ctx context.Context, bell *Bell, text string) ([]belay.Signal, error) {
	c := find(ctx)
	if c == nil || c.r != r {
		return nil, ErrNoRun
	}
	isEnd := func(s *belay.Signal) bool { return !s.Child.IsZero() }
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wakeReaderLocked() // this branch may have been woken to read signals; another branch must read them then
	s := &r.signals
	for {
		if err := r.stopLocked(); err != nil {
			return nil, err
		}
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		ends := s.takeEndsLocked()
		if len(ends) > 0 || bell.rung {
			bell.rung, r.waits.idleSince = false, time.Time{}
			return ends, nil
		}
		if s.announced > s.seen && !s.reading {
			if _, err := r.readLocked(); err != nil {
				return nil, err
			}
			continue
		}
		w := &wait{b: c.b, name: text, text: text, wants: isEnd}
		bell.w = w
		r.blockLocked(ctx, w)
		bell.w = nil
		r.endWaitLocked(w, r.stopLocked())
	}
}

// Arrived returns the ends of children that were delivered with the claim and were not returned before.
func (r *Run) Arrived() []belay.Signal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.signals.takeEndsLocked()
}

// takeEndsLocked removes and returns the ends of children among the signals that were read.
func (s *signals) takeEndsLocked() (ends []belay.Signal) {
	var rest []belay.Signal
	for i := range s.list {
		if s.list[i].Child.IsZero() {
			rest = append(rest, s.list[i])
		} else {
			ends = append(ends, s.list[i])
		}
	}
	if len(ends) > 0 {
		s.list = rest
	}
	return ends
}

// SaveState saves the state of the execution, as Checkpoint does, and consumes the signals with the given seqs in the
// same write. If there are more than belay.MaxConsumes, it needs several writes; the first ones save the same state.
func (r *Run) SaveState(data json.RawMessage, consumes []int64) error {
	for {
		some := consumes[:min(len(consumes), belay.MaxConsumes)]
		if err := r.save(belay.Save{Kind: belay.KindState, Key: stateKey, Data: data, AlsoConsumes: some}); err != nil {
			return err
		}
		if consumes = consumes[len(some):]; len(consumes) == 0 {
			break
		}
	}
	r.mu.Lock()
	r.state = data
	r.mu.Unlock()
	return nil
}
