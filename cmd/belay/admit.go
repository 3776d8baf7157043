package main

import (
	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// admissions judge what is submitted to the server for the built-in kinds, by whatever
// route. What an agent may do is judged by the service of agents, if there is one.
func (s *serving) admissions() map[string]func(*belay.Submission) error {
	repos := repositories(s.cfg)
	return map[string]func(*belay.Submission) error{
		agent.Prompted: func(x *belay.Submission) error { return agent.CheckInput(x.Workflow, x.Input) },
		agent.Workflow: func(x *belay.Submission) error {
			if s.cfg.Concurrency > 0 && anyones(x) {
				return agent.AdmitJob(x.Input, &repos)
			}
			return agent.CheckInput(x.Workflow, x.Input)
		},
	}
}

// anyones reports whether this server's own worker may be the one to take a submission:
// other workers say themselves what they may work on, and a belay run is its user's.
func anyones(x *belay.Submission) bool {
	return (x.Queue == "" || x.Queue == "default") && len(x.WorkerLabels) == 0
}
