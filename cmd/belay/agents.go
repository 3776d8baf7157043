package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/agentapi"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/server"
	"github.com/belaydev/belay/worker"
)

// agentSetup is how agents are run, as the configuration says.
func agentSetup(c *config.Config) (agent.Setup, error) {
	a := c.Agent
	preset := a.Preset
	if preset == "none" {
		preset = ""
	}
	repo := a.Repo
	if info, err := os.Stat(repo); err == nil && info.IsDir() {
		if repo, err = filepath.Abs(repo); err != nil {
			return agent.Setup{}, err
		}
	}
	s, err := agent.NewSetup(preset, agent.Setup{
		Command: a.Command, Output: a.Output, Env: a.Env, Repo: repo, Repos: a.Repos, Timeout: a.Timeout, Grace: a.Grace,
	})
	if err != nil {
		return s, fmt.Errorf("the agent cannot be run as it is configured: %w", err)
	}
	return s, nil
}

// salvageTime is how long a job that was cancelled may take beyond its grace,
// to keep what it has changed.
const salvageTime = 20 * time.Second

// addAgents has the server answer for agents and run them.
func (s *serving) addAgents(o *server.Options) error {
	setup, err := agentSetup(s.cfg)
	if err != nil {
		return err
	}
	a := s.cfg.Agent
	model := a.Preset
	if model == "none" {
		model = "agent"
	}
	o.Agents = &agentapi.Options{
		Setup: setup, Capacity: a.Concurrency, QueueDepth: a.QueueDepth, JobTTL: a.JobTTL, ChatTimeout: a.ChatTimeout, Model: model, Log: s.log,
		Policy: belay.Policy{
			MaxAttempts: a.Attempts, NoDeadLetters: !a.DeadLetters, OnLost: belay.OnLost(a.OnLost),
			CancelGrace: belay.Duration(a.Grace + salvageTime),
		},
	}
	o.Services = append(o.Services, func(ctx context.Context) error { return s.assist(ctx, setup) })
	return nil
}

// assist runs agents in this process, and stops well within the grace.
func (s *serving) assist(ctx context.Context, setup agent.Setup) error {
	dir := s.cfg.Agent.WorkspaceDir
	if dir == "" {
		dir = filepath.Join(s.cfg.DataDir(), "workspaces")
	}
	spaces, err := workspace.Open(dir)
	if err != nil {
		return fmt.Errorf("start the agents: %w", err)
	}
	spaces.Debounce = s.cfg.Agent.FetchDebounce
	if err := spaces.Sweep(ctx, func(string) bool { return true }); err != nil {
		s.log.Warn("remove what earlier agents left", "error", err)
	}
	w := worker.New(&reported{Backend: s.backend, log: s.log}, worker.Options{
		Name: fmt.Sprintf("agents of belay serve (pid %d)", os.Getpid()), Version: version, Concurrency: s.cfg.Agent.Concurrency,
		Grace: s.cfg.Grace * 2 / 3, Unwind: max(s.cfg.Grace/4, time.Second), Log: s.log,
	})
	worker.Register(w, agent.Prompted, (&agent.Assistant{Setup: setup, Workspaces: spaces}).Run)
	if err := w.Run(ctx); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return &belay.Error{Code: belay.CodeUnavailable, Message: "the server's own agents were drained"}
	}
	return nil
}
