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

// A repository that cannot be reached for a while is tried again, at growing distances,
// and what is tried is told.
func TestAnUnreachableRepositoryIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		var told []int
		got, err := persist(t.Context(), 0, func(attempt int, _ error) {
			told = append(told, attempt)
		}, func(context.Context) (string, error) {
			if tries++; tries < 8 {
				return "", fmt.Errorf("try %d: %w", tries, workspace.ErrUnreachable)
			}
			return "ready", nil
		})
		if got != "ready" || err != nil || fmt.Sprint(told) != "[2 3 4 5 6 7 8]" {
			t.Errorf("%q, %v, told of %v", got, err, told)
		}
		if took := time.Since(began); took != (1+2+4+8+16+30+30)*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// All tries together have their time, a try that hangs too; and the error says what the
// last one said.
func TestPreparingHasATimeout(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, err := persist(t.Context(), time.Minute, nil, func(ctx context.Context) (int, error) {
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
				t.Errorf("why is not said: %v", err)
			}
		})
	}
}

// Any other error is final, and so is the end of the job.
func TestWhatIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, final := range []error{
			&belay.Error{Code: belay.CodeNotFound}, &belay.Error{Code: belay.CodeInvalid},
			&belay.Error{Code: belay.CodeUnavailable}, errors.New("disk full"),
		} {
			tries := 0
			_, err := persist(t.Context(), 0, nil, func(context.Context) (int, error) { tries++; return 0, final })
			if err != final || tries != 1 { //nolint:errorlint // it is passed on as it is
				t.Errorf("%v after %d tries", err, tries)
			}
		}
		why := errors.New("cancelled")
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(90*time.Second, func() { end(why) })
		began := time.Now()
		_, err := persist(ctx, 0, nil, func(context.Context) (int, error) { return 0, workspace.ErrUnreachable })
		if !errors.Is(err, why) || time.Since(began) != 90*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
