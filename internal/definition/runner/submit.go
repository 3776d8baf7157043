package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/definition"
)

// submission returns the child of a task or item, without its key.
func (x *execution) submission(ctx context.Context, t *task, item int) (belay.Submission, error) {
	s := belay.Submission{Workflow: t.Uses, Queue: t.Queue, WorkerLabels: t.WorkerLabels, Policy: policyOf(t.Task)}
	s.Target, s.Concurrency, s.Requires = t.Target, t.Concurrency, t.Requires
	with, err := x.with(ctx, t, item)
	if err != nil {
		return s, err
	}
	input := with
	switch t.Uses {
	case "command":
		s.Workflow = agent.Workflow
		input, err = jobOf(with, t.Retry.Attempts > 1)
	case "workflow":
		m, _ := with.(map[string]any)
		if d := m["document"]; d != nil {
			s.Workflow, input = "", m["input"]
			if s.Document, _ = d.(string); s.Document == "" {
				return s, fmt.Errorf("%w: the name of the document must be a text", errOutput)
			}
			break
		}
		name, ok := m["name"].(string)
		if !ok || name == "" {
			return s, fmt.Errorf("%w: the name of the workflow must be a text", errOutput)
		}
		if name == "http" {
			return s, fmt.Errorf("%w: use uses: http instead, which keeps data apart from secrets", errOutput)
		}
		s.Workflow, input = name, m["input"]
		if v := m["version"]; v != nil {
			s.Version = fmt.Sprint(v)
		}
	}
	if err != nil {
		return s, err
	}
	here := t.Kind != nil && (t.Uses != "workflow" || s.Workflow == Workflow)
	if own := x.run.Assignment().Queue; s.Queue == "" && here && x.runner.Private != "" &&
		strings.HasPrefix(own, x.runner.Private) {
		s.Queue = own
	}
	if input != nil {
		if s.Input, err = json.Marshal(input); err != nil {
			return s, fmt.Errorf("%w: with: %w", errOutput, err)
		}
	}
	return s, nil
}

func policyOf(t *definition.Task) belay.Policy {
	return belay.Policy{
		MaxAttempts: t.Retry.Attempts, BackoffBase: t.Retry.Backoff,
		BackoffCap: max(t.Retry.MaxBackoff, t.Retry.Backoff), RunTimeout: t.Timeout,
	}
}

// jobOf returns the job of a command. retry says that the document wants further attempts.
func jobOf(with any, retry bool) (*agent.Job, error) {
	m, _ := with.(map[string]any)
	j := &agent.Job{Retry: retry}
	step := agent.Step{Name: "command"}
	wrong := func(key, what string) (*agent.Job, error) {
		return nil, fmt.Errorf("%w: %s must be %s", errOutput, key, what)
	}
	switch run := m["run"].(type) {
	case string:
		step.Argv = []string{"sh", "-c", run}
	case []any:
		for _, a := range run {
			switch a := a.(type) {
			case string:
				step.Argv = append(step.Argv, a)
			case int, float64, bool:
				step.Argv = append(step.Argv, fmt.Sprint(a))
			default:
				return wrong("an argument of run", "a text")
			}
		}
	default:
		return wrong("run", "a text or a list of texts")
	}
	j.Steps = []agent.Step{step}
	var ok bool
	if v := m["repo"]; v != nil {
		if j.Repo, ok = v.(string); !ok {
			return wrong("repo", "a text")
		}
	}
	if v := m["ref"]; v != nil {
		if j.Ref, ok = v.(string); !ok {
			return wrong("ref", "a text")
		}
	}
	if list, ok := m["env"].([]any); ok {
		for _, v := range list {
			j.Env = append(j.Env, fmt.Sprint(v))
		}
	}
	if text, ok := m["grace"].(string); ok {
		if err := j.Grace.UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("%w: grace: %w", errOutput, err)
		}
	}
	j.Capture, _ = m["capture"].(string)
	if err := j.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errOutput, err)
	}
	return j, nil
}
