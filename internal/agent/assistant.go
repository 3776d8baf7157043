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
	"github.com/belaydev/belay/internal/agent/desk"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/workflow"
)

// Prompted is the name of the workflow that runs an agent with a prompt.
const Prompted = "agent"

// The names of the logs that an agent's execution has in addition to OutputLog.
const (
	// ProgressLog has one Progress as JSON on each line, if the agent's output is structured.
	ProgressLog = "progress"
	// AnswerLog has the agent's texts as they arrive, if the prompt came from a chat. If the output
	// is not structured, the texts are the whole standard output.
	AnswerLog = "answer"
	// QuestionLog has one Question as JSON for each question of the agent.
	QuestionLog = "questions"
	// PhaseLog has one Phase as JSON for each run that started its command.
	PhaseLog = "phase"
)

// Phase records that the workspace of a run is ready and that the run starts its command.
type Phase struct {
	// Session is the id of the conversation with the agent; empty if the id is unknown.
	Session string `json:"session,omitempty"`
	// Continued says that the run continues the conversation of an earlier run: its output follows
	// the output of the earlier run and does not repeat it.
	Continued bool `json:"continued,omitempty"`
}

// Prompt is a task for an agent: the input of the workflow.
type Prompt struct {
	Text string `json:"prompt"`
	// Repo is the repository to work on, and Ref its branch, tag or commit, as in Job.
	Repo string `json:"repo,omitempty"`
	Ref  string `json:"ref,omitempty"`
	// Timeout is the time limit of the command, from its start.
	Timeout belay.Duration `json:"timeout,omitempty"`
	// Chat says that a client of the chat API waits for the answer.
	Chat bool `json:"chat,omitempty"`
	// Stream says that the client of a chat gets the answer in parts while the agent works.
	Stream bool `json:"stream,omitempty"`
	// Push asks Belay to push the work to a branch when the agent has succeeded; nil for no push.
	Push *PushTo `json:"push,omitempty"`
	// MaxCost limits the cost of the job; nil means no limit.
	MaxCost *MaxCost `json:"max_cost,omitempty"`
	// Metadata belongs to the caller; Belay does not interpret it.
	Metadata json.RawMessage `json:"metadata,omitempty"`
	// Continues is the job whose conversation and work the prompt continues; nil for a new conversation.
	Continues *Continued `json:"continues,omitempty"`
}

// Answer is the result of an agent: the output of the workflow, even after a failure.
type Answer struct {
	// Text is the final text in the structured output, or the whole standard output if the output is
	// plain. If that text is longer than 256 KiB, Text has only its end, and Cut is true.
	Text string `json:"text"`
	Cut  bool   `json:"text_cut,omitempty"`
	// ExitCode is the exit code of the command, with the same values as in Result.
	ExitCode int  `json:"exit_code"`
	TimedOut bool `json:"timed_out,omitempty"`
	// SaidFailed says that the agent reported an error at the end of its structured output.
	SaidFailed bool   `json:"said_failed,omitempty"`
	Usage      *Usage `json:"usage,omitempty"`
	// OverCost says that the job exceeded its MaxCost.
	OverCost bool `json:"over_cost,omitempty"`
	// Conversation is the usage of the whole conversation, which may have begun with an earlier job, as
	// the agent has reported it; nil if it is unknown.
	Conversation *belay.ModelUsage `json:"conversation_usage,omitempty"`
	// Denied names the tools that the agent was not permitted to use.
	Denied []string `json:"denied,omitempty"`
	// Session is the id of the conversation with the agent; empty if the id is unknown.
	Session string `json:"session,omitempty"`
	// Resumed says that the run started with the changes of an interrupted run. Continued says that
	// the run also continued the interrupted run's conversation with the agent.
	Resumed   bool     `json:"resumed,omitempty"`
	Continued bool     `json:"continued,omitempty"`
	Commit    string   `json:"commit,omitempty"`
	Branch    string   `json:"branch,omitempty"`
	Changes   *Changes `json:"changes,omitempty"`
	// Pushed is the branch to which Belay pushed the work; nil if it pushed nothing.
	Pushed *Pushed `json:"pushed,omitempty"`
	// Notes list two kinds of things, with the reasons: parts of the repository that the workspace
	// lacked, and network requests that were refused.
	Notes      []string `json:"notes,omitempty"`
	DurationMS int64    `json:"duration_ms"`
	Bytes      int64    `json:"bytes"`
	Isolation  string   `json:"isolation,omitempty"`
	// Walls describes in one line the sandbox in which the agent ran.
	Walls    string `json:"walls,omitempty"`
	Exceeded string `json:"exceeded,omitempty"`
	// Asked is the question with which a turn of the job has ended. The output of a job has none.
	Asked *Question `json:"asked,omitempty"`
}

// Setup is the configuration of agents on a server.
type Setup struct {
	Command Template
	// Resume is the command that continues the conversation of an interrupted run. If Resume is
	// empty, the next run starts a new conversation with Command.
	Resume Template
	// Reply is the command that continues a conversation with a new message. If Reply is empty, the
	// agent gets the message in a new conversation.
	Reply Template
	// Permissions is PermissionsAuto, PermissionsAll or PermissionsEdits; empty means
	// PermissionsAuto. Only presets use it.
	Permissions string
	// Output is OutputAuto, OutputPlain or OutputStreamJSON.
	Output string
	// Env names the variables that the agent gets. NAME gets the value of the worker's variable
	// NAME, or the content of the file whose path is in the worker's variable NAME_FILE.
	Env []string
	// Repo is the repository for prompts that name no repository; empty for an empty workspace.
	Repo string
	// Repos are patterns of the other repositories that a prompt may name. Credentials finds the
	// operator's user name and password for a repository. Elsewhere says that agents run on other
	// machines. See [Repositories].
	Repos       []string
	Credentials workspace.Credentials
	Elsewhere   bool
	// Prices are the prices of models, for agents that are ended before they report their cost. MaxCost limits the
	// cost of each job; a prompt can only lower it.
	Prices  []Price
	MaxCost *MaxCost
	// Timeout is the time limit of the command, unless the prompt has its own. Grace is the time
	// between SIGTERM and SIGKILL.
	Timeout, Grace time.Duration
	// Pushing allows prompts to push; nil means that they may not.
	Pushing *Pushing

	preset *preset // the preset from which Command was taken; nil for a configured command
}

// The values of Setup.Permissions. They apply only to the agents of presets.
const (
	// PermissionsAuto means PermissionsAll for jobs that cannot write outside their workspace, and
	// PermissionsEdits for all other jobs.
	PermissionsAuto = "auto"
	// PermissionsAll allows every action: only the sandbox restricts the agent.
	PermissionsAll = "all"
	// PermissionsEdits allows edits in the workspace; the agent itself refuses every other action.
	PermissionsEdits = "edits"
)

// NewSetup adds the settings of the named preset to s; settings that s already has take precedence.
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
			if len(s.Reply) == 0 {
				s.Reply = p.reply
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
	if s.Pushing != nil {
		if err := errors.Join(s.Pushing.Open.Check(), s.apart()); err != nil {
			return s, err
		}
	}
	job := Job{Steps: []Step{{Name: Prompted, Argv: s.Command}}, Env: s.Env, Timeout: belay.Duration(s.Timeout),
		Grace: belay.Duration(s.Grace)}
	if err := errors.Join(s.Command.Check(), job.Check()); err != nil {
		return s, err
	}
	if len(s.Resume) > 0 {
		if err := s.Resume.Check(); err != nil {
			return s, fmt.Errorf("the command that continues a conversation (agent.resume_command): %w", err)
		}
	}
	if len(s.Reply) > 0 && s.preset == nil {
		if err := s.Reply.Check(); err != nil {
			return s, fmt.Errorf("the command that continues a conversation with a message (agent.reply_command): %w",
				err)
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

// apart returns an error if agents would get a variable of the command that runs after a push.
func (s *Setup) apart() error {
	for _, name := range s.Pushing.Env {
		if slices.Contains(s.Env, name) || slices.Contains(process.Basics(), name) {
			return invalid("agent.push_env: agents get the variable %s too, and only the command of agent.push_open "+
				"may have it", name)
		}
	}
	return nil
}

func (s *Setup) repositories() *Repositories {
	return &Repositories{Own: s.Repo, Named: s.Repos, Credentials: s.Credentials, Elsewhere: s.Elsewhere}
}

// Check returns an error for a prompt that cannot be run or is not allowed.
func (s *Setup) Check(p *Prompt) error {
	if err := s.Command.CheckPrompt(p.Text); err != nil {
		return err
	}
	for _, t := range []Template{s.Resume, s.Reply} {
		if len(t) > 0 && !t.piped() {
			if err := t.CheckPrompt(p.Text); err != nil {
				return err
			}
		}
	}
	if p.Timeout < 0 {
		return invalid("a timeout must not be negative")
	}
	if p.Push != nil {
		if err := s.Pushing.check(p.Push, p.Repo); err != nil {
			return err
		}
	}
	if err := p.MaxCost.Check(); err != nil {
		return err
	}
	if p.MaxCost != nil && s.Output == OutputPlain {
		return invalid("max_cost needs an agent with structured output (agent.output)")
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

// command returns the command for a prompt: its arguments, its standard input and the variables to
// add to its environment. walled says that the sandbox prevents the command from writing outside
// its workspace.
func (s *Setup) command(p *Prompt, t talk, walled bool) (argv []string, stdin []byte, env map[string]string) {
	template := s.Command
	switch {
	case t.continued && t.message != "":
		template = s.Reply
	case t.continued:
		template = s.Resume
	}
	if s.preset != nil {
		free := s.permits(walled)
		template = s.preset.withMode(template, free, p.Stream)
		if free {
			env = s.preset.freeEnv
		}
	}
	if t.continued && t.message == "" {
		return template.Continue(p.Text, t.session), nil, env
	}
	argv, stdin = template.Fill(t.message, t.session)
	if t.continued && s.preset != nil {
		stdin = input(t.id, t.session, t.message)
	}
	return argv, stdin, env
}

// permits reports whether an agent of a preset may use every tool. If permits returns false, the
// agent may only edit files.
func (s *Setup) permits(walled bool) bool {
	switch s.Permissions {
	case PermissionsAll:
		return true
	case PermissionsEdits:
		return false
	}
	return walled
}

// Unpermitted says why the agent may only edit files; empty if the agent may use every tool.
func (s *Setup) Unpermitted(walled bool) string {
	switch {
	case s.preset == nil, s.permits(walled):
		return ""
	case s.Permissions == PermissionsEdits:
		return "the agent may edit files and nothing else (agent.permissions)"
	}
	return "the agent may edit files and nothing else, because jobs can write outside of their workspaces here; " +
		"agent.permissions: all permits the rest all the same"
}

// named reports whether Belay chooses the id of each conversation and passes the id to the agent.
func (s *Setup) named() bool {
	return slices.ContainsFunc(s.Command, func(a string) bool { return strings.Contains(a, sessionPlace) })
}

// Assistant runs prompts on this host.
type Assistant struct {
	Setup
	// Workspaces makes the checkouts.
	Workspaces *workspace.Manager
	// Limits, Seal and Walls have the same meaning as in Runner.
	Limits process.Limits
	Seal   bool
	Walls
	// Walled says that jobs on this machine cannot write outside their workspaces. Probe determines
	// the value.
	Walled bool
	// PrepareTimeout has the same meaning as in Runner.
	PrepareTimeout time.Duration
	// Tool is the path of the program belay for the jobs, with which agents ask people; empty if the
	// jobs have none.
	Tool string
	// Save is the interval at which the changes of a working agent are stored with its execution; 0
	// means that they are stored only when the agent ends.
	Save time.Duration
	// Getenv returns the variables that Env names; nil means os.Getenv.
	Getenv func(string) string
	// Log gets messages for the operator; nil means slog.Default().
	Log *slog.Logger
}

// Run is the workflow function of a prompt. If the worker stops, the run stores its changes with
// the execution, and the next run starts with these changes. If the worker dies, the next run
// starts with the changes that the dead run stored last or, on the same host, with all changes in
// the dead run's workspace.
func (a *Assistant) Run(ctx context.Context, p Prompt) (Answer, error) {
	if err := a.Check(&p); err != nil {
		return Answer{}, belay.Permanent(err)
	}
	if p.Push != nil { // an agent whose work could not be pushed need not run
		if err := workspace.CheckPushLogin(p.Repo, a.Pushing.Credentials); err != nil {
			return Answer{}, err
		}
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
		name:  p.place(ctx),
		allow: a.repositories().Check, foreign: p.Repo != a.Repo,
		observe: t, secrets: a.secrets, log: workflow.Output(ctx, OutputLog), saver: newSaver(a.Save, t.log),
	}
	if a.Output != OutputPlain {
		m := &meter{prices: a.Prices, limit: p.MaxCost.lower(a.MaxCost), log: workflow.Output(ctx, UsageLog)}
		b.saver.meter, t.reader.meter = m, m
	}
	defer b.remove(ctx)
	answer, err := a.answer(ctx, &p, b, t)
	if cerr := errors.Join(b.log.Close(), t.close(), b.saver.meter.close()); err == nil && cerr != nil {
		err = cerr
	}
	return answer, belay.WithOutput(err, answer)
}

func (a *Assistant) secrets() (map[string]string, error) { return secrets(a.Env, a.getenv()) }

func (a *Assistant) getenv() func(string) string {
	if a.Getenv == nil {
		return os.Getenv
	}
	return a.Getenv
}

func (a *Assistant) answer(ctx context.Context, p *Prompt, b *bench, t *transcript) (answer Answer, err error) {
	switch {
	case p.Continues != nil:
		b.at = checkout{Commit: p.Continues.Commit, Branch: p.Continues.Branch}
	case b.job.Repo != "":
		if b.at, err = workflow.Step(ctx, "checkout", b.checkout); err != nil {
			return answer, err
		}
	}
	if b.saver.now, _, err = workflow.State[interrupted](ctx); err != nil {
		return answer, err
	}
	if err := b.inherit(ctx); err != nil {
		return answer, err
	}
	if p.Continues != nil {
		if err := b.takeOver(ctx, p.Continues); err != nil {
			return answer, err
		}
	}
	b.saver.before = b.saver.now
	b.saver.homes = len(a.Reply) > 0
	if b.saver.meter != nil {
		if err := b.saver.recover(ctx); err != nil {
			return answer, err
		}
		if err := b.saver.meter.refuse(); err != nil {
			return answer, belay.Permanent(err)
		}
	}
	answer, turns, err := a.converse(ctx, p, b, t)
	if err != nil || p.Push == nil {
		return answer, err
	}
	allowed, err := a.approved(ctx, p, b, t, &answer, turns)
	if err == nil && allowed {
		answer.Pushed, err = a.push(ctx, p, b, &answer)
	}
	return answer, err
}

// take runs one turn.
func (a *Assistant) take(ctx context.Context, p *Prompt, b *bench, t *transcript, now *turn) (Answer, error) {
	before := &b.saver.before
	resumed := before.within(now.number)
	if resumed && before.Asked != nil { // the turn has ended, but its end was not stored
		return Answer{Commit: b.at.Commit, Branch: b.at.Branch, Asked: before.Asked}, nil
	}
	b.more = make(map[string]string)
	if !before.none() {
		b.last = before.Changes
	}
	if resumed {
		b.more["BELAY_RESUMED"] = "1"
	}
	b.saver.turn = now.number
	b.clerk = newClerk(ctx, *now, t)
	result, err := a.talkTo(ctx, p, b, t, now)
	answer := t.answer(result)
	answer.Commit, answer.Branch, answer.Resumed, answer.Notes = b.at.Commit, b.at.Branch, resumed, b.notes
	err = errors.Join(err, answer.charge(ctx, b.saver, t.reader.turns))
	if q := b.clerk.question(); q != nil && ctx.Err() == nil && !answer.OverCost { // else the answer would be useless
		if answer.Session != "" {
			b.saver.session = answer.Session // an agent may have chosen another id than Belay
		}
		if err := b.saver.ask(ctx, result.Changes, q); err != nil {
			return answer, err
		}
		answer.Asked = q
		return answer, nil
	}
	if b.salvaged && errors.Is(context.Cause(ctx), workflow.ErrReleased) {
		err = errors.Join(err, b.saver.released(ctx, result.Changes))
	}
	if err = answer.judge(ctx, err); answer.OverCost && ctx.Err() == nil {
		err = belay.Permanent(b.saver.meter.exceeded())
	}
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, b.saver.restart(ctx))
	}
	return answer, err
}

// talkTo starts a conversation with the agent, or continues the conversation of an earlier run.
func (a *Assistant) talkTo(ctx context.Context, p *Prompt, b *bench, t *transcript, now *turn) (StepResult, error) {
	w, err := b.workspace(ctx)
	if err != nil {
		return StepResult{}, err
	}
	talk, err := a.talk(ctx, p, b, w, now)
	if err != nil {
		return StepResult{}, err
	}
	if talk.continued && len(a.Reply) > 0 { // the conversation has the answers, so each question is a new one
		b.clerk.turn.replies = nil
	}
	argv, stdin, env := a.command(p, talk, a.Walled)
	b.stdin, b.saver.session = stdin, talk.session
	b.saver.meter.continues(talk.continued, p.earlier())
	maps.Copy(b.more, env)
	if a.Tool != "" {
		b.more["BELAY_BIN"] = a.Tool
		if a.preset != nil {
			argv = a.preset.withTools(argv, a.Tool, desk.Path(w.Tmp))
		}
	}
	t.talk = talk
	if !a.named() && !talk.continued {
		t.talk.session = ""
	}
	return b.step(ctx, 0, Step{Name: Prompted, Argv: argv})
}

// judge returns the error of a run whose command has ended with err; nil if the agent succeeded.
// The execution's policy decides whether the run is retried; the error is permanent only if a retry
// would fail in the same way.
func (r *Answer) judge(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return err
	case r.TimedOut:
		return fmt.Errorf("the agent ran out of time after %s",
			(time.Duration(r.DurationMS) * time.Millisecond).Round(time.Millisecond))
	case r.ExitCode < 0 && err != nil: // the code is unknown, and the error says why
		return fmt.Errorf("the agent was lost: %w", err)
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

// denial returns the error text for tools that the agent was not permitted to use. A retry would
// fail in the same way.
func (r *Answer) denial() string {
	return "the agent was not permitted to use " + strings.Join(r.Denied, ", ") + "; see agent.permissions"
}
