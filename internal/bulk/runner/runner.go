// Package runner carries out bulks (belay.Bulk): it has the workflow function of belay.BulkWorkflow.
//
// # No action twice
//
// The function saves the executions on which it acts next, its plan, before it acts on them. Each action has an
// operation id that depends only on the bulk, the execution and its generation, so an action that is repeated after a
// crash does nothing more. A run that takes the bulk over acts on the whole saved plan again, and continues to wait for
// the reopened executions in the plan. The numbers in the state change in the checkpoint that removes the execution
// from the plan, so no execution is counted twice. A run that has lost its lease cannot save another plan, so at worst
// it repeats actions of the saved plan.
//
// # Stages
//
// In a stage of the canary, the plan has at most as many executions as the stage still needs, so no further execution
// runs before the bulk has judged the stage. Conflicts do not count: the bulk takes other executions in their place.
// After the canary, the bulk acts on the next execution without waiting for the end of the previous one, but at most
// window reopened executions are running or waiting at the same time.
package runner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/bulk"
	"github.com/belaydev/belay/workflow"
)

const (
	// window is the largest number of executions in a plan.
	window = 1000
	// portion is the largest number of executions that are added to a plan at a time, and observed the
	// largest number of reopened executions that are read before the bulk goes on.
	portion  = 100
	observed = 200
	// saveEvery is how often the state is saved while it changes.
	saveEvery = time.Second
	// judged is the least number of ended executions for which the bulk checks the share of failures
	// after the canary.
	judged = 10
	// failures is how many failures the state shows, and message the largest number of bytes of one.
	failures = 10
	message  = 300
)

// Backend has the calls with which a bulk acts.
type Backend interface {
	bulk.Source
	Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error)
	Await(ctx context.Context, id belay.ExecutionID, wait time.Duration) (belay.Execution, error)
	Control(ctx context.Context, c belay.Control) (belay.Execution, error)
	ChangeDeadLetter(ctx context.Context, c belay.DeadLetterChange) (belay.DeadLetter, error)
}

// planned is an execution in the plan.
type planned struct {
	Execution  belay.ExecutionID `json:"execution"`
	Generation int               `json:"generation"`
	// Reopened says that the bulk has reopened the execution, and waits for its end.
	Reopened bool `json:"reopened,omitempty"`
}

// state is the saved state of a bulk.
type state struct {
	belay.BulkProgress
	// Before is the time at which the bulk was accepted. The bulk acts on no dead letter and no execution that is
	// newer.
	Before time.Time `json:"before"`
	// Stages is the number of stages of the canary that have passed.
	Stages int `json:"stages"`
	// Cursor is a place in the selection: the bulk has put all executions before this place into the plan. Over says
	// that no execution of the selection follows.
	Cursor string    `json:"cursor,omitempty"`
	Over   bool      `json:"over,omitempty"`
	Plan   []planned `json:"plan,omitempty"`
}

// Runner runs bulks.
type Runner struct {
	// Backend carries the actions out. It checks the actions of a bulk in the same way as actions of users.
	Backend Backend
}

// turn is one run of a bulk.
type turn struct {
	Backend
	id    belay.ExecutionID
	bulk  belay.Bulk
	state state
	saved time.Time // when the state was saved
	dirty bool      // the state has changed since
	next  time.Time // when the rate allows the next action
	seen  int       // the place in the plan where the next observation begins
}

// Run is the workflow function. Its output is the progress at the end. A bulk that has stopped by itself
// fails with the reason, and fails again if it is retried.
func (r *Runner) Run(ctx context.Context, b belay.Bulk) (belay.BulkProgress, error) {
	if err := bulk.Check(&b); err != nil {
		return belay.BulkProgress{}, belay.Permanent(err)
	}
	t := &turn{Backend: r.Backend, id: workflow.Execution(ctx), bulk: b}
	saved, resumed, err := workflow.State[state](ctx)
	if err != nil {
		return belay.BulkProgress{}, err
	}
	if t.state = saved; !resumed {
		x, err := t.Execution(ctx, t.id)
		if err != nil {
			return belay.BulkProgress{}, err
		}
		t.state.Before = x.CreatedAt
	}
	if t.state.Stopped == "" {
		err = t.work(ctx)
	}
	if t.dirty {
		if serr := t.save(ctx); serr != nil {
			return t.state.BulkProgress, serr
		}
	}
	if err == nil && t.state.Stopped != "" {
		err = belay.WithOutput(belay.Permanent(errors.New(t.state.Stopped)), t.state.BulkProgress)
	}
	return t.state.BulkProgress, err
}

// work acts until the selection is used up and every reopened execution has ended, or until the bulk
// must stop.
func (t *turn) work(ctx context.Context) error {
	for {
		if err := asked(ctx); err != nil {
			return err
		}
		if err := t.observe(ctx); err != nil {
			return err
		}
		if t.judge() {
			return nil
		}
		if err := t.plan(ctx); err != nil {
			return err
		}
		acted, err := t.act(ctx)
		switch {
		case err != nil:
			return err
		case acted:
		case len(t.state.Plan) > 0:
			if err := t.await(ctx); err != nil {
				return err
			}
		}
		if t.dirty && time.Since(t.saved) >= saveEvery {
			if err := t.save(ctx); err != nil {
				return err
			}
		}
	}
}

// asked returns an error if the run must end: the bulk was cancelled, paused or preempted, or the worker
// stops.
func asked(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-workflow.Preempted(ctx):
		return workflow.ErrYield
	default:
		return nil
	}
}

// sleep waits for d, or returns the error of asked.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-workflow.Preempted(ctx):
	}
	return asked(ctx)
}

// save saves the state.
func (t *turn) save(ctx context.Context) error {
	s := &t.state
	s.Running = 0
	for _, p := range s.Plan {
		if p.Reopened {
			s.Running++
		}
	}
	if s.Stage != "done" && s.Stage != "stopped" {
		s.Stage = "all"
		if s.Stages < len(t.bulk.Canary) {
			s.Stage = "canary"
		}
	}
	if err := workflow.Checkpoint(ctx, s); err != nil {
		return err
	}
	t.saved, t.dirty = time.Now(), false
	return nil
}

// ended is the number of executions with a known end.
func (t *turn) ended() int { return t.state.Succeeded + t.state.Failed }

// due is the number of executions that must have ended before the present stage of the canary is over;
// ok is false after the canary.
func (t *turn) due() (n int, ok bool) {
	if t.state.Stages >= len(t.bulk.Canary) {
		return 0, false
	}
	for _, size := range t.bulk.Canary[:t.state.Stages+1] {
		n += size
	}
	return n, true
}

// judge moves on from each stage of the canary that is over. It reports whether the whole bulk is over: no work is
// left, or the bulk stops because too many executions have failed.
func (t *turn) judge() bool {
	s := &t.state
	over := s.Over && len(s.Plan) == 0
	for {
		n, canary := t.due()
		done := canary && t.ended() >= n && len(s.Plan) == 0
		if (over || done || !canary && t.ended() >= judged) && t.exceeded() {
			return true
		}
		if !done {
			break
		}
		s.Stages, t.dirty = s.Stages+1, true
	}
	if over {
		s.Stage, t.dirty = "done", true
	}
	return over
}

// exceeded stops the bulk if the share of failures is larger than it may be.
func (t *turn) exceeded() bool {
	s, most := &t.state, *t.bulk.MaxFailures
	const rounding = 1e-9 // so that rounding does not make 29 failures of 100 more than 0.29
	if float64(s.Failed) <= most*float64(t.ended())+rounding {
		return false
	}
	where := "at the canary"
	switch {
	case s.Over && len(s.Plan) == 0:
		where = "at the end"
	case s.Stages >= len(t.bulk.Canary):
		where = "after the canary"
	}
	s.Stopped = fmt.Sprintf("stopped %s: %d of %d failed, and at most %s %% may fail", where, s.Failed,
		t.ended(), strconv.FormatFloat(100*most, 'g', 6, 64))
	if len(s.Failures) > 0 {
		s.Stopped += "; the first failure: " + s.Failures[0].Message
	}
	s.Stage, t.dirty = "stopped", true
	return true
}

// plan adds to the plan the executions on which the bulk acts next, and saves the plan.
func (t *turn) plan(ctx context.Context) error {
	s := &t.state
	room := min(window-len(s.Plan), portion, max(1, int(t.bulk.Rate*5)))
	if n, canary := t.due(); canary {
		room = min(room, n-t.ended()-len(s.Plan))
	}
	if s.Selected+room > belay.MaxBulk {
		room = belay.MaxBulk - s.Selected
		s.More = room == 0
		s.Over, t.dirty = s.Over || s.More, t.dirty || s.More
	}
	for _, p := range s.Plan {
		if !p.Reopened {
			return nil // an earlier run has saved this plan, and has not acted on all of it
		}
	}
	if s.Over || room <= 0 {
		return nil
	}
	items, next, err := bulk.Page(ctx, t, &t.bulk, s.Before, s.Cursor, room)
	if err != nil {
		return t.unavailable(ctx, err)
	}
	for _, x := range items {
		s.Plan = append(s.Plan, planned{Execution: x.Execution, Generation: x.Generation})
	}
	s.Selected += len(items)
	s.Cursor, s.Over = next, next == ""
	if len(items) == 0 && !s.Over {
		t.dirty = true
		return nil
	}
	return t.save(ctx)
}

// unavailable handles the error of a call: if the Backend is unavailable or busy, it waits a moment and returns nil, so
// that the caller tries again. It returns any other error.
func (t *turn) unavailable(ctx context.Context, err error) error {
	if cerr := asked(ctx); cerr != nil {
		return cerr
	}
	switch belay.CodeOf(err) {
	case belay.CodeUnavailable, belay.CodeRateLimited, belay.CodeQueueFull:
		return sleep(ctx, max(time.Second, belay.RetryDelay(err)))
	}
	return err
}
