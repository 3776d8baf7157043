package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/belaydev/belay/internal/agent/desk"
	"github.com/belaydev/belay/internal/agent/workspace"
)

const (
	// maxQuestions is how many questions one job may ask.
	maxQuestions = 100
	// maxReports is how many lines one run may report.
	maxReports = 10_000
	// betweenSaves is the shortest time between two checkpoints that an agent requests.
	betweenSaves = 5 * time.Second
	// writing is how long an agent may take to write its conversation to HOME after it has asked.
	writing = 300 * time.Millisecond
)

// errAsked is the cause with which a command ends that has asked a question.
var errAsked = errors.New("the agent waits for the answer of a person")

// clerk carries out what the processes of one turn request: it is the [desk.Handler] of their desk.
type clerk struct {
	ctx        context.Context
	turn       turn
	transcript *transcript

	mu      sync.Mutex
	asked   *Question
	reports int
	halt    func(cause error)    // ends the command
	save    func() (bool, error) // stores the changes; false if the job has no repository

	saving sync.Mutex // held while the changes are stored, so that reports and questions do not wait meanwhile
	saved  time.Time

	started chan struct{} // closed when tree is set
	tree    interface{ Has(pid int) bool }
}

func newClerk(ctx context.Context, now turn, t *transcript) *clerk {
	return &clerk{ctx: ctx, turn: now, transcript: t, started: make(chan struct{})}
}

// open opens the desk of a command and returns its environment.
func (k *clerk) open(w *workspace.Workspace) (*desk.Desk, error) {
	owner := os.Geteuid()
	if w.User != nil {
		owner = int(w.User.UID)
	}
	return desk.Open(w.Tmp, owner, k, func(ctx context.Context, pid int) bool {
		select {
		case <-k.started:
			return k.tree.Has(pid)
		case <-ctx.Done(): // the command could not be started
			return false
		}
	})
}

// accept lets the processes of a command that has started make requests.
func (k *clerk) accept(tree interface{ Has(pid int) bool }) {
	if k != nil {
		k.tree = tree
		close(k.started)
	}
}

// begin gives the clerk the means to end the command, and to store its changes.
func (k *clerk) begin(halt func(cause error), save func() (bool, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.halt, k.save = halt, save
}

// Ask implements [desk.Handler].
func (k *clerk) Ask(ctx context.Context, text string) (string, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return "", errors.New("the question is empty")
	case len(text) > MaxQuestion:
		return "", fmt.Errorf("the question has %d bytes; the limit is %d", len(text), MaxQuestion)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return "", errors.New("the question is not valid text")
	}
	if answer, ok := k.known(text); ok {
		return answer, nil
	}
	if err := k.note(text); err != nil {
		return "", err
	}
	<-ctx.Done() // the command ends
	return "", context.Cause(ctx)
}

// known returns the answer to a question that the agent has asked in an earlier turn. An agent may ask the same
// question several times, such as what to do next: the answers come in their order, and each comes once.
func (k *clerk) known(text string) (answer string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, r := range k.turn.replies {
		if r.Text == text {
			k.turn.replies = slices.Delete(slices.Clone(k.turn.replies), i, i+1)
			return r.Answer, true
		}
	}
	return "", false
}

// note stores a question and ends the command.
func (k *clerk) note(text string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.asked != nil && k.asked.Text == text:
		return nil
	case k.asked != nil:
		return errors.New("one question at a time: another question waits for its answer")
	case k.turn.number > maxQuestions:
		return fmt.Errorf("a job may ask %d questions", maxQuestions)
	}
	q := &Question{Number: k.turn.number, Text: text}
	if err := k.transcript.ask(q); err != nil {
		return errors.New("the question could not be stored")
	}
	k.asked = q
	halt := k.halt
	go func() {
		select {
		case <-time.After(writing):
		case <-k.ctx.Done():
		}
		halt(errAsked)
	}()
	return nil
}

// question returns the question with which the turn has ended; nil if it has not asked.
func (k *clerk) question() *Question {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

// Checkpoint implements [desk.Handler].
func (k *clerk) Checkpoint(ctx context.Context) error {
	k.mu.Lock()
	save := k.save
	k.mu.Unlock()
	if save == nil {
		return errors.New("the command has not started")
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	select {
	case <-time.After(time.Until(k.saved.Add(betweenSaves))):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ok, err := save()
	k.saved = time.Now()
	switch {
	case err != nil:
		return errors.New("the changes could not be stored")
	case !ok:
		return errors.New("a job without a repository has no changes to store")
	}
	return nil
}

// Report implements [desk.Handler].
func (k *clerk) Report(text string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reports++; k.reports > maxReports {
		return fmt.Errorf("a run may report %d lines", maxReports)
	}
	k.transcript.tell(Progress{Kind: "report", Text: brief(text)})
	return nil
}
