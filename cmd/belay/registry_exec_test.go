package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/registry"
)

// registrarOf returns a registrar with the entry of this process.
func registrarOf(t *testing.T) *registrar {
	t.Helper()
	r, err := registry.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	k := &registrar{r: r, grace: time.Second, sent: host.Boottime(), say: t.Logf}
	if k.entry, err = r.Register(t.Context(), registry.Registration{Name: "n", Recipe: "a"}); err != nil {
		t.Fatal(err)
	}
	k.started = k.entry.Owner.StartNS
	return k
}

func ownersOf(t *testing.T, r *registry.Registry) (pids []int) {
	t.Helper()
	s, err := r.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range s.Workflows {
		pids = append(pids, w.Owner.PID)
	}
	return pids
}

// Rule: if processes of the command could not be killed, belay registry exec does not release the
// entry, says so, and fails, whatever the exit code of the command was.
func TestSurvivorsKeepTheEntry(t *testing.T) {
	k := registrarOf(t)
	survived := fmt.Errorf("run x: %w", process.ErrSurvived)
	err := k.outcome(t.Context(), process.Result{Code: 0}, survived)
	if belay.CodeOf(err) != belay.CodeUnavailable || !errors.Is(err, process.ErrSurvived) ||
		!strings.Contains(err.Error(), "not released") {
		t.Errorf("the error is %v", err)
	}
	if got := ownersOf(t, k.r); len(got) != 1 {
		t.Errorf("the entry was released: %v", got)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := k.leaveTo([]int{1 << 30, cmd.Process.Pid}, nil)
	if got := ownersOf(t, k.r); len(got) != 1 || got[0] != cmd.Process.Pid ||
		!strings.Contains(text, fmt.Sprint(got[0])) {
		t.Errorf("the owners are %v, want %d: %s", got, cmd.Process.Pid, text)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if got := ownersOf(t, k.r); len(got) != 0 {
		t.Errorf("the entry is left after the end of the survivor: %v", got)
	}
	k = registrarOf(t)
	if err := k.outcome(t.Context(), process.Result{}, nil); err != nil || len(ownersOf(t, k.r)) != 0 {
		t.Errorf("without survivors: %v", err)
	}
}

// Rule: if belay registry exec makes its supervisor the owner after a command has looked for the owner,
// the command looks again.
func TestAnEntryCommandLooksAgain(t *testing.T) {
	owners := ancestors()
	if len(owners) < 2 {
		t.Fatal("the test needs a grandparent process: run it with go test")
	}
	r, err := registry.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Register(t.Context(), registry.Registration{Name: "n", Recipe: "a", Owner: owners[0]}); err != nil {
		t.Fatal(err)
	}
	a := &app{streams: streams{out: new(bytes.Buffer), err: new(bytes.Buffer)}, data: r.Dir()}
	calls := 0
	c := a.entryCommand(&cobra.Command{Use: "act"}, func(c *cobra.Command, r *registry.Registry,
		w registry.Workflow) error {
		if calls++; calls == 1 {
			if _, err := r.Transfer(c.Context(), w, owners[1]); err != nil {
				t.Error(err)
			}
		}
		_, err := r.Renew(c.Context(), w)
		return err
	})
	c.SetArgs([]string{"--name", "n"})
	if err := c.ExecuteContext(t.Context()); err != nil || calls != 2 {
		t.Errorf("after %d calls: %v", calls, err)
	}
}
