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
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/agentapi"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/host"
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
	a := s.cfg.Agent
	spaces.Debounce, spaces.CryptKey = a.FetchDebounce, a.CryptKey
	spaces.Quota = workspace.Quota{Bytes: a.Disk}
	if spaces.Users, err = s.agentUsers(ctx, setup); err != nil {
		return fmt.Errorf("start the agents: %w", err)
	}
	if err := spaces.Sweep(ctx, func(string) bool { return true }); err != nil {
		s.log.Warn("remove what earlier agents left", "error", err)
	}
	w := worker.New(&reported{Backend: s.backend, log: s.log}, worker.Options{
		Name: fmt.Sprintf("agents of belay serve (pid %d)", os.Getpid()), Version: version, Concurrency: a.Concurrency,
		Grace: s.cfg.Grace * 2 / 3, Unwind: max(s.cfg.Grace/4, time.Second), Log: s.log,
	})
	worker.Register(w, agent.Prompted, (&agent.Assistant{
		Setup: setup, Workspaces: spaces, Seal: a.Seal, Log: s.log,
		Limits: process.Limits{Pids: a.Processes, Memory: a.Memory, CPU: float64(a.CPU)},
	}).Run)
	err = w.Run(ctx)
	if locks := spaces.Locks(); locks.Count > 0 {
		s.log.Info("the agents have stopped", "workspaces", locks.Count,
			"setup_lock_p50", locks.Held50, "setup_lock_p99", locks.Held99, "setup_lock_wait_p99", locks.Waited99)
	}
	if err != nil {
		return err
	}
	s.drained(ctx, "agents")
	return nil
}

const (
	// ownUsers is where the users of agents begin that nobody has named: beyond
	// those that systems give to people, services and containers.
	ownUsers = 0x70000000
	// userJournal is where all servers of this machine note who has which user.
	userJournal = "/run/belay/users"
)

// agentUsers gives each workspace a user of its own, if that is wanted and we may.
// nil means that all run as we do.
func (s *serving) agentUsers(ctx context.Context, setup agent.Setup) (workspace.Users, error) {
	a := s.cfg.Agent
	users := process.Range{First: ownUsers, Count: uint32(max(256, 4*a.Concurrency))}
	switch {
	case a.Users == "none", a.Users == "auto" && os.Geteuid() != 0:
		return nil, nil
	case a.Users == "auto":
		if path := closed(setup.Command); path != "" {
			s.log.Warn("agents run as the user of the server: others may not read the command; install it elsewhere, or set agent.users to none", "path", path)
			return nil, nil
		}
	default:
		var last uint32
		if _, err := fmt.Sscanf(a.Users, "%d-%d", &users.First, &last); err != nil {
			return nil, err // it was checked when it was read
		}
		users.Count = last - users.First + 1
	}
	pool, err := process.OpenPool(userJournal, users)
	if err != nil {
		return nil, err
	}
	if err := pool.Sweep(ctx); err != nil {
		s.log.Warn("free the users of earlier agents", "error", err)
	}
	return func(ctx context.Context, id string) (host.User, func(context.Context) error, error) {
		seat, err := pool.Take(ctx, id)
		if err != nil {
			return host.User{}, nil, err
		}
		return seat.User, seat.Free, nil
	}, nil
}

// closed is the first path of a command that another user than its owner may not
// read, "" if there is none.
func closed(command []string) string {
	paths := append([]string(nil), command...)
	if found, err := exec.LookPath(command[0]); err == nil {
		paths[0] = found
	}
	for _, path := range paths {
		path, err := filepath.EvalSymlinks(path)
		if err != nil || !strings.ContainsRune(path, filepath.Separator) {
			continue // an argument that is no path
		}
		if path, err = filepath.Abs(path); err != nil {
			continue
		}
		want := os.FileMode(0o004)
		for at := path; ; at = filepath.Dir(at) {
			info, err := os.Stat(at)
			if err != nil || info.Mode()&want == 0 {
				return path
			}
			if at == filepath.Dir(at) {
				break
			}
			want = 0o001
		}
	}
	return ""
}
