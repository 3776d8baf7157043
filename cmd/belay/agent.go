package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/desk"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/internal/socket"
)

// agentFlags are the flags of belay agent and belay agent reply.
type agentFlags struct {
	prompt client.Prompt
	detach bool
	push   bool
	branch string
	labels []string
	tokens int64
	usd    float64
}

func (a *app) agentCommand() *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   "agent PROMPT",
		Short: "Send a prompt to the agent of a server, reply to it and answer its questions",
		Long: `Send a prompt to the agent of a server (belay serve with agent.preset or agent.command),
show what the agent does, and print its answer. With --detach print the id of the job
and return at once. With - the prompt is read from standard input.

  belay agent "fix the failing test" --repo https://example.org/app.git
  belay agent reply ID "now update the changelog"
  belay agent answer ID "yes, delete it"

The server is the one that --server names, or the one that runs on the data directory.
An interrupt ends only this command; belay cancel ID ends the job. The exit code is 0 if
the agent succeeded, 1 if it failed, 124 if it timed out and 130 if it was cancelled.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := textOf(c.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			f.prompt.Text = text
			return a.prompting(named(c), &f, func(ctx context.Context, s *client.Client) (belay.ExecutionID, error) {
				return s.Ask(ctx, f.prompt)
			})
		},
	}
	f.register(c)
	c.Flags().StringVar(&f.prompt.Repo, "repo", "",
		"the repository to work on, as `URL` or a path on the server; by default the server's repository")
	c.Flags().StringVar(&f.prompt.Ref, "ref", "", "the branch, tag or commit to check out; by default HEAD")
	c.Flags().StringSliceVar(&f.labels, "label", nil,
		"a label of the job, as `name=value`, for lists and for belay usage")
	c.AddCommand(a.agentReplyCommand(), a.agentAnswerCommand(), a.agentAskCommand(), a.agentReportCommand(),
		a.agentCheckpointCommand())
	return c
}

func (f *agentFlags) register(c *cobra.Command) {
	c.Flags().BoolVarP(&f.detach, "detach", "d", false, "print the id of the job and do not wait for its end")
	c.Flags().BoolVar(&f.push, "push", false,
		"push the work to a branch when the agent has succeeded, if the server allows it (agent.push)")
	c.Flags().StringVar(&f.branch, "branch", "",
		"with --push: the `name` of the branch; by default belay/JOB, and {{job}} stands for the id of the job")
	c.Flags().DurationVar(&f.prompt.Timeout, "timeout", 0,
		"the time limit of the agent, from its start; 0 means the server's time limit")
	c.Flags().Int64Var(&f.tokens, "max-tokens", 0,
		"the largest `number` of tokens that the job may use; 0 means the server's limit, which it can only lower")
	c.Flags().Float64Var(&f.usd, "max-usd", 0,
		"the largest cost of the job in US dollars, as `amount`; 0 means the server's limit, which it can only lower")
	c.Flags().StringVar(&f.prompt.Key, "key", "",
		"an idempotency `key`: a second call with the same key finds the first job")
}

func (a *app) agentReplyCommand() *cobra.Command {
	var f agentFlags
	c := &cobra.Command{
		Use:   "reply ID MESSAGE",
		Short: "Continue the conversation and the work of a job",
		Long: `Continue the conversation of a job, with the work that it has left, in a new job. The job
must have ended. If it still runs, this command waits for its end. A job can be
continued once: reply to the newest job of a conversation.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := textOf(c.InOrStdin(), args[1])
			if err != nil {
				return err
			}
			f.prompt.Text = text
			return a.prompting(named(c), &f, func(ctx context.Context, s *client.Client) (belay.ExecutionID, error) {
				id, err := a.executionID(ctx, args[0])
				if err != nil {
					return id, err
				}
				if err := a.idle(ctx, s, id); err != nil {
					return id, err
				}
				return s.Reply(ctx, id, f.prompt)
			})
		},
		ValidArgsFunction: a.completeIDs,
	}
	f.register(c)
	return c
}

func (a *app) agentAnswerCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "answer ID TEXT",
		Short: "Answer the question of an agent",
		Long: `Answer the newest question of the agent that runs the job; belay agent and belay get show the
question. The first answer counts; another answer to the same question is refused.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := textOf(c.InOrStdin(), args[1])
			if err != nil {
				return err
			}
			return a.serving(c.Context(), func(s *client.Client) error {
				id, err := a.executionID(c.Context(), args[0])
				if err != nil {
					return err
				}
				return s.AnswerAs(c.Context(), id, text, actor())
			})
		},
		ValidArgsFunction: a.completeIDs,
	}
}

func (a *app) agentAskCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "ask QUESTION",
		Short: "Inside a job: ask a person, and print the answer",
		Long: `Ask a person from inside a job, and print the answer. The job ends while it waits. After
the answer the agent is started again; this command then prints the answer at once, if
it is called with the same question. Each answer is printed once: the same question asked
again is a new question.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path := os.Getenv(desk.Variable)
			if path == "" {
				return errNoDesk
			}
			text, err := desk.Ask(c.Context(), path, args[0])
			if c.Context().Err() != nil { // the job ends and waits for the answer
				return exitCode(130)
			}
			if err == nil {
				fmt.Fprintln(a.out, text)
			}
			return err
		},
	}
}

func (a *app) agentReportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report TEXT",
		Short: "Inside a job: show people a line about what the agent does",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path := os.Getenv(desk.Variable)
			if path == "" {
				return errNoDesk
			}
			return desk.Report(c.Context(), path, args[0])
		},
	}
}

func (a *app) agentCheckpointCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "checkpoint",
		Short: "Inside a job: store the changes in the workspace with the execution, now",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			path := os.Getenv(desk.Variable)
			if path == "" {
				return errNoDesk
			}
			return desk.Checkpoint(c.Context(), path)
		},
	}
}

// textOf returns a text of the command line; "-" means standard input.
func textOf(in io.Reader, text string) (string, error) {
	if text != "-" {
		return text, nil
	}
	raw, err := io.ReadAll(io.LimitReader(in, belay.MaxPayload))
	return string(raw), err
}

// serving calls f with a client of the server that --server names, or of the server that runs on the
// data directory.
func (a *app) serving(ctx context.Context, f func(*client.Client) error) error {
	if a.store != "" {
		return usage("an agent belongs to a server: give --server instead of --store")
	}
	if a.server == "" {
		if in, err := process.InJob(os.Getpid()); in || err != nil {
			return &belay.Error{Code: belay.CodeForbidden, Message: "a job may not act for the user of its server"}
		}
		if err := socket.Check(a.data); err != nil {
			return err
		}
		dir, err := filepath.Abs(a.data)
		if err != nil {
			return err
		}
		a.server = "unix:" + filepath.Join(dir, "belay.sock")
	}
	s, err := a.dial(ctx)
	if err != nil {
		return err
	}
	return closing(s, f(s))
}

// idle waits until a job has ended. It returns at once if the agent waits for an answer.
func (a *app) idle(ctx context.Context, s *client.Client, id belay.ExecutionID) error {
	said := false
	for {
		x, err := s.Await(ctx, id, 2*time.Second)
		if err != nil || x.State.Terminal() || x.State == belay.Waiting {
			return err
		}
		if !said {
			said = true
			fmt.Fprintf(a.err, "belay: job %s still works; waiting for its end\n", id)
		}
	}
}

// prompting submits a job and shows it until its end.
func (a *app) prompting(ctx context.Context, f *agentFlags,
	submit func(context.Context, *client.Client) (belay.ExecutionID, error)) error {
	switch {
	case f.push:
		f.prompt.Push = &client.Push{Branch: f.branch}
	case f.branch != "":
		return usage("--branch belongs to --push")
	}
	if err := f.limit(); err != nil {
		return err
	}
	var err error
	if f.prompt.Labels, err = pairs("label", f.labels); err != nil {
		return err
	}
	return a.serving(ctx, func(s *client.Client) error {
		id, err := submit(ctx, s)
		if belay.CodeOf(err) == belay.CodeNotFound {
			err = fmt.Errorf("%w (a server runs agents if its configuration has agent.preset or agent.command)", err)
		}
		switch {
		case err != nil:
			return err
		case f.detach && a.output == "json":
			return screen.PrintJSON(a.out, map[string]belay.ExecutionID{"job_id": id})
		case f.detach:
			fmt.Fprintln(a.out, id)
			return nil
		}
		fmt.Fprintf(a.err, "belay: job %s\n", id)
		return a.attend(ctx, s, id)
	})
}

// limit sets the largest cost of the job.
func (f *agentFlags) limit() error {
	switch {
	case f.tokens < 0:
		return usage("--max-tokens must not be negative")
	case !(f.usd >= 0): // also NaN
		return usage("--max-usd must not be negative")
	case f.tokens == 0 && f.usd == 0:
		return nil
	}
	f.prompt.MaxCost = &client.MaxCost{Tokens: f.tokens, USD: belay.USDOf(f.usd)}
	if f.usd > 0 && f.prompt.MaxCost.USD == 0 {
		return usage("--max-usd is below a billionth of a dollar")
	}
	return nil
}

// attend shows what the agent of a job does until the job has ended, and then prints its answer.
func (a *app) attend(ctx context.Context, s *client.Client, id belay.ExecutionID) error {
	var asked int
	progress := actionsOf(s, id, func(_ time.Time, kind, text string) error {
		if kind == "question" {
			return nil // showQuestion prints it with the command that answers it
		}
		_, err := fmt.Fprintf(a.err, "  %s\n", text)
		return err
	})
	for {
		x, err := s.Execution(ctx, id)
		if err == nil {
			err = progress.copy(ctx)
		}
		if err == nil && x.State == belay.Waiting {
			err = a.showQuestion(ctx, s, id, &asked)
		}
		if err == nil && x.State.Terminal() {
			return a.showAnswer(&x)
		}
		if err == nil {
			_, err = s.Events(ctx, belay.EventQuery{Execution: id, After: x.Seq, Limit: 1, Wait: logPause})
		}
		if ctx.Err() != nil {
			fmt.Fprintf(a.err, "belay: the job continues: belay watch %s, or belay cancel %s\n", id, id)
			return exitCode(130)
		}
		if err != nil {
			return err
		}
	}
}

// showQuestion prints the newest question, unless it has been printed before.
func (a *app) showQuestion(ctx context.Context, s *client.Client, id belay.ExecutionID, asked *int) error {
	q, err := newestQuestion(ctx, s, id)
	if err != nil || q == nil || q.Number == *asked {
		return err
	}
	*asked = q.Number
	fmt.Fprintf(a.err, "belay: the agent asks: %s\nbelay: answer with: belay agent answer %s \"…\"\n",
		screen.Line(q.Text), id)
	return nil
}

// askedBy prints the question for which an agent waits.
func (a *app) askedBy(ctx context.Context, r reader, e *belay.Execution) error {
	if e.Workflow != agent.Prompted || e.State != belay.Waiting {
		return nil
	}
	q, err := newestQuestion(ctx, r, e.ID)
	if err != nil || q == nil {
		return err
	}
	fmt.Fprintf(a.out, "the agent asks: %s\nanswer with:    belay agent answer %s \"…\"\n\n", screen.Line(q.Text), e.ID)
	return nil
}

// newestQuestion returns the newest question of a job; nil if its agent has not asked.
func newestQuestion(ctx context.Context, r reader, id belay.ExecutionID) (*agent.Question, error) {
	var text strings.Builder
	if err := copyChunks(ctx, &text, r, id, agent.QuestionLog); err != nil {
		if belay.CodeOf(err) == belay.CodeNotFound {
			err = nil
		}
		return nil, err
	}
	var newest *agent.Question
	for line := range strings.Lines(text.String()) {
		var q agent.Question
		if json.Unmarshal([]byte(line), &q) == nil && q.Number > 0 {
			newest = &q
		}
	}
	return newest, nil
}

// showAnswer prints the answer of an agent, and returns the exit code of the command.
func (a *app) showAnswer(x *belay.Execution) error {
	var answer agent.Answer
	_ = json.Unmarshal(x.Output, &answer) // a job without an output has no answer
	if a.output == "json" {
		if err := screen.PrintJSON(a.out, x); err != nil {
			return err
		}
	} else {
		if text := strings.TrimRight(screen.Text(answer.Text), "\n"); text != "" {
			fmt.Fprintln(a.out, text)
		}
		if c := answer.Changes; c != nil && c.Files+c.Commits > 0 {
			fmt.Fprintf(a.err, "belay: %s, %s changed (+%d -%d)\n", screen.Plural(c.Commits, "commit"),
				screen.Plural(c.Files, "file"), c.Insertions, c.Deletions)
		}
	}
	if b := answer.Pushed; b != nil && a.output != "json" {
		fmt.Fprintf(a.err, "belay: pushed %s to the branch %s %s\n", b.Commit, screen.Line(b.Branch),
			screen.Line(b.URL))
	}
	switch x.State {
	case belay.Succeeded:
		return nil
	case belay.Cancelled:
		return exitCode(130)
	default:
	}
	if x.Error != nil {
		fmt.Fprintf(a.err, "belay: %s; to print its output: belay logs %s\n", screen.Line(x.Error.Message), x.ID)
	}
	if answer.TimedOut || x.Error != nil && x.Error.Class == belay.ClassTimeout {
		return exitCode(124)
	}
	return exitCode(1)
}

// actions shows each tool that an agent uses, and each line that it reports, from the lines of its
// progress that are written to it.
type actions struct {
	show func(kind, text string) error
	rest []byte
}

// actionsOf returns a copy of the progress of an agent's execution that shows its actions.
func actionsOf(r reader, id belay.ExecutionID, show func(at time.Time, kind, text string) error) *logCopy {
	l := &logCopy{r: r, id: id, name: agent.ProgressLog}
	l.w = &actions{show: func(kind, text string) error { return show(l.at, kind, text) }}
	return l
}

// Write implements [io.Writer].
func (w *actions) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, whole := strings.Cut(string(w.rest), "\n")
		if !whole {
			return len(p), nil
		}
		w.rest = []byte(rest)
		var action agent.Progress
		if json.Unmarshal([]byte(line), &action) != nil {
			continue
		}
		text := action.Text
		switch action.Kind {
		case "tool":
			text = action.Name + " " + text
		case "report", "question":
		default:
			continue
		}
		if err := w.show(action.Kind, screen.Line(firstOf(text))); err != nil {
			return 0, err
		}
	}
}

// firstOf returns the first line of a text, shortened for a terminal.
func firstOf(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > 100 {
		return string(runes[:99]) + "…"
	}
	return line
}
