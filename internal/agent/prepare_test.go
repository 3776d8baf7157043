package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
)

// Rule: if a repository cannot be reached, Belay tries again at increasing intervals, and reports
// each further attempt.
func TestUnreachableRepositoryIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		var told []int
		got, err := retryUnreachable(t.Context(), 0, func(attempt int, _ error) {
			told = append(told, attempt)
		}, func(context.Context) (string, error) {
			if tries++; tries < 8 {
				return "", fmt.Errorf("try %d: %w", tries, workspace.ErrUnreachable)
			}
			return "ready", nil
		})
		if got != "ready" || err != nil || fmt.Sprint(told) != "[2 3 4 5 6 7 8]" {
			t.Errorf("%q, %v, reported %v", got, err, told)
		}
		if took := time.Since(began); took != (1+2+4+8+16+30+30)*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// Rule: one time limit applies to all attempts together, and also ends an attempt that hangs. The
// error wraps the error of the last attempt.
func TestPreparingHasATimeout(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, err := retryUnreachable(t.Context(), time.Minute, nil, func(ctx context.Context) (int, error) {
				if hangs {
					<-ctx.Done()
					return 0, fmt.Errorf("git: %w", context.Cause(ctx))
				}
				return 0, workspace.ErrUnreachable
			})
			if belay.CodeOf(err) != belay.CodeUnavailable || time.Since(began) != time.Minute {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
			if !hangs && !errors.Is(err, workspace.ErrUnreachable) {
				t.Errorf("the error does not have the cause: %v", err)
			}
		})
	}
}

// Rule: only an unreachable repository causes a further attempt; every other error is returned at
// once. If the job is cancelled, no further attempt follows.
func TestOtherErrorsAreNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, final := range []error{
			&belay.Error{Code: belay.CodeNotFound}, &belay.Error{Code: belay.CodeInvalid},
			&belay.Error{Code: belay.CodeUnavailable}, errors.New("disk full"),
		} {
			tries := 0
			_, err := retryUnreachable(t.Context(), 0, nil, func(context.Context) (int, error) {
				tries++
				return 0, final
			})
			if err != final || tries != 1 { //nolint:errorlint // the same error must be returned, not one that wraps it
				t.Errorf("%v after %d tries", err, tries)
			}
		}
		why := errors.New("cancelled")
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(90*time.Second, func() { end(why) })
		began := time.Now()
		_, err := retryUnreachable(ctx, 0, nil, func(context.Context) (int, error) {
			return 0, workspace.ErrUnreachable
		})
		if !errors.Is(err, why) || time.Since(began) != 90*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
