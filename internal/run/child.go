package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
)

// keepOutput is the maximum size of a child's output, in bytes, that the parent saves in its own
// checkpoint, so that later runs of the parent need not read the child.
const keepOutput = 16 << 10

// Child starts the submission as a child under the name, unless an earlier run has already started
// that child. It returns the child after the child has ended.
func Child(ctx context.Context, name, key string, s belay.Submission) (belay.Execution, error) {
	var none belay.Execution
	c, full, err := within(ctx, "child", name, key)
	if err != nil {
		return none, err
	}
	r := c.r
	_, rec, err := r.begin(call{"child", name}, full)
	if err != nil {
		return none, err
	}
	s.ID, s.ParentKey = belay.ChildID(r.a.Lease.Execution, r.a.Generation, full), full
	if rec.Ended == endedChild {
		// The checkpoint of this wait says that the child has ended. If the child failed, the
		// checkpoint only counts in the generation that started the child: in a later generation
		// the child is started again.
		if rec.Payload != nil {
			return belay.Execution{ID: rec.Child, Workflow: s.Workflow, State: belay.Succeeded, Output: rec.Payload},
				nil
		}
		x, err := r.Execution(ctx, rec.Child)
		if err != nil || x.State == belay.Succeeded || rec.Child == s.ID {
			return x, err
		}
	}
	if err := r.pass(ctx); err != nil {
		return none, err
	}
	old, err := r.earlier(ctx, full, s.ID)
	if err != nil {
		return none, err
	}
	id := old
	if id.IsZero() {
		id = s.ID
		if err := r.startChild(s); err != nil {
			return none, err
		}
	}
	return r.childEnd(ctx, c.b, full, id)
}

// startChild submits the child. If an earlier run of this generation has started the child, the
// child keeps its first input.
func (r *Run) startChild(s belay.Submission) error {
	if r.has(func(x *belay.Signal) bool { return x.Child == s.ID }) {
		return nil // the child has already ended
	}
	s.Trigger = belay.TriggerParent
	err := r.submit(s)
	var e *belay.Error
	if errors.As(err, &e) && e.Code == belay.CodeIdempotencyMismatch {
		return nil
	}
	return err
}

// earlier returns a child of an earlier generation that succeeded under this name and whose end was
// not saved in a checkpoint; the zero id if there is no such child.
func (r *Run) earlier(ctx context.Context, key string, now belay.ExecutionID) (belay.ExecutionID, error) {
	for {
		r.mu.Lock()
		var id belay.ExecutionID
		for _, x := range r.signals.list {
			if !x.Child.IsZero() && x.Name == key && x.Child != now {
				id = x.Child
			}
		}
		r.mu.Unlock()
		if id.IsZero() {
			return id, nil
		}
		x, err := r.Execution(ctx, id)
		if err == nil && x.State == belay.Succeeded {
			return id, nil
		}
		if err != nil && belay.CodeOf(err) != belay.CodeNotFound {
			return belay.ExecutionID{}, err
		}
		r.mu.Lock() // no wait can use this signal: the child failed or was deleted
		r.signals.takeLocked(func(x *belay.Signal) bool { return x.Child == id })
		r.mu.Unlock()
	}
}

// childEnd waits for the child's end and saves the end in a checkpoint.
func (r *Run) childEnd(ctx context.Context, b *Branch, key string, id belay.ExecutionID) (belay.Execution, error) {
	var none belay.Execution
	began := time.Now()
	s, _, err := r.await(ctx, &wait{
		b: b, name: key, text: fmt.Sprintf("child %q", key),
		wants: func(s *belay.Signal) bool { return s.Child == id },
	})
	if err != nil {
		return none, err
	}
	x, err := r.Execution(ctx, id)
	if err != nil {
		r.putBack(s)
		return none, err
	}
	rec := record{Ended: endedChild, Child: id}
	if x.State == belay.Succeeded && len(x.Output) <= keepOutput {
		rec.Payload = x.Output
	}
	// A child that an earlier run has started has lasted longer than this wait.
	if lasted := began.Add(time.Since(began) - x.FinishedAt.Sub(x.CreatedAt)); lasted.Before(began) {
		began = lasted
	}
	if err := r.saveWait(key, rec, s.Seq, began); err != nil {
		r.putBack(s)
		return none, err
	}
	return x, nil
}
