package agent

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/run"
	"github.com/belaydev/belay/workflow"
)

// Continued names the job whose conversation and work a prompt continues. Only the server fills it,
// from the data of that job.
type Continued struct {
	Job belay.ExecutionID `json:"job"`
	// First is the first job of the conversation. The directory of the workspace has its name, since
	// agents store paths of this directory.
	First belay.ExecutionID `json:"first"`
	// Session is the id of the conversation; empty if it is unknown.
	Session string `json:"session,omitempty"`
	// Commit is the commit that the first job checked out, and Branch its branch.
	Commit string `json:"commit"`
	Branch string `json:"branch,omitempty"`
	// Changes names artifacts of Job; nil if that job changed nothing.
	Changes *Changes `json:"changes,omitempty"`
	// Usage is the usage of the conversation up to the end of Job; nil if it is unknown.
	Usage *belay.ModelUsage `json:"usage,omitempty"`
	// Key identifies the request; it is a hash of the Idempotency-Key.
	Key string `json:"key,omitempty"`
}

// Question is a question of an agent to a person.
type Question struct {
	// Number is 1 for the first question of a job.
	Number int    `json:"number"`
	Text   string `json:"text"`
}

// Signal returns the name of the signal that has the answer to the question. It depends on the text: if a run is killed
// after a person has read its question, the next run may ask another question with the same number, or Belay may ask
// for a push, and must not get the answer to the first question.
func (q Question) Signal() string {
	sum := sha256.Sum256([]byte(q.Text))
	return fmt.Sprintf("answer-%d-%x", q.Number, sum[:8])
}

// Replied is a question with its answer.
type Replied struct {
	Question
	Answer string `json:"answer"`
}

// reply is the payload of the signal with an answer: the text as a JSON string, or an object with the
// text in the field answer, as the form of the web UI sends it.
type reply string

// UnmarshalJSON implements [json.Unmarshaler].
func (r *reply) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		var object struct {
			Answer *string `json:"answer"`
		}
		if err := json.Unmarshal(data, &object); err != nil || object.Answer == nil {
			return errors.New(`an answer is a JSON string, or an object {"answer": TEXT}`)
		}
		text = *object.Answer
	}
	*r = reply(text[:min(len(text), MaxAnswer)])
	return nil
}

// MaxQuestion is the maximum size of a question, and MaxAnswer that of an answer as JSON, in bytes.
const (
	MaxQuestion = 8 << 10
	MaxAnswer   = belay.MaxSignal
)

// firstTurn is the number of the first turn of a job. A turn is a part of a job that begins with a
// message to the agent: the prompt, or the answer to a question.
const firstTurn = 1

// turn is one turn of a job, and what came before it.
type turn struct {
	number  int
	replies []Replied // the answers to the questions of the earlier turns
}

// message returns the text with which the turn begins.
func (t *turn) message(p *Prompt) string {
	if t.number == firstTurn {
		return p.Text
	}
	last := t.replies[len(t.replies)-1]
	return fmt.Sprintf("You asked a person: %s\nThe answer is: %s\nContinue from where you left off.", last.Text,
		last.Answer)
}

// whole returns the message for an agent that has forgotten its conversation: the prompt, with all answers. If they do
// not fit into a message of most bytes, it has the questions alone or nothing of them: the agent gets the answer to
// the same question at once.
func (t *turn) whole(p *Prompt, most int) string {
	full, brief := p.Text, p.Text
	for _, r := range t.replies {
		full += fmt.Sprintf("\n\nYou have already asked a person: %s\nThe answer was: %s", r.Text, r.Answer)
		brief += "\n\nYou have already asked a person, and get the answer if you ask again: " + r.Text
	}
	for _, text := range []string{full, brief} {
		if len(text) <= most {
			return text
		}
	}
	return p.Text
}

// messageID returns the id of the message with which a turn begins: a UUID of version 8, which is
// the same in all runs of the turn. So an agent that stores the ids of messages, and Belay, can see
// whether the message has arrived before.
func messageID(id belay.ExecutionID, number int) string {
	return uuidOf(fmt.Sprintf("message %d of %s", number, id))
}

// uuidOf returns a UUID of version 8 that depends on the text alone.
func uuidOf(text string) string {
	u := sha256.Sum256([]byte(text))
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// earlier returns the usage of the conversation before the job; nil if it is unknown.
func (p *Prompt) earlier() *belay.ModelUsage {
	if p.Continues == nil {
		return new(belay.ModelUsage)
	}
	return p.Continues.Usage
}

// place returns the name of the directory of the workspace.
func (p *Prompt) place(ctx context.Context) string {
	if p.Continues != nil {
		return p.Continues.First.String()
	}
	return workflow.Execution(ctx).String()
}

// takeOver copies the changes of the job that the prompt continues, and lets this job begin with
// them. Later runs of this job find the copy.
func (b *bench) takeOver(ctx context.Context, c *Continued) error {
	if !b.saver.now.none() {
		return nil
	}
	var kept *Changes
	if c.Changes != nil {
		var s workspace.Salvage
		for _, part := range c.Changes.parts(&s) {
			if *part.name == "" {
				continue
			}
			data, err := artifactOf(ctx, c.Job, *part.name)
			if err != nil {
				return fmt.Errorf("read the work of job %s: %w", c.Job, err)
			}
			*part.data = data
		}
		s.Commits, s.Files = c.Changes.Commits, c.Changes.Files
		s.Insertions, s.Deletions = c.Changes.Insertions, c.Changes.Deletions
		var err error
		if kept, err = b.keep(ctx, b.saver.freeName(), s); err != nil {
			return fmt.Errorf("take over the work of job %s: %w", c.Job, err)
		}
	}
	b.saver.now = interrupted{Changes: kept, Session: c.Session, Charged: b.saver.now.Charged}
	return workflow.Checkpoint(ctx, b.saver.now)
}

// artifactOf reads an artifact of another execution.
func artifactOf(ctx context.Context, id belay.ExecutionID, name string) (data []byte, err error) {
	const page = 16
	for from := int64(0); ; {
		chunks, err := run.From(ctx).ChunksOf(id, name, from, page)
		if err != nil {
			return nil, err
		}
		for _, c := range chunks {
			if data, from = append(data, c.Data...), c.N+1; len(data) > belay.MaxArtifact {
				return nil, &belay.Error{
					Code: belay.CodePayloadTooLarge, Message: "the artifact " + name + " is too large",
				}
			}
		}
		switch {
		case len(chunks) == page:
		case data == nil:
			return nil, belay.Permanent(&belay.Error{
				Code: belay.CodeNotFound, Message: fmt.Sprintf("execution %s has no artifact %s any more", id, name),
			})
		default:
			return data, nil
		}
	}
}

// converse runs the turns of a job: it waits for the answer to each question of the agent, without a
// slot of the worker and without a workspace, and then goes on with the conversation. It returns the
// number of turns.
func (a *Assistant) converse(ctx context.Context, p *Prompt, b *bench, t *transcript) (Answer, int, error) {
	now := turn{number: firstTurn}
	for {
		var options []workflow.StepOption
		if now.number > firstTurn {
			options = append(options, workflow.Key(now.number))
		}
		var failed Answer
		saved, err := workflow.Step(ctx, "agent", func(ctx context.Context) (Answer, error) {
			answer, err := a.take(ctx, p, b, t, &now)
			failed = answer
			return answer, err
		}, options...)
		if err != nil {
			return failed, now.number, err
		}
		if saved.Asked == nil {
			return saved, now.number, nil
		}
		b.remove(ctx)
		b.place = nil
		got, err := workflow.WaitSignal[reply](ctx, saved.Asked.Signal())
		if err != nil {
			return saved, now.number, err
		}
		now.replies = append(now.replies, Replied{*saved.Asked, string(got)})
		now.number++
		if err := b.renew(ctx); err != nil {
			return saved, now.number, err
		}
		t.renew()
		b.saver.meter.renew()
	}
}

// renew prepares the bench for the next turn of the same run.
func (b *bench) renew(ctx context.Context) error {
	now, _, err := workflow.State[interrupted](ctx)
	if err != nil {
		return err
	}
	b.salvaged, b.saver.ended, b.saver.saved = false, false, false
	b.saver.now, b.saver.before = now, now
	return nil
}

// input returns a message in the format in which Claude Code reads messages, with an id.
func input(id, session, text string) []byte {
	type content struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	line, err := json.Marshal(struct {
		Type    string  `json:"type"`
		ID      string  `json:"uuid"`
		Session string  `json:"session_id"`
		Parent  *string `json:"parent_tool_use_id"`
		Message content `json:"message"`
	}{Type: "user", ID: id, Session: session, Message: content{"user", text}})
	if err != nil {
		return nil // cannot happen, because all fields are strings
	}
	return append(line, '\n')
}
