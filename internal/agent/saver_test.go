package agent

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tree simulates a tree of processes and records the calls of its methods.
type tree struct {
	asked []string
	thaw  error
}

func (t *tree) Freeze(context.Context) error { t.asked = append(t.asked, "freeze"); return nil }
func (t *tree) Thaw(context.Context) error   { t.asked = append(t.asked, "thaw"); return t.thaw }
func (t *tree) Kill(error)                   { t.asked = append(t.asked, "kill") }

// Rule: a tree of processes that is frozen for two reasons is thawed only when both reasons have
// ended, in either order.
func TestTreeStaysFrozenUntilTheLastReasonEnds(t *testing.T) {
	for _, order := range [][2]reason{{fenced, salvaging}, {salvaging, fenced}} {
		held := new(tree)
		b := &brake{tree: held}
		for _, why := range order {
			if err := b.hold(t.Context(), why); err != nil {
				t.Fatal(err)
			}
		}
		b.release(t.Context(), order[0])
		if diff := cmp.Diff([]string{"freeze", "freeze"}, held.asked); diff != "" {
			t.Errorf("%q was released first: (-want +got):\n%s", order[0], diff)
		}
		b.release(t.Context(), order[1])
		if held.asked[len(held.asked)-1] != "thaw" {
			t.Errorf("after the last release the calls were %v", held.asked)
		}
	}
}

// Rule: if a tree cannot be thawed, it is killed, because the timeout of a frozen tree does not
// run. A tree that has already ended is not killed.
func TestTreeThatCannotThawIsKilled(t *testing.T) {
	for thaw, last := range map[error]string{errors.New("no"): "kill", os.ErrProcessDone: "thaw", nil: "thaw"} {
		held := &tree{thaw: thaw}
		b := &brake{tree: held}
		_ = b.hold(t.Context(), salvaging)
		b.release(t.Context(), salvaging)
		if got := held.asked[len(held.asked)-1]; got != last {
			t.Errorf("after %v it was asked to %s", thaw, got)
		}
	}
}

// Rule: if the context of a frozen command is cancelled, the command is cancelled only after the
// thaw, with the cause of that context, so that it gets its grace period.
func TestFrozenCommandIsAskedToEndAfterTheThaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSaver(time.Minute, nil)
		why := errors.New("cancelled")
		ctx, end := context.WithCancelCause(t.Context())
		command, _, over := s.command(ctx)
		defer over()
		s.still <- struct{}{}
		end(why)
		synctest.Wait()
		if command.Err() != nil {
			t.Error("the command ends while it stands still")
		}
		<-s.still
		synctest.Wait()
		if context.Cause(command) != why { //nolint:errorlint // the cause must be the same error value
			t.Errorf("it ends with %v", context.Cause(command))
		}
	})
}

// Rule: new artifacts overwrite neither the changes that were stored last nor the changes with
// which the run began, because a later run may begin with either of these.
func TestStoredChangesInUseAreNotOverwritten(t *testing.T) {
	s := &saver{before: interrupted{Changes: &Changes{Patch: "work-1.patch"}}}
	s.now = s.before
	var got []string
	for range 4 {
		name := s.freeName()
		got = append(got, name)
		s.now = interrupted{Changes: &Changes{Bundle: name + ".bundle"}}
	}
	if diff := cmp.Diff([]string{"work-2", "work-3", "work-2", "work-3"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
