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
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// saver stores the changes of an agent with its execution while the agent works, so that the
// changes survive the loss of the machine: the next run starts with them, on any host. While the
// saver reads the workspace, the agent is frozen; while the saver stores the changes, the agent
// works.
type saver struct {
	every time.Duration // the interval; 0 for never
	// before has the changes with which the run began. now has the changes that the execution stored
	// last.
	before, now interrupted
	saved       bool   // this run has stored changes
	ended       bool   // the agent ended by itself, successfully
	session     string // the conversation to which the changes belong
	turn        int    // the number of the turn
	homes       bool   // a later job may continue the conversation, and needs HOME
	log         *slog.Logger
	// meter counts the usage of this run; nil if the agent's output is plain. sent is the usage that this run
	// has added to that of the execution. state is locked while now and sent change.
	meter *meter
	sent  belay.ModelUsage
	state sync.Mutex

	storing sync.Mutex // one goroutine at a time stores changes

	still chan struct{} // a mutex: a goroutine locks it while it freezes or ends the agent
	last  [sha256.Size]byte
}

func newSaver(every time.Duration, log *slog.Logger) *saver {
	return &saver{every: every, log: log, still: make(chan struct{}, 1)}
}

// interrupted is the state that an execution stores for its next run.
type interrupted struct {
	Changes *Changes `json:"changes"`
	// Run is the token of the run that made the changes.
	Run belay.Token `json:"run,omitempty"`
	// Session is the id of a conversation that an earlier run began and that the run Run may have
	// continued; empty if the run Run began without the changes of an earlier run.
	Session string `json:"session,omitempty"`
	// Turn is the number of the turn in which the run Run made the changes; 0 means firstTurn.
	Turn int `json:"turn,omitempty"`
	// Asked is the question with which that turn has ended; nil before its end.
	Asked *Question `json:"asked,omitempty"`
	// Charged is the usage with which the execution has been charged.
	Charged charged `json:"charged,omitzero"`
}

// none reports whether the execution has stored neither changes nor a conversation.
func (i *interrupted) none() bool {
	n := *i
	n.Charged = charged{}
	return n == interrupted{}
}

// freezeShare limits how much an agent is slowed down: it is frozen for at most 1/freezeShare of
// the time. If a workspace takes long to read, the saver therefore stores the changes less often.
const freezeShare = 20

// maxFreeze is the maximum duration of one freeze. If the workspace cannot be read in that time,
// its changes are stored only when the agent ends.
const maxFreeze = time.Minute

// begin starts a goroutine that stores the changes of the workspace at an interval, and returns a
// function that ends the goroutine.
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
			frozenFor, err := s.storeNow(ctx, b, w, hold)
			if err != nil && ctx.Err() == nil {
				s.log.With(workflow.LogAttr(ctx)).WarnContext(ctx, "the changes of a running job could not be stored",
					"error", err)
			}
			pause = max(s.every, freezeShare*frozenFor)
		}
	}()
	return func() {
		stop()
		<-over
	}
}

// storeNow stores the present changes of the workspace, and returns how long the agent was frozen.
func (s *saver) storeNow(ctx context.Context, b *bench, w *workspace.Workspace, hold *brake) (time.Duration, error) {
	s.storing.Lock()
	defer s.storing.Unlock()
	began := time.Now()
	got, err := s.read(ctx, b, w, hold)
	frozenFor := time.Since(began)
	if err != nil {
		return frozenFor, err
	}
	sum := sumOf(&got)
	switch {
	case sum == s.last, got.Empty() && s.now.Changes == nil:
		return frozenFor, nil
	case len(got.Bundle)+len(got.Patch) == 0 && got.Lost != "" && (len(got.Home) == 0 || s.now.Changes.work()):
		return frozenFor, fmt.Errorf("lost: %s", got.Lost)
	}
	c, err := b.keep(ctx, s.freeName(), got)
	if err == nil {
		err = s.checkpoint(ctx, c)
	}
	if err == nil {
		s.last = sum
	}
	return frozenFor, err
}

// read freezes the agent and reads the workspace.
func (s *saver) read(ctx context.Context, b *bench, w *workspace.Workspace, hold *brake) (workspace.Salvage, error) {
	s.still <- struct{}{}
	defer func() { <-s.still }()
	if err := context.Cause(ctx); err != nil {
		return workspace.Salvage{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, maxFreeze, fmt.Errorf("reading the workspace took longer than %s",
		maxFreeze))
	defer cancel()
	defer hold.release(ctx, salvaging)
	if err := hold.hold(ctx, salvaging); err != nil {
		return workspace.Salvage{}, fmt.Errorf("stop the agent: %w", err)
	}
	return b.runner.Workspaces.Salvage(ctx, w)
}

// command returns the context with which the command runs. The context ends when ctx ends. If the
// agent is frozen at that moment, the context ends after the thaw, because a cancelled frozen tree
// would be killed without its grace period.
// halt ends the context in the same way with another cause.
func (s *saver) command(ctx context.Context) (inner context.Context, halt func(cause error), over func()) {
	if s == nil {
		return ctx, func(error) {}, func() {}
	}
	inner, end := context.WithCancelCause(context.WithoutCancel(ctx))
	halt = func(cause error) {
		s.still <- struct{}{}
		end(cause)
		<-s.still
	}
	stop := context.AfterFunc(ctx, func() { halt(context.Cause(ctx)) })
	return inner, halt, func() {
		stop()
		end(nil)
	}
}

// freeName returns a name for new artifacts. Neither the changes that were stored last nor the
// changes with which this run began use that name, so none of them is overwritten.
func (s *saver) freeName() string {
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

// checkpoint stores the changes c as the changes with which the next run begins.
func (s *saver) checkpoint(ctx context.Context, c *Changes) error {
	return s.keep(ctx, c, nil)
}

// keep stores the changes c of a turn, which has ended with the question q unless q is nil.
func (s *saver) keep(ctx context.Context, c *Changes, q *Question) error {
	err := s.store(ctx, true, func(n *interrupted) {
		n.Changes, n.Run, n.Session, n.Turn, n.Asked = c, workflow.Token(ctx), s.session, s.turn, q
	})
	s.saved = s.saved || err == nil
	return err
}

// ask stores the changes of a run whose agent has asked a question. The run that continues after the
// answer begins with them. c is nil if the workspace is unchanged.
func (s *saver) ask(ctx context.Context, c *Changes, q *Question) error {
	if c == nil || !c.work() && c.Lost != "" && s.now.Changes != nil {
		c = s.now.Changes
	}
	return s.keep(ctx, c, q)
}

// released stores the changes of a run whose worker gives the execution back to the queue. c is nil
// if the workspace is unchanged.
func (s *saver) released(ctx context.Context, c *Changes) error {
	if c != nil && !c.work() && c.Lost != "" && s.now.Changes != nil {
		return nil // c has lost work, so the changes that were stored before are kept
	}
	if c == nil && s.now.Changes == nil {
		return nil
	}
	return s.checkpoint(ctx, c)
}

// restart makes the next run begin with the same changes as this run. It is called after the agent
// has ended by itself with a failure: a retry must not begin with the changes of the failed agent.
func (s *saver) restart(ctx context.Context) error {
	if !s.saved {
		return nil
	}
	return s.store(ctx, true, func(n *interrupted) {
		b := &s.before
		n.Changes, n.Run, n.Session, n.Turn, n.Asked = b.Changes, b.Run, b.Session, b.Turn, b.Asked
	})
}

// emptyHomes overwrites the stored copies of HOME with empty artifacts after a job has succeeded:
// no further run needs them, and the agent may have written secrets to HOME.
func (s *saver) emptyHomes(ctx context.Context) {
	if s == nil || !s.ended {
		return
	}
	for _, c := range []*Changes{s.before.Changes, s.now.Changes} {
		if c == nil || c.Home == "" {
			continue
		}
		if _, err := workflow.Artifact(ctx, c.Home, bytes.NewReader(nil)); err != nil {
			s.log.With(workflow.LogAttr(ctx)).WarnContext(ctx, "the stored HOME of a finished job could not be emptied",
				"error", err)
		}
	}
}

// keepsHome reports whether the changes at the end of the job have HOME.
func (s *saver) keepsHome() bool { return s != nil && s.homes }

func sumOf(s *workspace.Salvage) [sha256.Size]byte {
	h := sha256.New()
	for _, data := range [][]byte{s.Bundle, s.Patch, s.Home} {
		fmt.Fprintf(h, "%d ", len(data))
		h.Write(data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// part is one of the artifacts in which the changes of a workspace are stored: its kind, name and
// data.
type part struct {
	kind string
	name *string
	data *[]byte
}

// parts returns the artifacts for the changes in s, with the fields of c that name them.
func (c *Changes) parts(s *workspace.Salvage) []part {
	return []part{{"bundle", &c.Bundle, &s.Bundle}, {"patch", &c.Patch, &s.Patch}, {"home", &c.Home, &s.Home},
		{"diff", &c.Diff, &s.Diff}}
}

// work reports whether c has changes of the checkout, and not only of HOME.
func (c *Changes) work() bool { return c != nil && c.Bundle+c.Patch != "" }

// keep stores the changes of a workspace (s) as artifacts of the execution, whose names begin with
// name.
func (b *bench) keep(ctx context.Context, name string, s workspace.Salvage) (*Changes, error) {
	c := &Changes{Commits: s.Commits, Files: s.Files, Insertions: s.Insertions, Deletions: s.Deletions, Lost: s.Lost,
		DiffCut: s.DiffCut}
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
