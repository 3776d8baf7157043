package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// saver keeps what an agent has changed with its execution while it works, so that
// the work outlives the machine: the next run goes on from there, wherever it is.
// The agent stands still while its workspace is read, and goes on while that is
// stored.
type saver struct {
	every time.Duration // 0 for never
	// before is what the run began with, and now what the execution has at present.
	before, now interrupted
	saved       bool   // by this run
	ended       bool   // the agent has ended by itself, and well
	session     string // of the conversation that the work belongs to
	log         *slog.Logger

	still chan struct{} // full while the agent stands still
	last  [sha256.Size]byte
}

func newSaver(every time.Duration, log *slog.Logger) *saver {
	return &saver{every: every, log: log, still: make(chan struct{}, 1)}
}

// interrupted is what an execution keeps for its next run.
type interrupted struct {
	Changes *Changes `json:"changes"`
	// Run is the token of the run whose work it is.
	Run belay.Token `json:"run,omitempty"`
	// Session is the conversation that HOME holds; empty if it is the one that the run
	// began.
	Session string `json:"session,omitempty"`
}

// share is how little of its time an agent stands still: of a workspace that is slow
// to read the work is kept less often.
const share = 20

// standstill is how long an agent stands still at most. What takes longer is kept when
// it ends.
const standstill = time.Minute

// begin saves every so often, until the function that it returns is called.
func (s *saver) begin(ctx context.Context, b *bench, w *workspace.Workspace, hold *brake) (end func()) {
	if s == nil || s.every <= 0 || b.job.Repo == "" {
		return func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for pause := s.every; ; {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			stood, err := s.once(ctx, b, w, hold)
			if err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "what a job has changed so far was not kept", "execution",
					workflow.Execution(ctx).String(), "error", err)
			}
			pause = max(s.every, share*stood)
		}
	}()
	return func() {
		stop()
		<-over
	}
}

// once saves what there is now, and says for how long the agent stood still.
func (s *saver) once(ctx context.Context, b *bench, w *workspace.Workspace, hold *brake) (time.Duration, error) {
	began := time.Now()
	got, err := s.read(ctx, b, w, hold)
	stood := time.Since(began)
	if err != nil {
		return stood, err
	}
	sum := sumOf(&got)
	switch {
	case sum == s.last, got.Empty() && s.now.Changes == nil:
		return stood, nil
	case len(got.Bundle)+len(got.Patch) == 0 && got.Lost != "" && (len(got.Home) == 0 || s.now.Changes.work()):
		return stood, fmt.Errorf("not kept: %s", got.Lost)
	}
	c, err := b.keep(ctx, s.slot(), got)
	if err == nil {
		err = s.point(ctx, c)
	}
	if err == nil {
		s.last = sum
	}
	return stood, err
}

// read reads the workspace while the agent stands still.
func (s *saver) read(ctx context.Context, b *bench, w *workspace.Workspace, hold *brake) (workspace.Salvage, error) {
	s.still <- struct{}{}
	defer func() { <-s.still }()
	if err := context.Cause(ctx); err != nil {
		return workspace.Salvage{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, standstill, fmt.Errorf("reading the workspace took longer than %s",
		standstill))
	defer cancel()
	defer hold.release(ctx, forSave)
	if err := hold.hold(ctx, forSave); err != nil {
		return workspace.Salvage{}, fmt.Errorf("stop the agent: %w", err)
	}
	return b.runner.Workspaces.Salvage(ctx, w)
}

// command is the context of the command. It ends with ctx, but not while the agent
// stands still to be read: a tree that ends frozen gets no grace.
func (s *saver) command(ctx context.Context) (context.Context, func()) {
	if s == nil {
		return ctx, func() {}
	}
	inner, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		s.still <- struct{}{}
		end(context.Cause(ctx))
		<-s.still
	})
	return inner, func() {
		stop()
		end(nil)
	}
}

// slot is the name for artifacts that hold neither what the execution has at
// present nor what this run began with: so that each is whole while it counts.
func (s *saver) slot() string {
	for n := 1; ; n++ {
		name := fmt.Sprintf("work-%d", n)
		used := func(c *Changes) bool {
			return c != nil && slices.ContainsFunc([]string{c.Bundle, c.Patch, c.Home}, func(a string) bool {
				return strings.HasPrefix(a, name+".")
			})
		}
		if !used(s.before.Changes) && !used(s.now.Changes) {
			return name
		}
	}
}

// point makes c what the next run begins with.
func (s *saver) point(ctx context.Context, c *Changes) error {
	now := interrupted{c, workflow.Token(ctx), s.session}
	if err := workflow.Checkpoint(ctx, now); err != nil {
		return err
	}
	s.now, s.saved = now, true
	return nil
}

// released keeps what a run leaves that gives its execution back: c is nil if the
// workspace is as it was when it was new.
func (s *saver) released(ctx context.Context, c *Changes) error {
	if c != nil && !c.work() && c.Lost != "" && s.now.Changes != nil {
		return nil // what was kept before is more
	}
	if c == nil && s.now.Changes == nil {
		return nil
	}
	return s.point(ctx, c)
}

// undo lets the next run begin as this one did: the agent has ended by itself, and
// if it is tried again, that is anew.
func (s *saver) undo(ctx context.Context) error {
	if !s.saved {
		return nil
	}
	return workflow.Checkpoint(ctx, s.before)
}

// forget empties the HOMEs that were kept of a job that has ended well: nobody goes on
// with them, and an agent may have written there what is not for others.
func (s *saver) forget(ctx context.Context) {
	if s == nil || !s.ended {
		return
	}
	for _, c := range []*Changes{s.before.Changes, s.now.Changes} {
		if c == nil || c.Home == "" {
			continue
		}
		if _, err := workflow.Artifact(ctx, c.Home, bytes.NewReader(nil)); err != nil {
			s.log.WarnContext(ctx, "the HOME of a job that has ended stays kept", "execution",
				workflow.Execution(ctx).String(), "error", err)
		}
	}
}

func sumOf(s *workspace.Salvage) [sha256.Size]byte {
	h := sha256.New()
	for _, data := range [][]byte{s.Bundle, s.Patch, s.Home} {
		fmt.Fprintf(h, "%d ", len(data))
		h.Write(data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// part is one artifact of a salvage: its kind and name, and what is in it.
type part struct {
	kind string
	name *string
	data *[]byte
}

// parts are the artifacts that belong together.
func (c *Changes) parts(s *workspace.Salvage) []part {
	return []part{{"bundle", &c.Bundle, &s.Bundle}, {"patch", &c.Patch, &s.Patch}, {"home", &c.Home, &s.Home}}
}

// work tells whether there is anything of the checkout.
func (c *Changes) work() bool { return c != nil && c.Bundle+c.Patch != "" }

// keep stores a salvage as artifacts of the execution.
func (b *bench) keep(ctx context.Context, name string, s workspace.Salvage) (*Changes, error) {
	c := &Changes{Commits: s.Commits, Files: s.Files, Insertions: s.Insertions, Deletions: s.Deletions, Lost: s.Lost}
	var failed error
	for _, part := range c.parts(&s) {
		if len(*part.data) == 0 {
			continue
		}
		artifact := name + "." + part.kind
		if _, err := workflow.Artifact(ctx, artifact, bytes.NewReader(*part.data)); err != nil {
			failed = errors.Join(failed, fmt.Errorf("the %s: %w", part.kind, err))
			continue
		}
		*part.name = artifact
	}
	return c, failed
}
