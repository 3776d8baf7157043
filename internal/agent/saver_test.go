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

// tree notes what is asked of it.
type tree struct {
	asked []string
	thaw  error
}

func (t *tree) Freeze(context.Context) error { t.asked = append(t.asked, "freeze"); return nil }
func (t *tree) Thaw(context.Context) error   { t.asked = append(t.asked, "thaw"); return t.thaw }
func (t *tree) Kill(error)                   { t.asked = append(t.asked, "kill") }

// Rule: a tree that is held behind the fence stays so when the reading of its
// workspace ends, and the other way round.
func TestTwoHoldOneTree(t *testing.T) {
	for _, order := range [][2]reason{{forFence, forSave}, {forSave, forFence}} {
		held := new(tree)
		b := &brake{tree: held}
		for _, why := range order {
			if err := b.hold(t.Context(), why); err != nil {
				t.Fatal(err)
			}
		}
		b.release(t.Context(), order[0])
		if diff := cmp.Diff([]string{"freeze", "freeze"}, held.asked); diff != "" {
			t.Errorf("%q has let go first: (-want +got):\n%s", order[0], diff)
		}
		b.release(t.Context(), order[1])
		if held.asked[len(held.asked)-1] != "thaw" {
			t.Errorf("nobody holds it, and it was asked to %v", held.asked)
		}
	}
}

// Rule: what does not thaw is killed: nothing else would ever end it. What has ended
// is left alone.
func TestWhatDoesNotThawIsKilled(t *testing.T) {
	for thaw, last := range map[error]string{errors.New("no"): "kill", os.ErrProcessDone: "thaw", nil: "thaw"} {
		held := &tree{thaw: thaw}
		b := &brake{tree: held}
		_ = b.hold(t.Context(), forSave)
		b.release(t.Context(), forSave)
		if got := held.asked[len(held.asked)-1]; got != last {
			t.Errorf("after %v it was asked to %s", thaw, got)
		}
	}
}

// Rule: who is told to end while he stands still is told when he goes on, so that he
// has his grace; and with the cause that there was.
func TestNobodyEndsWhileHeStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSaver(time.Minute, nil)
		why := errors.New("cancelled")
		ctx, end := context.WithCancelCause(t.Context())
		command, over := s.command(ctx)
		defer over()
		s.still <- struct{}{}
		end(why)
		synctest.Wait()
		if command.Err() != nil {
			t.Error("the command ends while it stands still")
		}
		<-s.still
		synctest.Wait()
		if context.Cause(command) != why { //nolint:errorlint // it is passed on as it is
			t.Errorf("it ends with %v", context.Cause(command))
		}
	})
}

// Rule: work is never written over what the execution has at present, nor over what
// the run began with and may have to go back to.
func TestWorkThatCountsIsNotOverwritten(t *testing.T) {
	s := &saver{before: interrupted{Changes: &Changes{Patch: "work-1.patch"}}}
	s.now = s.before
	var got []string
	for range 4 {
		name := s.slot()
		got = append(got, name)
		s.now = interrupted{Changes: &Changes{Bundle: name + ".bundle"}}
	}
	if diff := cmp.Diff([]string{"work-2", "work-3", "work-2", "work-3"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
