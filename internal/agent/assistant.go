package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// Prompted is the name of the workflow that hands a prompt to an agent.
const Prompted = "agent"

// The logs of an agent's execution, beside OutputLog.
const (
	// ProgressLog has a Progress in JSON on each line, if the agent's output is
	// structured.
	ProgressLog = "progress"
	// AnswerLog has what the agent says as it comes, if somebody chats with it:
	// its standard output, or the texts of structured output.
	AnswerLog = "answer"
	// PhaseLog has a Phase in JSON for each run whose command was started.
	PhaseLog = "phase"
)

// Phase says of a run that its workspace is ready and its command starts.
type Phase struct {
	// Session is the conversation with the agent, if it has an id.
	Session string `json:"session,omitempty"`
	// Continued tells that the run goes on with the conversation of an earlier one: it
	// says what comes next, and nothing again.
	Continued bool `json:"continued,omitempty"`
}

// Prompt is what an agent is asked to do: the input of the workflow.
type Prompt struct {
	Text string `json:"prompt"`
	// Repo and Ref say what to work on, as in Job.
	Repo string `json:"repo,omitempty"`
	Ref  string `json:"ref,omitempty"`
	// Timeout bounds the command from the moment it executes.
	Timeout belay.Duration `json:"timeout,omitempty"`
	// Chat says that somebody waits for the answer as it comes.
	Chat bool `json:"chat,omitempty"`
	// Stream says that they would have it in pieces.
	Stream bool `json:"stream,omitempty"`
	// Metadata is the caller's own.
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// Answer is what an agent came to: the output of the workflow, also when it
// failed.
type Answer struct {
	// Text is the final text of structured output, else the standard output; of
	// one that is longer than 256 KiB the end, and Cut is set.
	Text string `json:"text"`
	Cut  bool   `json:"text_cut,omitempty"`
	// ExitCode is that of the command, as in Result.
	ExitCode int  `json:"exit_code"`
	TimedOut bool `json:"timed_out,omitempty"`
	// SaidFailed tells that structured output ended with an error.
	SaidFailed bool   `json:"said_failed,omitempty"`
	Usage      *Usage `json:"usage,omitempty"`
	// Denied names the tools that the agent wanted to use and was not permitted to.
	Denied []string `json:"denied,omitempty"`
	// Session is the conversation with the agent, if it has an id.
	Session string `json:"session,omitempty"`
	// Resumed tells that the workspace was that of a run which was interrupted, and
	// Continued that its conversation went on.
	Resumed   bool     `json:"resumed,omitempty"`
	Continued bool     `json:"continued,omitempty"`
	Commit    string   `json:"commit,omitempty"`
	Changes   *Changes `json:"changes,omitempty"`
	// Notes say what an agent could not find in its workspace, what of the network it was
	// refused, and why.
	Notes      []string `json:"notes,omitempty"`
	DurationMS int64    `json:"duration_ms"`
	Bytes      int64    `json:"bytes"`
	Isolation  string   `json:"isolation,omitempty"`
	// Walls says in words what held the agent.
	Walls    string `json:"walls,omitempty"`
	Exceeded string `json:"exceeded,omitempty"`
}

// Setup is how agents are run on a server.
type Setup struct {
	Command Template
	// Resume is the command that continues the conversation of a run which was
	// interrupted. Without it Command is run again.
	Resume Template
	// Permissions is one of PermissionsAuto, PermissionsAll and PermissionsEdits, for
	// presets; empty for PermissionsAuto.
	Permissions string
	// Output is one of OutputAuto, OutputPlain and OutputStreamJSON.
	Output string
	// Env names the variables that are passed on, or read from the file that
	// NAME_FILE names.
	Env []string
	// Repo is what is worked on unless a prompt names another; empty for an
	// empty workspace.
	Repo string
	// Repos are the others that a prompt may name, Credentials those of the operator, and
	// Elsewhere says that agents run on other machines: see [Repositories].
	Repos       []string
	Credentials workspace.Credentials
	Elsewhere   bool
	// Timeout bounds the command unless a prompt asks for less or more, and
	// Grace is how long it may take to end when it is told to.
	Timeout, Grace time.Duration

	preset *preset // whose command it is; nil for one's own
}

// The permissions of an agent of a preset.
const (
	// PermissionsAuto is PermissionsAll for jobs that cannot write outside of their
	// workspace, and PermissionsEdits for others.
	PermissionsAuto = "auto"
	// PermissionsAll permits everything: what holds the job is all that holds the agent.
	PermissionsAll = "all"
	// PermissionsEdits permits edits in the workspace. The agent denies itself the rest.
	PermissionsEdits = "edits"
)

// NewSetup fills in a preset, if one is named, beneath what is said.
func NewSetup(name string, s Setup) (Setup, error) {
	if name != "" {
		p, ok := presets[name]
		if !ok {
			return s, invalid("there is no preset %q; there are %s", name, strings.Join(Presets(), ", "))
		}
		if len(s.Command) == 0 {
			s.Command, s.preset = p.command, p
			if len(s.Resume) == 0 {
				s.Resume = p.resume
			}
		}
		if s.Output == "" || s.Output == OutputAuto {
			s.Output = p.output
		}
		s.Env = append(append([]string(nil), p.env...), s.Env...)
	}
	if s.Output == "" {
		s.Output = OutputAuto
	}
	job := Job{Steps: []Step{{Name: Prompted, Argv: s.Command}}, Env: s.Env, Timeout: belay.Duration(s.Timeout),
		Grace: belay.Duration(s.Grace)}
	if err := errors.Join(s.Command.Check(), job.Check()); err != nil {
		return s, err
	}
	if len(s.Resume) > 0 {
		if err := s.Resume.Check(); err != nil {
			return s, fmt.Errorf("the command that continues a conversation: %w", err)
		}
	}
	if err := s.repositories().CheckNamed(); err != nil {
		return s, fmt.Errorf("agent.repos: %w", err)
	}
	if s.Repo == "" {
		return s, nil
	}
	if !s.Elsewhere {
		if err := workspace.CheckRepo(s.Repo); err != nil {
			return s, err
		}
	}
	_, err := workspace.Locate(s.Repo)
	return s, err
}

func (s *Setup) repositories() *Repositories {
	return &Repositories{Own: s.Repo, Named: s.Repos, Credentials: s.Credentials, Elsewhere: s.Elsewhere}
}

// Check refuses a prompt that could not be run, or may not.
func (s *Setup) Check(p *Prompt) error {
	if err := s.Command.CheckPrompt(p.Text); err != nil {
		return err
	}
	if len(s.Resume) > 0 && !s.Resume.piped() {
		if err := s.Resume.CheckPrompt(p.Text); err != nil {
			return err
		}
	}
	if p.Timeout < 0 {
		return invalid("a timeout must not be negative")
	}
	if p.Repo == "" {
		if p.Ref != "" {
			return invalid("a ref needs a repository, and none is named or configured")
		}
		return nil
	}
	if err := s.repositories().Check(p.Repo); err != nil {
		return err
	}
	return workspace.CheckRef(p.Ref)
}

// command is what a prompt is handed to: its arguments, its standard input and further
// variables. Walled tells that it cannot write outside of its workspace.
func (s *Setup) command(p *Prompt, t talk, walled bool) (argv []string, stdin []byte, env map[string]string) {
	template := s.Command
	if t.continued {
		template = s.Resume
	}
	if s.preset != nil {
		free := s.permits(walled)
		template = s.preset.of(template, free, p.Stream)
		if free {
			env = s.preset.freeEnv
		}
	}
	if t.continued {
		return template.Continue(p.Text, t.session), nil, env
	}
	argv, stdin = template.Fill(p.Text, t.session)
	return argv, stdin, env
}

// permits reports whether an agent of a preset may do everything.
func (s *Setup) permits(walled bool) bool {
	switch s.Permissions {
	case PermissionsAll:
		return true
	case PermissionsEdits:
		return false
	}
	return walled
}

// Unpermitted says why the agent cannot do all that it is made for, empty if it can.
func (s *Setup) Unpermitted(walled bool) string {
	switch {
	case s.preset == nil, s.permits(walled):
		return ""
	case s.Permissions == PermissionsEdits:
		return "the agent may edit files and nothing else: agent.permissions says so"
	}
	return "the agent may edit files and nothing else, since jobs can write outside of their workspaces here; " +
		"agent.permissions: all permits the rest all the same"
}

// named reports whether the conversations of the agent have an id of ours.
func (s *Setup) named() bool {
	return slices.ContainsFunc(s.Command, func(a string) bool { return strings.Contains(a, sessionPlace) })
}

// Assistant runs prompts on this host.
type Assistant struct {
	Setup
	// Workspaces makes the checkouts.
	Workspaces *workspace.Manager
	// Limits, Seal and Walls are as those of Runner.
	Limits process.Limits
	Seal   bool
	Walls
	// Walled tells that the probe of this machine found jobs to be unable to write outside
	// of their workspaces.
	Walled bool
	// PrepareTimeout is as that of Runner.
	PrepareTimeout time.Duration
	// Save is how often what an agent has changed is kept with its execution while
	// it works; 0 means only when it ends.
	Save time.Duration
	// Getenv is the environment that Env is passed on from; nil means that of
	// the process.
	Getenv func(string) string
	// Log receives what an operator should know; nil means slog.Default().
	Log *slog.Logger
}

// Run is the workflow function of a prompt. A run that is stopped with its worker
// keeps what it changed, and the next one goes on in a workspace that has it. After
// one that died, the next goes on with what was kept last; on the same host with all
// that it left.
func (a *Assistant) Run(ctx context.Context, p Prompt) (Answer, error) {
	if err := a.Check(&p); err != nil {
		return Answer{}, belay.Permanent(err)
	}
	t := newTranscript(ctx, a.Output, p.Chat)
	if t.log = a.Log; t.log == nil {
		t.log = slog.Default()
	}
	timeout := p.Timeout
	if timeout == 0 {
		timeout = belay.Duration(a.Timeout)
	}
	b := &bench{
		job: &Job{
			Repo: p.Repo, Ref: p.Ref, Timeout: timeout, Grace: belay.Duration(a.Grace), Env: a.Env,
			Steps: []Step{{Name: Prompted, Argv: a.Command}},
		},
		runner: &Runner{
			Workspaces: a.Workspaces, Limits: a.Limits, Seal: a.Seal, Walls: a.Walls, PrepareTimeout: a.PrepareTimeout,
		},
		allow: a.repositories().Check, foreign: p.Repo != a.Repo,
		observe: t, secrets: a.secrets, log: workflow.Output(ctx, OutputLog), saver: newSaver(a.Save, t.log),
	}
	defer b.remove(ctx)
	answer, err := a.answer(ctx, &p, b, t)
	if cerr := errors.Join(b.log.Close(), t.close()); err == nil && cerr != nil {
		err = cerr
	}
	return answer, belay.WithOutput(err, answer)
}

func (a *Assistant) secrets() (map[string]string, error) {
	getenv := a.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	return secrets(a.Env, getenv)
}

func (a *Assistant) answer(ctx context.Context, p *Prompt, b *bench, t *transcript) (answer Answer, err error) {
	if b.job.Repo != "" {
		b.at, err = workflow.Step(ctx, "checkout", b.checkout)
		if err != nil {
			return answer, err
		}
	}
	if b.saver.now, _, err = workflow.State[interrupted](ctx); err != nil {
		return answer, err
	}
	if err := b.inherit(ctx); err != nil {
		return answer, err
	}
	b.saver.before = b.saver.now
	resumed := b.saver.before != (interrupted{})
	b.more = make(map[string]string)
	if resumed {
		b.last = b.saver.now.Changes
		b.more["BELAY_RESUMED"] = "1"
	}
	saved, err := workflow.Step(ctx, "agent", func(ctx context.Context) (Answer, error) {
		result, err := a.converse(ctx, p, b, t, resumed)
		answer = t.answer(result)
		answer.Commit, answer.Resumed, answer.Notes = b.at.Commit, resumed, b.notes
		if answer.Usage != nil {
			workflow.AddCost(ctx, answer.Usage.Total())
		}
		if b.salvaged && errors.Is(context.Cause(ctx), workflow.ErrReleased) {
			err = errors.Join(err, b.saver.released(ctx, result.Changes))
		}
		if err = answer.judge(ctx, err); err != nil && ctx.Err() == nil {
			err = errors.Join(err, b.saver.undo(ctx))
		}
		return answer, err
	})
	if err != nil {
		return answer, err
	}
	return saved, nil
}

// converse begins a conversation with the agent, or continues that of an earlier run.
func (a *Assistant) converse(ctx context.Context, p *Prompt, b *bench, t *transcript, resumed bool) (StepResult,
	error) {
	w, err := b.workspace(ctx)
	if err != nil {
		return StepResult{}, err
	}
	talk, err := a.talk(ctx, b, w, resumed)
	if err != nil {
		return StepResult{}, err
	}
	argv, stdin, env := a.command(p, talk, a.Walled)
	b.stdin, b.saver.session = stdin, talk.session
	maps.Copy(b.more, env)
	t.talk = talk
	if !a.named() {
		t.talk.session = ""
	}
	return b.step(ctx, 0, Step{Name: Prompted, Argv: argv})
}

// judge is the error of a command that ended. Whether it is tried again is the
// execution's policy to say, so that it is none that would not go away.
func (r *Answer) judge(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case r.TimedOut:
		return fmt.Errorf("the agent ran out of time after %s",
			(time.Duration(r.DurationMS) * time.Millisecond).Round(time.Millisecond))
	case r.ExitCode != 0:
		why := []string{fmt.Sprintf("the agent ended with exit code %d", r.ExitCode)}
		if r.Exceeded != "" {
			why = append(why, r.Exceeded)
		}
		if len(r.Denied) > 0 {
			why = append(why, r.denial())
		}
		return errors.New(strings.Join(why, ": "))
	case err == nil && len(r.Denied) > 0:
		return belay.Permanent(errors.New(r.denial()))
	case err == nil && r.SaidFailed:
		return errors.New("the agent says that it failed")
	}
	return err
}

// denial says which tools the agent was not permitted to use. Trying again would change
// nothing about it.
func (r *Answer) denial() string {
	return "the agent was not permitted to use " + strings.Join(r.Denied, ", ") + "; see agent.permissions"
}
