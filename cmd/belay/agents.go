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
	"github.com/belaydev/belay/internal/agentapi"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/server"
)

// agentSetup is how agents are run, here or elsewhere, as the configuration says.
func agentSetup(c *config.Config, elsewhere bool) (agent.Setup, error) {
	a := c.Agent
	preset := a.Preset
	if preset == "none" {
		preset = ""
	}
	repos := repositories(c)
	s, err := agent.NewSetup(preset, agent.Setup{
		Command: a.Command, Resume: a.ResumeCommand, Permissions: a.Permissions, Output: a.Output, Env: a.Env,
		Timeout: a.Timeout, Grace: a.Grace,
		Repo: repos.Own, Repos: repos.Named, Credentials: repos.Credentials, Elsewhere: elsewhere,
	})
	if err != nil {
		return s, fmt.Errorf("the agent cannot be run as it is configured: %w", err)
	}
	return s, nil
}

// repositories are those that jobs may ask for.
func repositories(c *config.Config) agent.Repositories {
	r := agent.Repositories{Own: c.Agent.Repo, Named: c.Agent.Repos, Credentials: credentials(c)}
	if info, err := os.Stat(r.Own); err == nil && info.IsDir() {
		if abs, err := filepath.Abs(r.Own); err == nil {
			r.Own = abs
		}
	}
	return r
}

// salvageTime is how long a job that was cancelled may take beyond its grace,
// to keep what it has changed.
const salvageTime = 20 * time.Second

// addAgents has the server answer for agents and, unless that is left to others, run
// them.
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
		o.Services = append(o.Services, func(ctx context.Context) error { return s.assist(ctx, setup) })
	}
	return nil
}

// assist runs agents in this process, and stops well within the grace.
func (s *serving) assist(ctx context.Context, setup agent.Setup) error {
	w, over := s.built.agents(ctx, setup)
	err := w.Run(ctx)
	over()
	if err != nil {
		return err
	}
	s.drained(ctx, "agents")
	return nil
}

// closed refuses a command that the users of jobs may not read: it could only run as
// the user of this process.
func closed(command []string) error {
	path := unreadable(command)
	if path == "" {
		return nil
	}
	return fmt.Errorf("the users of jobs may not read %s, of the agent's command: install it where everybody may, "+
		"or run agents as the user of this process, root, with agent.users: none", path)
}

// unreadable is the first path of a command that another user than its owner may not
// read, "" if there is none. The program is looked up as that user would find it: what
// may not be read is passed over for the next of its name in the PATH.
func unreadable(command []string) string {
	if len(command) == 0 {
		return ""
	}
	paths := append([]string(nil), command...)
	if found, err := exec.LookPath(command[0]); err == nil {
		paths[0] = found
		for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
			next, err := exec.LookPath(filepath.Join(dir, command[0]))
			if err == nil && filepath.Base(command[0]) == command[0] && open(next) {
				paths[0] = next
				break
			}
		}
	}
	for _, path := range paths {
		if path, err := filepath.EvalSymlinks(path); err == nil && strings.ContainsRune(path, filepath.Separator) &&
			!open(path) {
			return path
		}
	}
	return ""
}

// open reports whether every user may read a file and get to it.
func open(path string) bool {
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
