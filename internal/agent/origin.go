package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// originTimeout is the time limit of the check whether a job can reach its origin.
const originTimeout = 15 * time.Second

// note records the notes of the job: the parts of the repository that the workspace lacks and, if
// the job cannot reach its origin, the reason.
func (b *bench) note(ctx context.Context, w *workspace.Workspace) {
	b.notes = w.Notes
	if note := b.origin(ctx, w); note != "" {
		b.notes = append(b.notes, note)
	}
}

// origin returns a note if the job cannot read its repository on this machine; else "". A job that
// runs as its own user often has no right to read the repository. origin runs git as the job's
// user, in the same sandbox as the job's commands.
func (b *bench) origin(ctx context.Context, w *workspace.Workspace) string {
	hidden := b.runner.Seal && slices.ContainsFunc([]string{"/tmp/", "/var/tmp/", "/dev/shm/"}, func(dir string) bool {
		return strings.HasPrefix(w.Repo, dir)
	})
	if !w.Local || w.User == nil && !hidden {
		return ""
	}
	var said []byte
	tree, err := process.Start(ctx, process.Command{
		ID: workflow.RunID(ctx).String() + "-origin", Args: []string{"git", "ls-remote", "--quiet", "origin", "HEAD"},
		Dir:     w.Dir,
		Inherit: process.Basics(), Env: map[string]string{
			"HOME": w.Home, "TMPDIR": w.Tmp, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0",
		},
		User: w.User, Limits: b.runner.Limits, Writable: b.runner.writable(w), Tmp: w.Tmp, Timeout: originTimeout,
		Grace: -1,
		Output: func(_ context.Context, c process.Chunk) error {
			if c.Stream == process.Stderr && len(said) < 1<<10 {
				said = append(said, c.Data...)
			}
			return nil
		},
	})
	if err != nil {
		return "" // the job's command will not start either, and its error has the reason
	}
	end, err := tree.Wait()
	if err == nil && end.Code == 0 || ctx.Err() != nil {
		return ""
	}
	return fmt.Sprintf("the job cannot reach its origin %s (%s): git fetch and git push fail there; its "+
		"commits are in its changes", w.Repo, fatal(said))
}

// fatal returns the text after "fatal: " in the output of git, in printable form.
func fatal(said []byte) string {
	why := "git does not say why"
	for line := range strings.Lines(strings.ToValidUTF8(string(said), "?")) {
		if rest, ok := strings.CutPrefix(line, "fatal: "); ok {
			why = rest
			break
		}
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, why))
}
