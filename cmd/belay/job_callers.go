package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/internal/peer"
	"github.com/belaydev/belay/internal/server"
)

// jobs prepares the runners of jobs in this process. It returns the data by which the server
// recognises requests that come from jobs.
func (s *serving) jobs(ctx context.Context) (server.Jobs, error) {
	s.built = s.builtins()
	if err := s.built.prepare(ctx, s.cfg.Concurrency, s.agents); err != nil {
		return server.Jobs{}, err
	}
	return recogniseJobs(s.cfg.Agents() && !s.cfg.Agent.Local, s.built.ofCommands, s.built.ofAgents), nil
}

// recogniseJobs returns the data by which the server recognises requests that come from jobs of
// these kinds. elsewhere says that agents run on other machines.
func recogniseJobs(elsewhere bool, kinds ...*jobs) server.Jobs {
	var all server.Jobs
	var users []process.Range
	for _, j := range kinds {
		if j == nil {
			continue
		}
		if all.Judge == nil {
			all.Judge = &peer.Judge{InJob: process.InJob}
		}
		switch {
		case j.Workspaces.Users != nil:
			users = append(users, j.users)
		case j.Isolation == process.PIDNamespace || j.Isolation == process.UserNamespace:
			all.Judge.Shared = true
		default:
			all.Judge.Shared = true
			all.Demand = "jobs run here as the user of the server, and without namespaces the server cannot tell their " +
				"processes from other processes of this user"
		}
	}
	if all.Judge != nil {
		all.Judge.Users = ofJobs(users)
	}
	if elsewhere {
		all.Demand = "agents run on other machines (agent.local is false), and their jobs could reach this server"
	}
	return all
}

// ofJobs returns a function that reports whether a system user belongs to jobs: the user is in one
// of the ranges, or in the range from which other processes of this machine take users for jobs.
func ofJobs(ranges []process.Range) func(uid uint32) bool {
	all := append([]process.Range{{First: ownUsers, Count: mostUsers}}, ranges...)
	return func(uid uint32) bool {
		return slices.ContainsFunc(all, func(r process.Range) bool { return uid >= r.First && uid-r.First < r.Count })
	}
}

// runsForOthers reports whether a worker runs jobs that other users submit: it runs a built-in
// workflow, and takes executions from a queue other than the internal queues of belay run.
func runsForOthers(spec *belay.WorkerSpec) bool {
	builtin := slices.ContainsFunc(spec.Workflows, func(r belay.Registration) bool {
		return r.Workflow == agent.Workflow || r.Workflow == agent.Prompted
	})
	own := len(spec.Queues) > 0 && !slices.ContainsFunc(spec.Queues, func(q string) bool {
		return !strings.HasPrefix(q, agent.RunQueue)
	})
	return builtin && !own
}

// closeMemory prevents jobs of the same user from reading the memory and the environment of this
// process.
func closeMemory(log *slog.Logger) {
	if err := process.Undumpable(); err != nil && !errors.Is(err, host.ErrUnsupported) {
		log.Warn("other processes of this user can read the memory of this process", "error", err)
	}
}
