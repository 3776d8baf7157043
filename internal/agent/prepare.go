package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

const (
	// defaultPrepareTimeout is the time limit for preparing a workspace, including all retries,
	// unless [Runner.PrepareTimeout] is set.
	defaultPrepareTimeout = 10 * time.Minute
	// firstPause is the pause before the first retry. It doubles with each retry, up to maxPause.
	firstPause, maxPause = time.Second, 30 * time.Second
)

// retryObserver is an Observer with a further method: Retrying is called before Belay tries again
// to prepare a workspace, with the number of the attempt and the reason.
type retryObserver interface{ Retrying(attempt int, why error) }

func (b *bench) prepare(ctx context.Context) (*workspace.Workspace, error) {
	b.observe.Preparing(b.job)
	ref := b.job.Ref
	if ref == "" {
		ref = b.at.Branch // the source's HEAD may have moved to another branch since the first run
	}
	spec := workspace.Spec{
		ID:    workflow.RunID(ctx).String(),
		Place: cmp.Or(b.name, workflow.Execution(ctx).String()), Repo: b.job.Repo, Ref: ref,
		Commit: b.at.Commit, Allow: b.allow,
		Unfinished: b.last != nil, Foreign: b.foreign,
	}
	var tell func(int, error)
	if r, ok := b.observe.(retryObserver); ok {
		tell = r.Retrying
	}
	try := func(ctx context.Context) (*workspace.Workspace, error) { return b.runner.Workspaces.Prepare(ctx, spec) }
	w, err := retryUnreachable(ctx, b.runner.PrepareTimeout, tell, try)
	if err != nil {
		return nil, fmt.Errorf("prepare the workspace: %w", err)
	}
	b.observe.Prepared(w.Commit, w.DirtySource)
	b.note(ctx, w)
	return w, nil
}

// retryUnreachable calls the function try, and calls it again as long as its error is
// workspace.ErrUnreachable (the repository could not be reached). It returns every other error
// immediately. most is the time limit for all calls together. Before each further call,
// retryUnreachable calls tell with the error of the previous call.
func retryUnreachable[T any](ctx context.Context, most time.Duration, tell func(attempt int, why error),
	try func(context.Context) (T, error)) (T, error) {
	if most <= 0 {
		most = defaultPrepareTimeout
	}
	late := &belay.Error{Code: belay.CodeUnavailable, Message: fmt.Sprintf("it was not ready within %s", most)}
	within, over := context.WithTimeoutCause(ctx, most, late)
	defer over()
	pause := firstPause
	for attempt := 2; ; attempt++ {
		got, err := try(within)
		switch {
		case err == nil:
			return got, nil
		case within.Err() != nil && ctx.Err() == nil && !errors.Is(err, late):
			return got, &belay.Error{Code: late.Code, Message: late.Message, Err: err}
		case within.Err() != nil, !errors.Is(err, workspace.ErrUnreachable):
			return got, err
		}
		if tell != nil {
			tell(attempt, err)
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-within.Done():
			if ctx.Err() != nil {
				return got, context.Cause(ctx)
			}
			return got, &belay.Error{Code: late.Code, Message: late.Message, Err: err}
		}
	}
}
