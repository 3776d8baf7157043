//go:build linux

package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// Rule: a job that runs as its own user can fetch from a repository on this machine if the
// repository is readable for that user; otherwise a note of the job says why the job cannot fetch.
// Notes also name the submodules and Git LFS files that the workspace lacks.
func TestNotesNameAnUnreachableOrigin(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	d := newTestBed(t)
	open, err := os.MkdirTemp("", "belay-origin-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	for _, dir := range []string{open, filepath.Join(open, "spaces")} {
		_ = os.Mkdir(dir, 0o755)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m, err := workspace.Open(filepath.Join(open, "spaces"))
	if err != nil {
		t.Fatal(err)
	}
	m.Users = func(context.Context, string) (host.User, func(context.Context) error, error) {
		return host.User{UID: 1_800_000_001, GID: 1_800_000_001}, func(context.Context) error { return nil }, nil
	}
	w := worker.New(d, worker.Options{Concurrency: 1, Grace: -1})
	worker.Register(w, agent.Workflow, (&agent.Runner{Workspaces: m, Seal: true}).Run)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for name, tt := range map[string]struct {
		mode os.FileMode
		code int
		note string
	}{
		"readable": {0o755, 0, ""},
		"closed":   {0o700, 128, "cannot reach its origin"},
	} {
		repo := filepath.Join(open, name)
		git(t, "", "init", "-q", "-b", "main", repo)
		write(t, filepath.Join(repo, ".gitattributes"), "*.bin filter=lfs diff=lfs merge=lfs -text\n")
		git(t, repo, "add", ".")
		git(t, repo, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("ab", 20)+",module")
		git(t, repo, "commit", "-q", "-m", "first")
		if err := os.Chmod(repo, tt.mode); err != nil {
			t.Fatal(err)
		}
		h, err := workflow.Start[agent.Result](t.Context(), d, agent.Workflow, agent.Job{
			Repo: repo, Steps: []agent.Step{{Name: "fetch", Argv: []string{"git", "fetch", "-q", "origin"}}},
		}, once)
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Result(t.Context())
		var got agent.Result
		if x, xerr := d.Execution(t.Context(), h.ID()); xerr != nil || json.Unmarshal(x.Output, &got) != nil {
			t.Fatalf("%s: %v, %v: %s", name, err, xerr, x.Output)
		}
		notes := strings.Join(got.Notes, "\n")
		if got.ExitCode != tt.code || tt.note == "" && strings.Contains(notes, "origin") ||
			!strings.Contains(notes, tt.note) {
			t.Errorf("%s: git fetch ended with %d, notes:\n%s", name, got.ExitCode, notes)
		}
		for _, want := range []string{"submodules are not supported and not checked out: module",
			"Git LFS is not supported"} {
			if !strings.Contains(notes, want) {
				t.Errorf("%s: no note has %q:\n%s", name, want, notes)
			}
		}
	}
}
