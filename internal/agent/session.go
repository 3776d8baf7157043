package agent

import (
	"bytes"
	"context"
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
	// message is the text that the agent gets; empty if the agent has got it before and only goes on.
	message string
	id      string // the id of the message
}

// sessionOf returns the id of the conversation that a run begins: a UUID of version 8, computed
// from the run's id. So every run has a different conversation id, which need not be stored.
func sessionOf(run belay.RunID) string { return uuidOf("conversation of " + run.String()) }

// sessions returns the ids of the conversations that the stored changes may contain, the newest
// first. The run that made the changes either began its own conversation or continued the
// conversation in Session.
func (i *interrupted) sessions(id belay.ExecutionID) []string {
	if i.Run == 0 { // the changes are those of another job
		return []string{i.Session}
	}
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
	n := interrupted{Changes: c, Run: run, Turn: i.Turn, Charged: i.Charged}
	if run == i.Run { // the run has ended its turn with this question
		n.Asked = i.Asked
	}
	if !i.none() {
		n.Session = i.oldestSession(id)
	}
	return n
}

// within reports whether the changes were made in the turn with the given number, so that the turn
// was interrupted.
func (i *interrupted) within(number int) bool {
	return i.Run != 0 && max(i.Turn, firstTurn) == number
}

// talk decides whether this run continues the conversation of the earlier run whose changes this
// run has taken over. This run continues the conversation if the agent has a command for that
// purpose and the changes contain the conversation. talk does not check the changes of an agent
// without a preset.
func (a *Assistant) talk(ctx context.Context, p *Prompt, b *bench, w *workspace.Workspace, now *turn) (talk, error) {
	before, id := &b.saver.before, workflow.Execution(ctx)
	fresh := talk{
		session: sessionOf(workflow.RunID(ctx)), message: now.whole(p, a.Command.MaxPrompt()),
		id: messageID(id, now.number),
	}
	interrupted := before.within(now.number)
	switch {
	case before.none():
		return fresh, nil
	case a.preset != nil:
	case interrupted && len(a.Resume) > 0:
		return talk{session: before.oldestSession(id), continued: true}, nil
	case len(a.Reply) > 0 && before.oldestSession(id) != "":
		return talk{before.oldestSession(id), true, now.message(p), fresh.id}, nil
	default:
		return fresh, nil
	}
	opening := now.number == firstTurn && p.Continues == nil // the conversation begins with the message
	for _, session := range before.sessions(id) {
		found, err := b.finds(ctx, w, a.preset.conversation, session)
		if err != nil {
			return fresh, fmt.Errorf("look for the conversation to continue: %w", err)
		}
		if !found {
			continue
		}
		t := talk{session: session, continued: true}
		if !opening {
			got, err := b.finds(ctx, w, a.preset.message, session, fresh.id)
			if err != nil {
				return fresh, fmt.Errorf("look for the message in the conversation: %w", err)
			}
			if !got {
				t.message, t.id = now.message(p), fresh.id
			}
		}
		return t, nil
	}
	return fresh, nil
}

// searchTimeout is the time limit of a preset's script that searches for a conversation. If the
// script takes longer, for example because the agent has made a file that blocks, the run begins a
// new conversation.
const searchTimeout = 10 * time.Second

// finds runs a preset's script that searches the files of the agent, and reports whether the script
// has found what the arguments name. The script runs in the same sandbox as the job's commands,
// because it reads files that the agent wrote.
func (b *bench) finds(ctx context.Context, w *workspace.Workspace, script string, args ...string) (bool, error) {
	var said bytes.Buffer
	look, _ := b.runner.around(ctx, process.Command{
		ID: workflow.RunID(ctx).String(), Args: append([]string{"sh", "-c", script, "sh"}, args...), Dir: w.Dir,
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
