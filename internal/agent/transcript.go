package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/belaydev/belay/workflow"
)

// transcript is the Observer of an agent: it parses the output as it arrives, and writes the logs
// that clients read.
type transcript struct {
	silent
	ctx       context.Context
	log       *slog.Logger
	form      string
	reader    *reader
	progress  *workflow.Log
	phase     *workflow.Log
	questions *workflow.Log
	said      *workflow.Log // nil if the prompt did not come from a chat
	talk      talk
	walls     string
}

func newTranscript(ctx context.Context, form string, chat bool) *transcript {
	t := &transcript{ctx: ctx, progress: workflow.Output(ctx, ProgressLog), phase: workflow.Output(ctx, PhaseLog),
		questions: workflow.Output(ctx, QuestionLog)}
	t.form = form
	if chat {
		t.said = workflow.Output(ctx, AnswerLog)
	}
	t.renew()
	return t
}

// renew makes the transcript ready for the output of another command.
func (t *transcript) renew() {
	var said func([]byte)
	if t.said != nil {
		said = func(p []byte) { _, _ = t.said.Write(p) } // Close returns the error of an earlier Write
	}
	var m *meter
	if t.reader != nil {
		m = t.reader.meter
	}
	t.reader = newReader(t.form, t.tell, said)
	t.reader.meter = m
}

func (t *transcript) tell(p Progress) {
	line, err := json.Marshal(p)
	if err == nil {
		_, _ = t.progress.Write(append(line, '\n')) // Close returns the error of an earlier Write
	}
}

// ask stores a question, so that people can read it.
func (t *transcript) ask(q *Question) error {
	line, err := json.Marshal(struct {
		*Question
		Signal string `json:"signal"` // the web UI sends it with the answer
	}{q, q.Signal()})
	if err == nil {
		_, err = t.questions.Write(append(line, '\n'))
	}
	if err == nil {
		err = t.questions.Flush()
	}
	t.tell(Progress{Kind: "question", Text: brief(q.Text)})
	return err
}

// Retrying reports that the workspace could not be prepared and that Belay tries again.
func (t *transcript) Retrying(attempt int, why error) {
	t.tell(Progress{Kind: "preparing", Name: fmt.Sprintf("fetching, attempt %d", attempt), Text: brief(why.Error())})
	t.log.With(workflow.LogAttr(t.ctx)).WarnContext(t.ctx, "a workspace is not ready yet", "attempt", attempt,
		"error", why)
}

// Started stores the phase (a record that the command starts) before the command can write any
// output.
func (t *transcript) Started(Step) {
	line, err := json.Marshal(Phase{t.talk.session, t.talk.continued})
	if err == nil {
		_, _ = t.phase.Write(append(line, '\n'))
		_ = t.phase.Flush() // Close returns the error of an earlier Flush
	}
}

// Held writes the description of the sandbox in which the agent runs to the log for operators.
func (t *transcript) Held(by string) {
	t.walls = by
	t.log.With(workflow.LogAttr(t.ctx)).InfoContext(t.ctx, "an agent runs", "held_by", by)
}

// Wrote parses standard output. It ignores standard error, whose text is meant only for people.
func (t *transcript) Wrote(stderr bool, p []byte) {
	if !stderr {
		t.reader.write(p)
	}
}

// answer returns the result of a command that has ended.
func (t *transcript) answer(r StepResult) Answer {
	t.reader.end()
	a := Answer{
		ExitCode: r.ExitCode, TimedOut: r.TimedOut, SaidFailed: t.reader.failed, Usage: t.reader.usage,
		Changes:    r.Changes,
		DurationMS: r.DurationMS, Bytes: r.Bytes, Isolation: r.Isolation, Walls: t.walls, Exceeded: r.Exceeded,
		Denied: t.reader.denied, Session: t.talk.session, Continued: t.talk.continued,
	}
	if a.Session == "" {
		a.Session = t.reader.session
	}
	a.Text, a.Cut = t.reader.text()
	return a
}

func (t *transcript) close() error {
	err := errors.Join(t.progress.Close(), t.phase.Close(), t.questions.Close())
	if t.said != nil {
		err = errors.Join(err, t.said.Close())
	}
	return err
}
