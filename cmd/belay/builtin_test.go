package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
)

func TestMain(m *testing.M) {
	process.Main(workspace.Helper())
	os.Exit(m.Run())
}

// Rule: if the machine cannot provide a wall of the sandbox that the configuration demands, no jobs
// run, and the error names the setting. If a wall that the configuration does not demand is
// missing, the log says that jobs lack it.
func TestNoJobRunsWithoutAWallThatIsDemanded(t *testing.T) {
	m, err := workspace.Open(filepath.Join(t.TempDir(), "spaces"))
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	r := &agent.Runner{Workspaces: m, Seal: true}
	if err := testSandbox(t.Context(), r, log); err != nil {
		t.Fatal(err)
	}
	if warned := strings.Contains(said.String(), "agent.users is none"); warned != (os.Geteuid() == 0) {
		t.Errorf("the log: %s", &said)
	}
	// This runner cannot provide the wall that is demanded now: its jobs use the machine's network.
	r.Insist = []process.Wall{process.WallNetwork}
	if err := testSandbox(t.Context(), r, log); err == nil || !strings.Contains(err.Error(), "agent.egress") {
		t.Errorf("%v", err)
	}
	want := process.Walls{}
	if got := strings.Join(lacking(r, want), "; "); !strings.Contains(got, "no Landlock") ||
		!strings.Contains(got, "jobs can write wherever") {
		t.Errorf("without anything: %q", got)
	}
}
