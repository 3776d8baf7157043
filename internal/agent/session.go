package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// talk is the conversation of a run with its agent.
type talk struct {
	// session is the id of the conversation.
	session string
	// continued says that an earlier run began the conversation.
	continued bool
}

// sessionOf returns the id of the conversation that a run begins: a UUID of version 8, computed
// from the run's id. So every run has a different conversation id, which need not be stored.
func sessionOf(run belay.RunID) string {
	u := sha256.Sum256([]byte("conversation of " + run.String()))
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// sessions returns the ids of the conversations that the stored changes may contain, the newest
// first. The run that made the changes either began its own conversation or continued the
// conversation in Session.
func (i *interrupted) sessions(id belay.ExecutionID) []string {
	own := sessionOf(belay.RunID{Execution: id, Token: i.Run})
	if i.Session == "" || i.Session == own {
		return []string{own}
	}
	return []string{own, i.Session}
}

// oldestSession returns the id of the oldest conversation that the stored changes may contain. If
// the agent has no preset, and so no script that searches HOME for a conversation, the next run
// continues this conversation.
func (i *interrupted) oldestSession(id belay.ExecutionID) string {
	all := i.sessions(id)
	return all[len(all)-1]
}

// next returns the state that the execution stores at the end of a run for its next run. The ended
// run has the token run, began with the state i and made the changes c. If i is empty, the ended
// run began its own conversation.
func (i *interrupted) next(id belay.ExecutionID, c *Changes, run belay.Token) interrupted {
	n := interrupted{Changes: c, Run: run, Charged: i.Charged}
	if !i.none() {
		n.Session = i.oldestSession(id)
	}
	return n
}

// talk decides whether this run continues the conversation of the earlier run whose changes this
// run has taken over. This run continues the conversation if the agent has a command for that
// purpose and the changes contain the conversation. talk does not check the changes of an agent
// without a preset.
func (a *Assistant) talk(ctx context.Context, b *bench, w *workspace.Workspace, resumed bool) (talk, error) {
	fresh := talk{session: sessionOf(workflow.RunID(ctx))}
	id := workflow.Execution(ctx)
	switch {
	case !resumed, len(a.Resume) == 0:
		return fresh, nil
	case a.preset == nil:
		return talk{b.saver.before.oldestSession(id), true}, nil
	}
	for _, session := range b.saver.before.sessions(id) {
		found, err := b.converses(ctx, w, a.preset.conversation, session)
		if err != nil {
			return fresh, fmt.Errorf("look for the conversation to continue: %w", err)
		}
		if found {
			return talk{session, true}, nil
		}
	}
	return fresh, nil
}

// searchTimeout is the time limit of a preset's script that searches for a conversation. If the
// script takes longer, for example because the agent has made a file that blocks, the run begins a
// new conversation.
const searchTimeout = 10 * time.Second

// converses reports whether the workspace contains the conversation with the id session. It runs a
// preset's script to find out, in the same sandbox as the job's commands, because the script reads
// files that the agent wrote.
func (b *bench) converses(ctx context.Context, w *workspace.Workspace, script, session string) (bool, error) {
	var said bytes.Buffer
	look, _ := b.runner.around(ctx, process.Command{
		ID: workflow.RunID(ctx).String(), Args: []string{"sh", "-c", script, "sh", session}, Dir: w.Dir,
		Inherit: process.Basics(), Env: map[string]string{"HOME": w.Home, "TMPDIR": w.Tmp}, User: w.User,
		Limits:   b.runner.Limits,
		Writable: b.runner.writable(w), Tmp: w.Tmp, Timeout: searchTimeout, Grace: -1,
		Output: func(_ context.Context, c process.Chunk) error {
			if c.Stream == process.Stdout && said.Len() < maxBrief {
				said.Write(c.Data)
			}
			return nil
		},
	})
	_, err := process.Run(ctx, look)
	if errors.Is(err, process.ErrTimedOut) {
		return false, nil
	}
	return bytes.HasPrefix(said.Bytes(), []byte("found")), err
}
