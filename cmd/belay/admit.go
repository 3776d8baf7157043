package main

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/httptask"
)

// admissions returns the checks that the server applies to submissions for the built-in workflows.
// They apply to every route and protocol. If the server has the service of agents, that service
// also checks prompts against the configuration.
func (s *serving) admissions() map[string]func(*belay.Submission) error {
	repos := repositories(s.cfg)
	return map[string]func(*belay.Submission) error{
		agent.Prompted: func(x *belay.Submission) error { return agent.CheckInput(x.Workflow, x.Input) },
		agent.Workflow: func(x *belay.Submission) error {
			if s.cfg.Concurrency > 0 && forOwnWorker(x) {
				return agent.AdmitJob(x.Input, &repos)
			}
			return agent.CheckInput(x.Workflow, x.Input)
		},
		httptask.Workflow: s.admitRequest,
	}
}

// forOwnWorker reports whether the worker inside this server may claim the submitted execution. If
// only other workers may claim it, this server does not check the job against its configuration:
// other workers have their own configuration, and the queues of belay run belong to processes of
// belay run.
func forOwnWorker(x *belay.Submission) bool {
	return (x.Queue == "" || x.Queue == "default") && len(x.WorkerLabels) == 0
}
