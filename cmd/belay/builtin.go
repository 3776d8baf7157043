package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/worker"
)

// builtins makes the workers of a process for the built-in kinds: commands and
// agents. They are prepared first, then asked for. What holds their jobs is what the configuration
// says, in every process
// that runs any, as far as this machine can; the log says what came of it.
type builtins struct {
	backend belay.Backend
	cfg     *config.Config
	// dir is the data directory; workspaces are below it unless the configuration
	// names another place.
	dir  string
	log  *slog.Logger
	name string // of the process, for people
	// secrets are files that the process reads, beside those of the configuration.
	secrets []string

	queues        []string
	labels        map[string]string
	ttl           time.Duration
	grace, unwind time.Duration

	ofCommands, ofAgents *jobs // nil where there are none of the kind
}

// prepare finds out what holds jobs, so many commands at a time and agents if there is a
// setup of them.
func (b *builtins) prepare(ctx context.Context, commands int, setup *agent.Setup) (err error) {
	if commands > 0 {
		if b.ofCommands, err = jobRunner(ctx, b.cfg, b.dir, b.log, nil, commands, b.secrets...); err != nil {
			return fmt.Errorf("start the worker: %w", err)
		}
	}
	if setup != nil {
		if b.ofAgents, err = jobRunner(ctx, b.cfg, b.dir, b.log, setup.Command, b.cfg.Agent.Concurrency,
			b.secrets...); err != nil {
			return fmt.Errorf("start the agents: %w", err)
		}
	}
	return nil
}

// commands is a worker for so many commands at a time.
func (b *builtins) commands(ctx context.Context, most int) *worker.Worker {
	r := b.ofCommands
	r.sweep(ctx, b.log)
	// Others submit them: what they may ask for is said here, and is nothing of the
	// environment unless somebody says so.
	r.Env, r.Repos = append([]string{}, b.cfg.Agent.Env...), repositories(b.cfg)
	w := b.worker(b.name, most)
	worker.Register(w, agent.Workflow, r.Run)
	return w
}

// agents is a worker for agents. The function that it gives says at the end how
// long setting up their workspaces was in each other's way.
func (b *builtins) agents(ctx context.Context, setup agent.Setup) (w *worker.Worker, over func()) {
	a, r := b.cfg.Agent, b.ofAgents
	r.sweep(ctx, b.log)
	if why := setup.Unpermitted(r.Walled); why != "" {
		b.log.Warn("the agent is bounded", "why", why)
	}
	w = b.worker("agents of "+b.name, a.Concurrency)
	worker.Register(w, agent.Prompted, (&agent.Assistant{
		Setup: setup, Workspaces: r.Workspaces, Seal: r.Seal, Limits: r.Limits, Walls: r.Walls, Walled: r.Walled,
		PrepareTimeout: r.PrepareTimeout, Save: a.Save, Log: b.log,
	}).Run)
	return w, func() {
		if locks := r.Workspaces.Locks(); locks.Count > 0 {
			b.log.Info("the agents have stopped", "workspaces", locks.Count,
				"setup_lock_p50", locks.Held50, "setup_lock_p99", locks.Held99, "setup_lock_wait_p99", locks.Waited99)
		}
	}
}

func (b *builtins) worker(name string, most int) *worker.Worker {
	return worker.New(&reported{Backend: b.backend, log: b.log}, worker.Options{
		Name: name, Version: version, Concurrency: most, Queues: b.queues, Labels: b.labels, TTL: b.ttl,
		Grace: b.grace, Unwind: b.unwind, Log: b.log,
	})
}

// jobs is what runs jobs, and the users that it gives them, if any.
type jobs struct {
	*agent.Runner
	users process.Range
}

// sweep removes what jobs of dead processes have left. Those of living processes are
// left alone, and this one has none yet.
func (j *jobs) sweep(ctx context.Context, log *slog.Logger) {
	if err := j.Workspaces.Sweep(ctx, func(string) bool { return true }); err != nil {
		log.Warn("remove what earlier jobs left", "error", err)
	}
}

// jobRunner is what runs jobs as the configuration says, most of them at a time. The
// command is what all of them start; none if each names its own.
func jobRunner(ctx context.Context, cfg *config.Config, data string, log *slog.Logger, command []string, most int,
	secrets ...string) (*jobs, error) {
	a := cfg.Agent
	dir := a.WorkspaceDir
	if dir == "" {
		dir = filepath.Join(data, "workspaces")
	}
	spaces, err := openSpaces(dir)
	if err != nil {
		return nil, err
	}
	spaces.Debounce, spaces.CryptKey, spaces.KeepHome = a.FetchDebounce, a.CryptKey, a.KeepHome
	spaces.Credentials = credentials(cfg)
	spaces.Quota = workspace.Quota{Bytes: a.Disk, Files: int64(a.Files)}
	spaces.Limits = process.Limits{Pids: a.Processes, Memory: a.Memory, CPU: float64(a.CPU)}
	spaces.PrepareTimeout = a.Prepare
	users, keeper, err := jobUsers(ctx, a, log, command, most)
	if err != nil {
		return nil, err
	}
	j := &jobs{
		Runner: &agent.Runner{Workspaces: spaces, Seal: a.Seal, Limits: spaces.Limits, PrepareTimeout: a.Prepare},
	}
	if users != nil {
		spaces.Users, spaces.Keeper, j.users = lent(users), keeper, users.Users()
	}
	if j.Walls, err = wallsOf(cfg, sightOf(cfg, data, command, users != nil, secrets...)); err != nil {
		return nil, err
	}
	spaces.Hidden, spaces.Readable = j.Walls.Hidden, j.Walls.Readable
	return j, try(ctx, j.Runner, log)
}

// try finds out what holds jobs here, by holding one. Root in a container may not be
// able to give jobs users of their own: then jobs that were to have them are not run.
// Nor are any where a wall is not to be had that the configuration names.
func try(ctx context.Context, r *agent.Runner, log *slog.Logger) error {
	held, err := r.Probe(ctx)
	var missing *process.WallError
	switch {
	case err == nil:
		r.Walled = held.Walled
		log.Info("jobs are held", "held_by", held.By)
		for _, why := range lacking(r, held.Walls) {
			log.Warn("jobs are held less than they could be", "why", why)
		}
	case ctx.Err() != nil:
	case errors.As(err, &missing):
		return fmt.Errorf("jobs cannot be held as %s says; without that setting they run all the same: %w",
			settingOf[missing.Wall], err)
	case r.Workspaces.Users != nil && withoutUsers(ctx, r):
		return fmt.Errorf("jobs cannot have users of their own here (%w): with agent.users: none they run as the "+
			"user of this process, root", err)
	default:
		log.Warn("a trial of what holds jobs has failed, and so may they", "error", err)
	}
	return nil //nolint:nilerr // a job that cannot be held says so itself
}

// settingOf is what asks for a wall.
var settingOf = map[process.Wall]string{process.WallNetwork: "agent.egress", process.WallHidden: "agent.hidden"}

// lacking says what jobs do not have of the walls that they have elsewhere.
func lacking(r *agent.Runner, w process.Walls) (why []string) {
	if os.Geteuid() == 0 && r.Workspaces.Users == nil {
		why = append(why, "they run as root: agent.users is none")
	}
	if r.Seal && w.Seal == "" {
		why = append(why, "they can write wherever their user may: this machine has no user namespaces and no Landlock")
	}
	if w.Landlock == 0 {
		why = append(why, "this machine has no Landlock: signals and abstract sockets of the same user are not "+
			"closed to them everywhere")
	}
	return why
}

// withoutUsers tells whether a job could be run here that has no user of its own.
func withoutUsers(ctx context.Context, r *agent.Runner) bool {
	users, keeper := r.Workspaces.Users, r.Workspaces.Keeper
	defer func() { r.Workspaces.Users, r.Workspaces.Keeper = users, keeper }()
	r.Workspaces.Users, r.Workspaces.Keeper = nil, nil
	_, err := r.Probe(ctx)
	return err == nil
}

const (
	// ownUsers is where the users of jobs begin that nobody has named: beyond those
	// that systems give to people, services and containers.
	ownUsers = 0x70000000
	// mostUsers is how many they can be at most: four for each job at a time.
	mostUsers = 4 * 10_000
	// userJournal is where all processes of this machine note who has which user.
	userJournal = "/run/belay/users"
)

// jobUsers are the users of which each workspace is given one, if that is wanted and we
// may, and another that the base clones have. nil means that all run as we do.
func jobUsers(ctx context.Context, a config.Agent, log *slog.Logger, command []string, most int) (*process.Pool,
	*host.User, error) {
	users := process.Range{First: ownUsers, Count: uint32(max(256, 4*most))}
	switch {
	case a.Users == "none", a.Users == "auto" && os.Geteuid() != 0:
		return nil, nil, nil
	case a.Users != "auto":
		var err error
		if users, err = usersOf(a.Users); err != nil {
			return nil, nil, err
		}
	}
	if err := closed(command); err != nil {
		return nil, nil, err
	}
	keeper, users, err := reserve(users)
	if err != nil {
		return nil, nil, err
	}
	pool, err := process.OpenPool(userJournal, users)
	if err != nil {
		return nil, nil, err
	}
	if err := pool.Sweep(ctx); err != nil {
		log.Warn("free the users of earlier jobs", "error", err)
	}
	return pool, keeper, nil
}

// usersOf reads FIRST-LAST, which the configuration has checked.
func usersOf(text string) (users process.Range, err error) {
	var last uint32
	_, err = fmt.Sscanf(text, "%d-%d", &users.First, &last)
	users.Count = last - users.First + 1
	return users, err
}

// lent gives the users of a pool to workspaces.
func lent(pool *process.Pool) workspace.Users {
	return func(ctx context.Context, id string) (host.User, func(context.Context) error, error) {
		seat, err := pool.Take(ctx, id)
		if err != nil {
			return host.User{}, nil, err
		}
		return seat.User, seat.Free, nil
	}
}
