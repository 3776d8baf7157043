package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// PushTo asks Belay to push the work of a job to a branch when the agent has succeeded.
type PushTo struct {
	// Branch is the name of the branch, in which {{job}} stands for the id of the job. Empty means
	// belay/{{job}}.
	Branch string `json:"branch,omitempty" doc:"The branch to push to; {{job}} stands for the id of the job, and the default is belay/{{job}}."`
	// Message is the message of the commit that Belay makes of uncommitted changes; empty for the
	// first line of the prompt.
	Message string `json:"message,omitempty" doc:"The message of the commit that Belay makes of uncommitted changes; the default is the first line of the prompt."`
	// Approve makes the job ask a person before the push. It pushes only if the answer is yes.
	Approve bool `json:"approve,omitempty" doc:"Ask a person before the push, as an agent asks: the answer yes allows it."`
}

// Pushed is a branch to which Belay has pushed the work of a job.
type Pushed struct {
	Branch string `json:"branch"`
	Commit string `json:"commit"`
	// URL is the first address in the output of the operator's command (agent.push_open), such as
	// the address of a pull request.
	URL string `json:"url,omitempty" doc:"The address that the operator's command has printed, such as that of a pull request."`
	// OpenError says why the operator's command failed; the branch was pushed all the same.
	OpenError string `json:"open_error,omitempty" doc:"Why the operator's command for a pull request failed; the branch was pushed all the same."`
}

// PushedOf returns the branch that a job has pushed; nil if it has pushed none.
func PushedOf(x *belay.Execution) *Pushed {
	var a struct {
		Pushed *Pushed `json:"pushed"`
	}
	if x.Workflow != Prompted || len(x.Output) == 0 || json.Unmarshal(x.Output, &a) != nil {
		return nil
	}
	return a.Pushed
}

// Pushing is the configuration of pushes on a server.
type Pushing struct {
	// Branches are the names of the branches to which jobs may push. A name that ends with * stands
	// for all names that begin with the part before the *.
	Branches []string
	// Credentials finds the login for a push. Logins for fetches are never used for pushes.
	Credentials workspace.Credentials
	// Open is the operator's command that runs after a push; empty for none. Env names the variables
	// that only this command gets, as Setup.Env does for agents.
	Open Opener
	Env  []string
}

const (
	// jobPlace is the text in the name of a branch that stands for the id of the job.
	jobPlace      = "{{job}}"
	defaultBranch = "belay/" + jobPlace
	maxMessage    = 16 << 10
)

// branch returns the name of the branch for a job.
func (p *PushTo) branch(job belay.ExecutionID) string {
	name := p.Branch
	if name == "" {
		name = defaultBranch
	}
	return strings.ReplaceAll(name, jobPlace, job.String())
}

// check returns an error if s does not allow the push, or if the push could not be made.
func (s *Pushing) check(p *PushTo, repo string) error {
	switch {
	case s == nil:
		return forbidden("this server does not push (agent.push)")
	case repo == "":
		return invalid("a push needs a repository, and none is named or configured")
	case len(p.Message) > maxMessage:
		return invalid("push: the message has %d bytes; the limit is %d", len(p.Message), maxMessage)
	case strings.ContainsFunc(p.Message, func(r rune) bool {
		return r == unicode.ReplacementChar || unicode.IsControl(r) && r != '\n' && r != '\t'
	}):
		return invalid("push: the message has a control character")
	}
	name := p.branch(belay.ExecutionID{})
	if err := errors.Join(workspace.CheckBranch(name), workspace.CheckPush(repo)); err != nil {
		return err
	}
	if !slices.ContainsFunc(s.Branches, func(pattern string) bool { return matches(pattern, name) }) {
		return forbidden("a job may not push to the branch %s: agent.push_branches allows %s", name,
			strings.Join(s.Branches, ", "))
	}
	return nil
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix) && name != prefix
	}
	return name == pattern
}

func forbidden(format string, args ...any) error {
	return &belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(format, args...)}
}

// titleOf returns the first line of a prompt as a title of at most 72 characters. A title contains
// no control characters, and does not begin with a character that programs take for an option or
// for the name of a file.
func titleOf(prompt string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(prompt), "\n")
	line = strings.Join(strings.FieldsFunc(line, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
	}), " ")
	line = strings.TrimLeft(line, "-@+#/ ")
	const most = 72
	if all := []rune(line); len(all) > most {
		line = strings.TrimSpace(string(all[:most-1])) + "…"
	}
	if line == "" {
		return "Work of an agent"
	}
	return line
}

// sealed is the result of the step "commit": the commit to push. When is the time of the commit, so
// that a later run makes the same commit.
type sealed struct {
	Commit string    `json:"commit"`
	When   time.Time `json:"when"`
}

// push pushes the work of a successful agent. Every process of the agent has ended. The commit, the
// push and the operator's command are durable steps: a run that continues after a crash makes the
// same commit, and a push that has already happened succeeds.
func (a *Assistant) push(ctx context.Context, p *Prompt, b *bench, got *Answer) (*Pushed, error) {
	branch := p.Push.branch(workflow.Execution(ctx))
	var made workspace.Composed
	compose := func(ctx context.Context, when time.Time) error {
		w, err := b.atBase(ctx)
		if err != nil {
			return err
		}
		var s workspace.Salvage
		if got.Changes != nil {
			for name, to := range map[string]*[]byte{got.Changes.Bundle: &s.Bundle, got.Changes.Patch: &s.Patch} {
				if *to, err = artifact(ctx, name); err != nil {
					return err
				}
			}
		}
		message := p.Push.Message
		if strings.TrimSpace(message) == "" {
			message = titleOf(p.Text)
		}
		made, err = b.runner.Workspaces.Compose(ctx, w, s, message, when)
		return err
	}
	c, err := workflow.Step(ctx, "commit", func(ctx context.Context) (sealed, error) {
		when := time.Now().UTC().Truncate(time.Second)
		err := compose(ctx, when)
		return sealed{made.Commit, when}, err
	})
	if err != nil {
		return nil, fmt.Errorf("commit the work of the agent: %w", err)
	}
	if c.Commit == got.Commit {
		got.Notes = append(got.Notes, "nothing was pushed to "+branch+", because the agent changed nothing")
		return nil, nil
	}
	pushed, err := workflow.Step(ctx, "push", func(ctx context.Context) (Pushed, error) {
		if made.Commit == "" {
			if err := compose(ctx, c.When); err != nil {
				return Pushed{}, err
			}
		}
		if made.Commit != c.Commit {
			return Pushed{}, fmt.Errorf("the work is now commit %s, and was %s before", made.Commit, c.Commit)
		}
		return Pushed{Branch: branch, Commit: c.Commit}, a.send(ctx, b, branch, made)
	})
	if err != nil {
		return nil, fmt.Errorf("push the work of the agent to %s: %w", branch, err)
	}
	if len(a.Pushing.Open) == 0 {
		return &pushed, nil
	}
	opened, err := workflow.Step(ctx, "open", func(ctx context.Context) (Pushed, error) {
		return a.open(ctx, p, b, pushed), ctx.Err()
	})
	if err != nil {
		return &pushed, err
	}
	return &opened, nil
}

// approved reports whether a person allows the push, if the prompt requires it. number is the number
// of the question. The job waits without a workspace.
func (a *Assistant) approved(ctx context.Context, p *Prompt, b *bench, t *transcript, got *Answer, number int) (bool,
	error) {
	if !p.Push.Approve || got.Changes == nil { // without changes nothing is pushed
		return true, nil
	}
	b.remove(ctx)
	b.place = nil
	branch := p.Push.branch(workflow.Execution(ctx))
	q := Question{Number: number, Text: fmt.Sprintf("May the work be pushed to the branch %s (%s)? Answer yes or no.",
		branch, got.Changes.counts())}
	// a step, so that the run that continues with the answer does not ask again
	if _, err := workflow.Step(ctx, "ask", func(context.Context) (struct{}, error) {
		return struct{}{}, t.ask(&q)
	}); err != nil {
		return false, err
	}
	text, err := workflow.WaitSignal[reply](ctx, q.Signal())
	if err != nil {
		return false, err
	}
	if strings.EqualFold(strings.Trim(string(text), " \t\n.!"), "yes") {
		return true, nil
	}
	got.Notes = append(got.Notes, "the work was not pushed, because the answer of a person was: "+brief(string(text)))
	return false, nil
}

// counts describes the changes in a few words.
func (c *Changes) counts() string {
	return fmt.Sprintf("commits: %d, files changed: %d, lines: +%d −%d", c.Commits, c.Files, c.Insertions, c.Deletions)
}

// atBase returns a workspace that was made of the commit of the job. Belay composes the commit from
// the stored changes, so a workspace that is made now does not need them.
func (b *bench) atBase(ctx context.Context) (*workspace.Workspace, error) {
	b.last = nil
	return b.workspace(ctx)
}

func (a *Assistant) send(ctx context.Context, b *bench, branch string, c workspace.Composed) error {
	w, err := b.atBase(ctx)
	if err != nil {
		return err
	}
	if err := workflow.Guard(ctx); err != nil {
		return err
	}
	var tell func(int, error)
	if r, ok := b.observe.(retryObserver); ok {
		tell = r.Retrying
	}
	_, err = retryUnreachable(ctx, a.PrepareTimeout, tell, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.runner.Workspaces.Push(ctx, w, workspace.Push{
			Composed: c, Branch: branch, Credentials: a.Pushing.Credentials,
		})
	})
	return err
}

// open runs the operator's command for a branch that was pushed.
func (a *Assistant) open(ctx context.Context, p *Prompt, b *bench, pushed Pushed) Pushed {
	getenv := a.getenv()
	env := make(map[string]string)
	for _, name := range a.Pushing.Env {
		if value := getenv(name); value != "" {
			env[name] = value
		}
	}
	values, err := secrets(a.Pushing.Env, getenv)
	for name, value := range values {
		env[name] = value
	}
	if err == nil {
		pushed.URL, err = a.Pushing.Open.run(ctx, env, map[string]string{
			"{{branch}}": pushed.Branch, "{{base}}": b.at.Branch, "{{title}}": titleOf(p.Text), "{{repo}}": p.Repo,
			jobPlace: workflow.Execution(ctx).String(), "{{commit}}": pushed.Commit,
		})
	}
	if err != nil {
		pushed.OpenError = Shown(err.Error())
		log := a.Log
		if log == nil {
			log = slog.Default()
		}
		log.With(workflow.LogAttr(ctx)).WarnContext(ctx, "the command after a push failed (agent.push_open)", "error",
			err)
	}
	return pushed
}
