package host

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// sleeper starts a process that does nothing.
func sleeper(t *testing.T) (*exec.Cmd, Process) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

// Rule: handles report the end of their processes, also before the parent has waited for them;
// a handle is given only for the process with the right start time.
func TestHandlesReportEnds(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	cmd, dies := sleeper(t)
	_, lives := sleeper(t)
	var handles []*os.File
	for _, p := range []Process{dies, lives} {
		f, err := p.Handle(self)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		handles = append(handles, f)
	}
	if ended, err := Ended(handles); err != nil || ended[0] || ended[1] {
		t.Errorf("both live: %v, %v", ended, err)
	}
	waited := make(chan error, 1)
	go func() { waited <- AwaitEnd(t.Context(), dies.PID) }()
	_ = cmd.Process.Kill()
	if err := <-waited; err != nil {
		t.Errorf("await the end: %v", err)
	}
	if ended, err := Ended(handles); err != nil || !ended[0] || ended[1] {
		t.Errorf("one has ended: %v, %v", ended, err)
	}
	other, foreign := lives, lives
	other.Start++
	foreign.PIDNamespace++
	if _, err := other.Handle(self); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("another start time: %v", err)
	}
	if _, err := foreign.Handle(self); !errors.Is(err, ErrForeign) {
		t.Errorf("another namespace: %v", err)
	}
	got := States([]Process{dies, lives, other, foreign}, self)
	if want := []Liveness{Dead, Alive, Dead, Unknown}; !slices.Equal(got, want) {
		t.Errorf("the states are %v, want %v", got, want)
	}
}

// Rule: AwaitEnd returns when its context ends.
func TestAwaitEndHasABound(t *testing.T) {
	_, p := sleeper(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := AwaitEnd(ctx, p.PID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
}
