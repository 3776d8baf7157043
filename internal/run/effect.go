package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/retry"
)

// maxInternal is how many times a call is repeated after an error with CodeInternal.
const maxInternal = 3

// tries counts the tries of a call to the Backend.
type tries struct {
	delays   retry.Delays
	internal int
}

// calls returns the context and the counter for a call that the run itself repeats. With this
// context package client tries the call only once.
func (r *Run) calls(ctx context.Context) (context.Context, tries) {
	return retry.Once(ctx), tries{delays: retry.NewDelays(r.s.IDs)}
}

// Enter blocks until it is certain that the run still owns its execution, and then returns nil. It
// returns an error if the run does not own its execution any more.
func (r *Run) Enter() error {
	return r.enter()
}

func (r *Run) enter() error {
	if r.life.Err() != nil || !r.s.Fence.Enter(r.life.Done()) {
		return context.Cause(r.life)
	}
	return nil
}

// again reports whether a call that returned err should be repeated; before it returns true, it
// waits for the delay between two tries. An error with CodeLeaseLost ends the run.
func (r *Run) again(ctx context.Context, t *tries, err error) bool {
	if err == nil {
		return false
	}
	if belay.CodeOf(err) == belay.CodeLeaseLost {
		r.Lose(err)
		return false
	}
	return t.retryable(err) && t.delays.Wait(ctx, err)
}

// retryable reports whether a repeated call may have another outcome, because the Backend was not
// reached or the outcome of the first call is unknown.
func (t *tries) retryable(err error) bool {
	var e *belay.Error
	if !errors.As(err, &e) {
		return true
	}
	switch e.Code {
	case belay.CodeQueueFull:
		return true
	case belay.CodeInternal:
		t.internal++
		return t.internal <= maxInternal
	}
	return retry.Transient(err)
}

// refused wraps the error of a write that the store refused. It marks the error as permanent if the
// next run would get the same error.
func refused(op string, err error) error {
	err = fmt.Errorf("%s: %w", op, err)
	switch belay.CodeOf(err) {
	case belay.CodeInvalid, belay.CodeMalformed, belay.CodePayloadTooLarge, belay.CodeIdempotencyMismatch,
		belay.CodeForbidden:
		return belay.Permanent(err)
	}
	return err
}

// save writes a checkpoint. While the lease is valid, it works even if the context of the workflow
// function has ended.
func (r *Run) save(s belay.Save) error {
	s.Lease, s.Op, s.CostTokens, s.Steps = r.a.Lease, r.op(), r.takeCost(), r.takeReports()
	if r.s.reports() {
		s.Usage = r.takeUsage()
	} else {
		s.Took, s.Attempt = 0, 0
	}
	ctx, t := r.calls(r.life)
	stripped := false // the steps were left out
	for {
		if err := r.enter(); err != nil {
			return err
		}
		_, err := r.s.Backend.Save(ctx, s)
		if err == nil {
			if stripped {
				r.s.Quiet()
			}
			r.Progress()
			if r.s.Saved != nil {
				r.s.Saved(r.ID())
			}
			return nil
		}
		if reported := s.Took != 0 || s.Attempt != 0 || s.Steps != nil || s.Usage != (belay.ModelUsage{}); reported &&
			Refused(err) {
			r.giveUsage(s.Usage)
			s.Took, s.Attempt, s.Steps, s.Usage, stripped = 0, 0, nil, belay.ModelUsage{}, true
			continue
		}
		if !r.again(ctx, &t, err) {
			if belay.CodeOf(err) != belay.CodeInternal { // the cost may have been charged
				r.AddCost(s.CostTokens)
				r.giveUsage(s.Usage)
			}
			return r.answer("save "+s.Key, err)
		}
		s.Repeat = true
	}
}

// answer returns the error that the author gets for a write that the store did not acknowledge.
func (r *Run) answer(op string, err error) error {
	if r.life.Err() != nil {
		return context.Cause(r.life)
	}
	return refused(op, err)
}

// Append writes a chunk of a log or artifact.
func (r *Run) Append(c belay.Chunk) error {
	c.Lease = r.a.Lease
	ctx, t := r.calls(r.life)
	for {
		if err := r.enter(); err != nil {
			return err
		}
		err := r.s.Backend.Append(ctx, c)
		if err == nil {
			r.Progress()
			return nil
		}
		if !r.again(ctx, &t, err) {
			return r.answer("append to "+c.Name, err)
		}
	}
}

// Numbered returns the number of the next chunk of an artifact; ok is false if this run has not
// begun to write an artifact of that name.
func (r *Run) Numbered(name string) (next int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, ok = r.numbers[name]
	return next, ok
}

// Number records the number of the next chunk of an artifact.
func (r *Run) Number(name string, next int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.numbers == nil {
		r.numbers = make(map[string]int64)
	}
	r.numbers[name] = next
}

// submit submits a child.
func (r *Run) submit(s belay.Submission) error {
	s.Parent = &r.a.Lease
	ctx, t := r.calls(r.life)
	for {
		if err := r.enter(); err != nil {
			return err
		}
		answers, err := r.s.Backend.Submit(ctx, s)
		if err == nil && len(answers) == 1 {
			err = answers[0].Err
		}
		if err == nil {
			return nil
		}
		if !r.again(ctx, &t, err) {
			return r.answer("start "+s.ParentKey, err)
		}
	}
}

// read makes a call that only reads, and repeats it until the Backend answers or ctx ends.
func read[T any](ctx context.Context, r *Run, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, t := r.calls(ctx)
	for {
		v, err := call(ctx)
		if err == nil {
			return v, nil
		}
		if !r.again(ctx, &t, err) {
			if ctx.Err() != nil {
				return v, context.Cause(ctx)
			}
			return v, err
		}
	}
}

func (r *Run) readSignals(after int64) ([]belay.Signal, error) {
	return read(r.life, r, func(ctx context.Context) ([]belay.Signal, error) {
		return r.s.Backend.Signals(ctx, belay.SignalQuery{Execution: r.a.Lease.Execution, After: after})
	})
}

// Execution reads an execution.
func (r *Run) Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error) {
	return read(ctx, r, func(ctx context.Context) (belay.Execution, error) { return r.s.Backend.Execution(ctx, id) })
}

// DocumentVersions lists the versions of a stored document.
func (r *Run) DocumentVersions(ctx context.Context, name string) (belay.DocumentVersions, error) {
	return read(ctx, r, func(ctx context.Context) (belay.DocumentVersions, error) {
		return r.s.Backend.DocumentVersions(ctx, name)
	})
}

// Chunks reads a part of a log or artifact of this execution.
func (r *Run) Chunks(name string, from int64, limit int) ([]belay.StoredChunk, error) {
	return r.ChunksOf(r.a.Lease.Execution, name, from, limit)
}

// ChunksOf reads a part of a log or artifact of any execution.
func (r *Run) ChunksOf(id belay.ExecutionID, name string, from int64, limit int) ([]belay.StoredChunk, error) {
	q := belay.ChunkQuery{Execution: id, Name: name, From: from, Limit: limit}
	return read(r.life, r, func(ctx context.Context) ([]belay.StoredChunk, error) { return r.s.Backend.Chunks(ctx, q) })
}
