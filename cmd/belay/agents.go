package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/server"
)

// agentSetup returns the setup of agents that the configuration describes. elsewhere says that
// workers on other machines run the agents.
func agentSetup(c *config.Config, elsewhere bool) (agent.Setup, error) {
	a := c.Agent
	preset := a.Preset
	if preset == "none" {
		preset = ""
	}
	repos := repositories(c)
	var prices []agent.Price
	for _, text := range a.Prices {
		p, err := agent.ParsePrice(text)
		if err != nil {
			return agent.Setup{}, fmt.Errorf("agent.prices: %w", err)
		}
		prices = append(prices, p)
	}
	var limit *agent.MaxCost
	if a.MaxTokens > 0 || a.MaxUSD > 0 {
		limit = &agent.MaxCost{Tokens: int64(a.MaxTokens), USD: belay.USDOf(float64(a.MaxUSD))}
	}
	s, err := agent.NewSetup(preset, agent.Setup{
		Command: a.Command, Resume: a.ResumeCommand, Reply: a.ReplyCommand,
		Permissions: a.Permissions, Output: a.Output, Env: a.Env,
		Timeout: a.Timeout, Grace: a.Grace, Prices: prices, MaxCost: limit,
		Repo: repos.Own, Repos: repos.Named, Credentials: repos.Credentials, Elsewhere: elsewhere,
		Pushing: pushing(c),
	})
	if err != nil {
		return s, fmt.Errorf("the agent cannot be run as it is configured: %w", err)
	}
	return s, nil
}

// pushing returns what the configuration allows prompts to push; nil if they may not push.
func pushing(c *config.Config) *agent.Pushing {
	a := c.Agent
	if !a.Push {
		return nil
	}
	p := &agent.Pushing{Branches: a.PushBranches, Open: a.PushOpen, Env: a.PushEnv}
	if a.PushCredentials != "" {
		p.Credentials = workspace.CredentialFile(absolute(a.PushCredentials))
	}
	return p
}

// repositories returns the repositories that jobs may request.
func repositories(c *config.Config) agent.Repositories {
	r := agent.Repositories{Own: c.Agent.Repo, Named: c.Agent.Repos, Credentials: credentials(c)}
	if info, err := os.Stat(r.Own); err == nil && info.IsDir() {
		if abs, err := filepath.Abs(r.Own); err == nil {
			r.Own = abs
		}
	}
	return r
}

// salvageTime is how long a cancelled job may take after its grace period to save the changes that
// it made in its workspace.
const salvageTime = 20 * time.Second

// addAgents adds the service of agents to the server's options. Unless the configuration leaves
// agents to workers, the server runs the agents too.
func (s *serving) addAgents(o *server.Options) error {
	setup, err := agentSetup(s.cfg, !s.cfg.Agent.Local)
	if err != nil {
		return err
	}
	a := s.cfg.Agent
	model := a.Preset
	if model == "none" {
		model = "agent"
	}
	o.Agents = &agentapi.Options{
		Setup: setup, QueueDepth: a.QueueDepth, JobTTL: a.JobTTL, ChatTimeout: a.ChatTimeout, Model: model, Log: s.log,
		Policy: belay.Policy{
			MaxAttempts: a.Attempts, NoDeadLetters: !a.DeadLetters, OnLost: belay.OnLost(a.OnLost),
			CancelGrace: belay.Duration(a.Grace + salvageTime),
		},
	}
	if a.Local {
		s.agents = &setup
		o.Agents.Capacity = a.Concurrency
		o.Services = append(o.Services, func(ctx context.Context) error { return s.runAgents(ctx, setup) })
	}
	return nil
}

// runAgents runs the worker for agents in this process. When ctx ends, the worker stops, and runAgents
// returns before the server's grace period is over.
func (s *serving) runAgents(ctx context.Context, setup agent.Setup) error {
	w, over := s.built.agents(ctx, setup)
	err := w.Run(ctx)
	over()
	if err != nil {
		return err
	}
	s.drained(ctx, "agents")
	return nil
}

// checkReadable returns an error if the users of jobs may not read a file of an agent's command,
// because jobs of these users could not run the command.
func checkReadable(command []string) error {
	path := unreadable(command)
	if path == "" {
		return nil
	}
	return fmt.Errorf("the users of jobs may not read %s, which belongs to the agent's command: install it where all "+
		"users may read it, or run agents as the user of this process, root, with agent.users: none", path)
}

// unreadable returns the first file of a command that not every user may read, or "" if every user
// may read all of the command's files. If PATH has several programs of the command's name,
// unreadable checks the first program that every user may read, because a user without special
// rights would run that program.
func unreadable(command []string) string {
	if len(command) == 0 {
		return ""
	}
	paths := append([]string(nil), command...)
	if found, err := exec.LookPath(command[0]); err == nil {
		paths[0] = found
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			next, err := exec.LookPath(filepath.Join(dir, command[0]))
			if err == nil && filepath.Base(command[0]) == command[0] && worldReadable(next) {
				paths[0] = next
				break
			}
		}
	}
	for _, path := range paths {
		if path, err := filepath.EvalSymlinks(path); err == nil && strings.ContainsRune(path, filepath.Separator) &&
			!worldReadable(path) {
			return path
		}
	}
	return ""
}

// worldReadable reports whether every user may read a file and search the directories above it.
func worldReadable(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return false
	}
	want := os.FileMode(0o004)
	for at := path; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil || info.Mode()&want == 0 {
			return false
		}
		if at == filepath.Dir(at) {
			return true
		}
		want = 0o001
	}
}
