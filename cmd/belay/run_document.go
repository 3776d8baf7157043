package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/definition/runner"
	"github.com/belaydev/belay/internal/httptask"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// labelDocument is the label of the execution of a document that shows its name.
const labelDocument = "document"

// commandFlags are the flags of belay run that do not apply to documents, because each task has its own values.
var commandFlags = []string{"repo", "ref", "step", "env", "timeout", "grace"}

// documentArg returns the file of the document that belay run should run, or "" if it should run a command.
func documentArg(c *cobra.Command, args []string) (string, error) {
	if len(args) != 1 || c.ArgsLenAtDash() >= 0 || !definition.IsFile(args[0]) {
		return "", nil
	}
	for _, name := range commandFlags {
		if c.Flags().Changed(name) {
			return "", usage("--%s is for commands; write the value into the tasks of %s", name, quoted(args[0]))
		}
	}
	return args[0], nil
}

// runDocument runs a document to its end.
func (a *app) runDocument(ctx context.Context, f *runFlags, file string) error {
	doc, text, err := a.document(file)
	if err != nil {
		return err
	}
	if f.key != "" && f.resume {
		return usage("give --key or --resume, not both: --key alone continues the execution of the key")
	}
	in := runner.Input{Document: string(text), Hash: doc.Hash, File: file}
	if f.input != "" {
		if in.Input, err = payload("input", f.input, belay.MaxPayload, a.in); err != nil {
			return err
		}
	}
	if _, err := in.Values(doc); err != nil {
		return err
	}
	gates, err := f.own.gates()
	if err != nil {
		return err
	}
	v := newDocumentView(a, doc, f.isolated)
	s, err := a.openSession(ctx, "belay run "+file, v.view, f.isolated)
	if err != nil {
		return err
	}
	s.runner.Observer = nil // commands have observers of their own; see documentWorkflows
	s.summarize, s.slots = v.summary, documentSlots
	if s.register, err = s.documentWorkflows(doc, v); err == nil {
		var e *belay.Execution
		if e, err = s.submitDocument(ctx, f, &in, doc.Name, gates); err == nil {
			err = s.work(ctx, e)
		}
	}
	return errors.Join(err, s.close())
}

// documentSlots is how many tasks belay run runs at the same time, including the runners of documents.
const documentSlots = 16

// documentWorkflows returns the function that registers the workflows of a document's tasks.
func (s *session) documentWorkflows(doc *definition.Document, v *documentView) (func(w *worker.Worker), error) {
	kinds := map[string]string{} // the kinds of tasks, each with the id of a task
	for _, t := range doc.Tasks {
		kinds[t.Uses] = t.ID
	}
	_, nested := kinds["workflow"] // the tasks of a document that a task starts are not known yet
	prompted, http := func(w *worker.Worker) {}, func(w *worker.Worker) {}
	if id, own := kinds[agent.Prompted]; own || nested {
		assistant, err := s.assistant(cmp.Or(id, "with uses: agent"))
		switch {
		case err == nil:
			prompted = func(w *worker.Worker) { worker.Register(w, agent.Prompted, assistant.Run) }
		case own:
			return nil, err
		default:
			prompted = func(w *worker.Worker) {
				fail := func(context.Context, any) (any, error) { return nil, belay.Permanent(err) }
				worker.Register(w, agent.Prompted, fail)
			}
		}
	}
	if _, own := kinds[httptask.Workflow]; own || nested {
		requests, err := s.requests()
		if err != nil {
			return nil, err
		}
		http = func(w *worker.Worker) { worker.Register(w, httptask.Workflow, requests.Run) }
	}
	return func(w *worker.Worker) {
		root := &runner.Runner{Observer: v, Private: agent.RunQueue}
		worker.Register(w, runner.Workflow, func(ctx context.Context, in runner.Input) (json.RawMessage, error) {
			path := s.taskPath(ctx)
			if path == "" {
				return root.Run(ctx, in)
			}
			nested := &runner.Runner{Observer: v.below(workflow.Execution(ctx), path), Private: agent.RunQueue}
			return nested.Run(ctx, in)
		})
		worker.Register(w, agent.Workflow, func(ctx context.Context, j agent.Job) (agent.Result, error) {
			one := *s.runner
			one.Observer = v.task(s.taskPath(ctx))
			return one.Run(ctx, j)
		})
		prompted(w)
		http(w)
	}, nil
}

// requests returns what sends the HTTP requests of a document, as the configuration of belay worker describes it.
func (s *session) requests() (*httptask.Caller, error) {
	cfg, err := config.Load(config.Sources{File: os.Getenv("BELAY_CONFIG"), Environ: os.Environ()})
	if err != nil {
		return nil, fmt.Errorf("the configuration has errors:\n%w", err)
	}
	return caller(cfg, func() belay.Backend { return s.backend }, slog.Default())
}

// taskPath returns the name of the task that a run belongs to, after the names of the tasks that started the documents
// around it. It is empty for the document of the command line.
func (s *session) taskPath(ctx context.Context) string {
	var path []string
	for id := workflow.Execution(ctx); !id.IsZero() && len(path) <= runner.MaxNesting; {
		e, err := s.backend.Execution(ctx, id)
		if err != nil || e.ParentKey == "" {
			break // after an error, only a part of the prefix of the output is lost
		}
		path, id = append(path, e.ParentKey), e.Parent
	}
	slices.Reverse(path)
	return strings.Join(path, "/")
}

// assistant returns what runs the agents of a document, as the configuration of belay worker describes them.
func (s *session) assistant(task string) (*agent.Assistant, error) {
	cfg, err := config.Load(config.Sources{File: os.Getenv("BELAY_CONFIG"), Environ: os.Environ()})
	if err != nil {
		return nil, fmt.Errorf("the configuration has errors:\n%w", err)
	}
	if !cfg.Agents() {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Message: fmt.Sprintf("task %s needs an agent; name its command in "+
				"BELAY_AGENT_COMMAND, or in "+
				"the file of BELAY_CONFIG as agent.command", task),
		}
	}
	setup, err := agentSetup(cfg, false)
	if err != nil {
		return nil, err
	}
	r := s.runner
	return &agent.Assistant{
		Setup: setup, Workspaces: r.Workspaces, Seal: r.Seal, Limits: r.Limits, Walls: r.Walls, Walled: r.Walled,
		PrepareTimeout: r.PrepareTimeout, Save: cfg.Agent.Save,
	}, nil
}

// submitDocument returns the execution that the command line continues, or submits a new execution.
func (s *session) submitDocument(ctx context.Context, f *runFlags, in *runner.Input, name string,
	gates belay.Gates) (*belay.Execution, error) {
	input, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	return s.submitLine(ctx, f, &belay.Submission{
		Workflow: runner.Workflow, Input: input, Gates: gates, Labels: map[string]string{labelDocument: name},
		Policy: belay.Policy{NoDeadLetters: true, MaxLosses: manyLosses},
	})
}
