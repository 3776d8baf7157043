package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/definition/runner"
	"github.com/belaydev/belay/internal/httptask"
	"github.com/belaydev/belay/internal/screen"
)

// submitFlags are the flags of belay submit.
type submitFlags struct {
	input, key, queue, version, due string
	triggerPayload                  string
	onLost, onNoWorker, idempotency string
	document                        string
	priority, attempts              int
	labels, workerLabels            []string
	timeout                         time.Duration
	budget                          costFlag
	external, wait                  bool
	job                             runFlags
	own                             ownGates
	notify                          notifyFlags
}

func (a *app) submitCommand() *cobra.Command {
	var f submitFlags
	c := &cobra.Command{
		Use:   "submit [WORKFLOW] [flags] [-- COMMAND [ARG…]]",
		Short: "Submit an execution to be run by a worker",
		Long: `Submit an execution and print its id. A worker that has registered the workflow runs
the execution; the worker may start later. With --key, which is an idempotency key, a
second submission returns the execution of the first. With --idempotency content, a
second submission of the same workflow, version, input and policy does so, unless the
first has failed or was cancelled.

  belay submit review --input '{"pr": 17}' --key pr-17
  belay submit review --input '{"pr": 17}' --idempotency content
  belay submit review --input @change.json --wait
  belay submit review --input '{"pr": 17}' --trigger-payload @hook.json
  belay submit command --repo https://example.org/app.git -- make test
  belay submit http --input '{"url": "https://api.example.org/v1/items"}' --wait
  belay submit --document nightly --input '{"day": "2026-11-20"}'
                                          a stored document; nightly@3 is its version 3
  belay submit loop --external            for an owner from outside: a program that is no
                                          worker and locks the execution

With --wait belay submit waits until the execution has ended, and prints its output.
The exit code is 0 if the execution succeeded, 1 if it failed, 124 if it timed out and
130 if it was cancelled; for the workflow "command" it is the exit code of the command.`,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.submission(args, c.ArgsLenAtDash(), c.InOrStdin())
			if err != nil {
				return err
			}
			return a.submit(named(c), s, f.wait)
		},
	}
	f.register(a, c)
	c.Flags().StringVar(&f.key, "key", "",
		"an idempotency `key`: a second submission with the same key returns the first execution")
	c.Flags().StringVar(&f.idempotency, "idempotency", "",
		"content: return the execution of the same workflow, version, input and policy that has not ended or has "+
			"succeeded, if there is one")
	c.Flags().StringVar(&f.triggerPayload, "trigger-payload", "",
		"data that has caused the submission, at most 64 KiB: `JSON`, @FILE, or - for standard input. "+
			"belay get -o json shows it; the run does not get it")
	c.Flags().StringVar(&f.due, "due", "",
		"the time before which the execution does not run: a `time` like 2026-11-20T08:00:00Z, or a duration from "+
			"now like 15m")
	c.Flags().BoolVar(&f.wait, "wait", false, "wait until the execution has ended, and print its output")
	_ = c.RegisterFlagCompletionFunc("idempotency", cobra.FixedCompletions([]string{"content"},
		cobra.ShellCompDirectiveNoFileComp))
	return c
}

// register adds the flags that describe executions.
func (f *submitFlags) register(a *app, c *cobra.Command) {
	c.Flags().StringVar(&f.input, "input", "", "the input, as `JSON`, @FILE, or - for standard input")
	c.Flags().StringVar(&f.document, "document", "",
		"run this stored document, `NAME` or NAME@VERSION, instead of a WORKFLOW; the execution keeps its version")
	c.Flags().StringVar(&f.queue, "queue", "", "the queue of the execution; by default the queue named default")
	c.Flags().StringVar(&f.version, "workflow-version", "",
		"let only workers run the execution that have registered this version of the workflow")
	c.Flags().IntVar(&f.priority, "priority", 0,
		"the priority, from -100 to 100; executions of a higher priority run first")
	c.Flags().StringSliceVar(&f.labels, "label", nil,
		"a label for people and filters, as `name=value`; may be repeated")
	c.Flags().StringSliceVar(&f.workerLabels, "worker-label", nil,
		"a label that a worker must have to run the execution, as `name=value`; may be repeated")
	c.Flags().DurationVar(&f.timeout, "timeout", 0,
		"the time limit of the execution, counted from the start of its first run; 0 means no limit")
	c.Flags().Var(&f.budget, "budget",
		"the budget, as a number of `tokens` such as 12.5: when the cost of the execution and its descendants reaches "+
			"it, they are paused until belay budget raises it")
	c.Flags().IntVar(&f.attempts, "attempts", 0,
		"the number of failed attempts after which the execution fails; 0 means 3")
	c.Flags().StringVar(&f.onLost, "on-lost", "",
		"the `policy` if the owner of the execution crashes: requeue (another owner continues from the last "+
			"checkpoint) or fail. The default is requeue; if --external is set, the default is fail")
	c.Flags().StringVar(&f.onNoWorker, "on-no-worker", "",
		"the `policy` if no connected worker can run the execution: wait (for such a worker) or fail. The default is wait")
	c.Flags().BoolVar(&f.external, "external", false,
		"let no worker run the execution: an owner from outside (a program that is no worker) locks it")
	c.Flags().StringVar(&f.job.repo, "repo", "",
		"with a COMMAND: the repository to clone, as `URL` or a path on the worker's machine")
	c.Flags().StringVar(&f.job.ref, "ref", "", "with a COMMAND: the branch, tag or commit to check out")
	c.Flags().StringSliceVar(&f.job.env, "env", nil,
		"with a COMMAND: pass the worker's environment variable `NAME` to the command; the worker's agent.env must "+
			"list it")
	f.own.register(a, c)
	f.notify.register(c)
	_ = c.RegisterFlagCompletionFunc("document", func(c *cobra.Command, _ []string, typed string) ([]string,
		cobra.ShellCompDirective) {
		return a.completeStored(c, nil, typed)
	})
	_ = c.RegisterFlagCompletionFunc("on-no-worker", cobra.FixedCompletions([]string{"wait", "fail"},
		cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("on-lost", cobra.FixedCompletions([]string{"requeue", "fail"},
		cobra.ShellCompDirectiveNoFileComp))
}

// submission returns the submission that the command line describes, and checks the input of a built-in workflow. dash
// is the number of arguments before --, or negative if there is no --.
func (f *submitFlags) submission(args []string, dash int, stdin io.Reader) (belay.Submission, error) {
	s, err := f.described(args, dash, stdin)
	if err == nil {
		err = checkInput(s.Workflow, s.Input)
	}
	return s, err
}

// described returns the submission that the command line describes, with an input that may contain expressions.
func (f *submitFlags) described(args []string, dash int, stdin io.Reader) (belay.Submission, error) {
	var command []string
	if dash >= 0 {
		args, command = args[:dash], args[dash:]
	}
	workflow := ""
	switch {
	case f.document != "" && (len(args) > 0 || command != nil):
		return belay.Submission{}, usage("give a WORKFLOW or --document, not both")
	case f.document != "":
		if _, err := documentRef(f.document); err != nil {
			return belay.Submission{}, err
		}
	case len(args) != 1:
		return belay.Submission{}, usage("name one workflow, or a stored document with --document; there are %d names",
			len(args))
	default:
		workflow = args[0]
	}
	s := belay.Submission{
		ID: belay.ExecutionID(embedded.NewID()), Workflow: workflow, Document: f.document, Version: f.version,
		Queue: f.queue, Priority: f.priority, Actor: actor(), Trace: traceOf(),
		IdempotencyKey: f.key, Idempotency: belay.Idempotency(f.idempotency), External: f.external,
		Policy: belay.Policy{
			MaxAttempts: f.attempts, Timeout: belay.Duration(f.timeout), OnLost: belay.OnLost(f.onLost),
			OnNoWorker: belay.OnNoWorker(f.onNoWorker),
		},
	}
	if f.external && f.onLost == "" {
		s.Policy.OnLost = belay.Fail
	}
	s.Budget = f.budget.budget
	var err error
	if s.Labels, err = pairs("label", f.labels); err != nil {
		return s, err
	}
	if s.WorkerLabels, err = pairs("worker-label", f.workerLabels); err != nil {
		return s, err
	}
	if s.Gates, err = f.own.gates(); err != nil {
		return s, err
	}
	if s.Notify, err = f.notify.notifications(); err != nil {
		return s, err
	}
	if s.DueAt, err = moment("due", f.due, time.Now()); err != nil {
		return s, err
	}
	if err := f.triggered(&s, stdin); err != nil {
		return s, err
	}
	if command != nil || f.job.repo != "" || f.job.ref != "" || len(f.job.env) > 0 {
		err = f.command(&s, command)
	} else {
		s.Input, err = payload("input", f.input, belay.MaxPayload, stdin)
	}
	return s, err
}

// triggered sets the payload of the trigger, and returns an error if a flag about the trigger is wrong.
func (f *submitFlags) triggered(s *belay.Submission, stdin io.Reader) (err error) {
	if f.input == "-" && f.triggerPayload == "-" {
		return usage("standard input is either the --input or the --trigger-payload, not both")
	}
	s.TriggerPayload, err = payload("trigger-payload", f.triggerPayload, belay.MaxTriggerPayload, stdin)
	return err
}

// checkInput returns an error if a built-in workflow cannot run with an input, or must not store it.
func checkInput(workflow string, input json.RawMessage) error {
	if workflow == httptask.Workflow {
		return httptask.CheckInput(input)
	}
	return agent.CheckInput(workflow, input)
}

// command makes s a submission for the built-in workflow command: argv, the repository and the
// variables become its input.
func (f *submitFlags) command(s *belay.Submission, argv []string) error {
	if s.Workflow != agent.Workflow {
		return usage("a COMMAND, --repo, --ref and --env are for the workflow %s; give %s an --input", agent.Workflow,
			quoted(s.Workflow))
	}
	if f.input != "" {
		return usage("give --input or a COMMAND after --, not both")
	}
	j := &agent.Job{Repo: f.job.repo, Ref: f.job.ref, Env: f.job.env}
	if j.Repo == "none" { // none means an empty workspace, as for belay run
		j.Repo = ""
	}
	if len(argv) > 0 {
		j.Steps = []agent.Step{{Name: "command", Argv: argv}}
	}
	if err := j.Check(); err != nil {
		return err
	}
	if s.Labels[agent.LabelCommand] == "" {
		if s.Labels == nil {
			s.Labels = make(map[string]string)
		}
		s.Labels[agent.LabelCommand] = screen.Brief(commandLine(j), 60)
	}
	input, err := json.Marshal(j)
	s.Input = input
	return err
}

// payload returns the JSON of a flag: the text itself, the content of @FILE, or standard input for -. The JSON
// has at most most bytes.
func payload(flag, text string, most int, stdin io.Reader) (json.RawMessage, error) {
	data := []byte(text)
	var err error
	switch {
	case text == "":
		return nil, nil
	case text == "-":
		data, err = io.ReadAll(io.LimitReader(stdin, belay.MaxPayload+1))
	case text[0] == '@':
		data, err = readFile(text[1:])
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", flag, err)
	}
	data = bytes.TrimSpace(data)
	if len(data) > most {
		return nil, &belay.Error{
			Code: belay.CodePayloadTooLarge, Message: fmt.Sprintf("the %s has more than %d bytes", flag, most),
		}
	}
	if !json.Valid(data) {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Message: "the " + flag + " is not JSON: " + quoted(screen.Line(string(data))) +
				"; in JSON a text needs quotes, as in '\"text\"'",
		}
	}
	return data, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, belay.MaxPayload+1))
}

// pairs reads the arguments name=value of a flag.
func pairs(flag string, args []string) (map[string]string, error) {
	var m map[string]string
	for _, arg := range args {
		k, v, ok := strings.Cut(arg, "=")
		if !ok || k == "" {
			return nil, usage("--%s %s is not of the form name=value", flag, quoted(arg))
		}
		if m == nil {
			m = make(map[string]string)
		}
		m[k] = v
	}
	return m, nil
}

// moment reads the time of a flag, or a duration from now on. It returns the zero time for an empty text.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usage("--%s %s is neither a time like 2026-11-20T08:00:00Z nor a duration like 15m", flag,
			quoted(text))
	}
	return t, nil
}

func (a *app) submit(ctx context.Context, s belay.Submission, wait bool) error {
	b, err := a.backend(ctx, fmt.Sprint("belay ", ctx.Value(commandName{})))
	if err != nil {
		return err
	}
	if a.server == "" {
		if err := checkDocument(ctx, b, &s); err != nil {
			return closing(b, err)
		}
	}
	out, err := b.Submit(ctx, s)
	if err == nil {
		err = out[0].Err
	}
	if err == nil && out[0].Warning != "" {
		fmt.Fprintln(a.err, "belay:", screen.Line(out[0].Warning))
	}
	switch {
	case err != nil:
	case wait:
		err = a.waitFor(ctx, b, out[0])
	case a.output == "json":
		err = screen.PrintJSON(a.out, out[0])
	default:
		fmt.Fprintln(a.out, out[0].ID)
	}
	return closing(b, err)
}

// checkDocument returns an error if a stored document cannot run with the input. A server makes the same check itself.
func checkDocument(ctx context.Context, b belay.Backend, s *belay.Submission) error {
	if s.Document == "" {
		return nil
	}
	ref, err := documentRef(s.Document)
	if err != nil {
		return err
	}
	d, err := b.Document(ctx, ref.Name, ref.Version)
	if err != nil {
		return nil //nolint:nilerr // the submission says what is wrong, or repeats an earlier one
	}
	input, err := json.Marshal(runner.Input{Document: d.Text, Hash: d.Hash, File: d.String(), Input: s.Input})
	if err != nil {
		return err
	}
	return runner.CheckInput(input)
}

// waitFor waits for the end of the submitted execution and prints its output.
func (a *app) waitFor(ctx context.Context, b belay.Backend, s belay.Submitted) error {
	fmt.Fprintln(a.err, "belay:", s.ID)
	var away outage
	for {
		e, err := b.Await(ctx, s.ID, time.Minute)
		if err == nil && e.State.Terminal() {
			e, err = b.Execution(ctx, s.ID) // reads the whole execution, since Await leaves out parts of it
		}
		switch {
		case ctx.Err() != nil:
			fmt.Fprintf(a.err, "belay: the execution continues without belay submit; follow it with: belay watch %s\n",
				s.ID)
			return exitCode(130)
		case err != nil && a.retryLater(ctx, &away, err):
		case err != nil:
			return err
		case e.State.Terminal():
			return a.printResult(&e)
		default:
			away = outage{}
		}
	}
}

// printResult prints the output or error of an execution that has ended, and returns the exit code
// as an error, or nil for 0.
func (a *app) printResult(e *belay.Execution) error {
	switch {
	case a.output == "json":
		if err := screen.PrintJSON(a.out, e); err != nil {
			return err
		}
	case len(e.Output) > 0:
		fmt.Fprintf(a.out, "%s\n", screen.Escaped(e.Output))
	}
	code := 0
	if e.Workflow == agent.Workflow {
		var r agent.Result
		// if the output is not the result of a job, r.ExitCode stays 0 and exitCodeOf uses the
		// state and the error
		_ = json.Unmarshal(e.Output, &r)
		code = exitCodeOf(e, r.ExitCode)
	} else if e.State != belay.Succeeded {
		if code = exitCodeOf(e, 0); code == 125 {
			code = 1
		}
	}
	if code == 0 {
		return nil
	}
	if e.Error != nil && a.output != "json" {
		fmt.Fprintf(a.err, "belay: %s: %s\n", e.State, screen.Line(e.Error.Message))
	}
	return exitCode(code)
}
