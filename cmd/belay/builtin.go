package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/internal/retry"
	"github.com/belaydev/belay/worker"
)

// builtins makes the workers with which a process runs the built-in workflows: one worker for
// commands and one for agents. The caller calls the method prepare first, and then commands or
// agents. Jobs run in the sandbox that the configuration selects, as far as this machine can
// provide it; the log says which parts of the sandbox are active.
type builtins struct {
	backend belay.Backend
	cfg     *config.Config
	// dir is the data directory. Workspaces are in a directory below it, unless the configuration
	// names another place.
	dir  string
	log  *slog.Logger
	name string // the name of the process as people read it
	// secrets are files with secrets that the process reads in addition to those that the
	// configuration names. Jobs do not see these files.
	secrets []string

	queues         []string
	labels         map[string]string
	ttl, heartbeat time.Duration
	grace, unwind  time.Duration
	health         *worker.Health // nil if the workers answer no health probes
	broker         string         // the URL of RabbitMQ, or ""

	ofCommands, ofAgents *jobs // nil if this process runs no jobs of that kind
}

// prepare makes the runners of jobs and tests the sandbox. commands is the greatest number of
// commands that run at the same time, or 0 if the process runs no commands; setup is nil if the
// process runs no agents.
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

// commands makes a worker that runs commands; most is the greatest number of commands that run at
// the same time.
func (b *builtins) commands(ctx context.Context, most int) *worker.Worker {
	r := b.ofCommands
	r.sweepAll(ctx, b.log)
	// Other users submit the commands, so the configuration limits the repositories and environment
	// variables that a command may request. Without a setting, a command may request no variable.
	r.Env, r.Repos = append([]string{}, b.cfg.Agent.Env...), repositories(b.cfg)
	w := b.worker(b.name, most)
	worker.Register(w, agent.Workflow, r.Run)
	return w
}

// agents makes a worker that runs agents. When the worker has stopped, the caller calls the
// function over. This function logs how long jobs waited for the lock of their repository, under
// which their workspaces were set up, and how long they had the lock.
func (b *builtins) agents(ctx context.Context, setup agent.Setup) (w *worker.Worker, over func()) {
	a, r := b.cfg.Agent, b.ofAgents
	r.sweepAll(ctx, b.log)
	if why := setup.Unpermitted(r.Walled); why != "" {
		b.log.Warn("the agent is bounded", "why", why)
	}
	w = b.worker("agents of "+b.name, a.Concurrency)
	worker.Register(w, agent.Prompted, (&agent.Assistant{
		Setup: setup, Workspaces: r.Workspaces, Seal: r.Seal, Limits: r.Limits, Walls: r.Walls, Walled: r.Walled,
		PrepareTimeout: r.PrepareTimeout, Tool: r.tool, Save: a.Save, Log: b.log,
	}).Run)
	return w, func() {
		if locks := r.Workspaces.Locks(); locks.Count > 0 {
			b.log.Info("the agents have stopped", "workspaces", locks.Count,
				"setup_lock_p50", locks.Held50, "setup_lock_p99", locks.Held99, "setup_lock_wait_p99", locks.Waited99)
		}
	}
}

func (b *builtins) worker(name string, most int) *worker.Worker {
	return worker.New(newReported(b.backend, b.log), worker.Options{
		Name: name, Version: version, Concurrency: most, Queues: b.queues, Labels: b.labels,
		TTL: b.ttl, Heartbeat: b.heartbeat, Health: b.health,
		Broker: b.broker, Grace: b.grace, Unwind: b.unwind, Log: b.log,
	})
}

// jobs is a runner of jobs. users is the range of system users under which the jobs run; it is
// empty if the jobs run as the user of this process.
type jobs struct {
	*agent.Runner
	users process.Range
	tool  string // the path of this program for jobs; empty if jobs have none
}

// sweep removes the workspaces of processes that have died. It keeps the workspaces of living
// processes, including this process.
func (j *jobs) sweep(ctx context.Context, log *slog.Logger) {
	if err := j.Workspaces.Sweep(ctx, func(string) bool { return true }); err != nil {
		log.Warn("remove the workspaces of earlier jobs", "error", err)
	}
}

// sweepAgain is the delay before the second sweep. Each further delay is twice as long as the delay
// before it, up to sweepLimit.
const (
	sweepAgain = time.Second
	sweepLimit = time.Minute
)

// sweepAll calls sweep, and repeats it in the background until no workspace of a dead process is
// left. A sweep cannot remove a workspace while its changes cannot be saved, or while a running job
// uses the same system user as the dead process's job.
func (j *jobs) sweepAll(ctx context.Context, log *slog.Logger) {
	j.sweep(ctx, log)
	if !j.leftover() {
		return
	}
	go func() {
		for d := sweepAgain; retry.Sleep(ctx, d) && j.leftover(); d = min(2*d, sweepLimit) {
			j.sweep(ctx, log)
		}
	}()
}

// leftover reports whether there is a workspace of a dead process.
func (j *jobs) leftover() bool {
	all, err := j.Workspaces.Garbage(func(string) bool { return true })
	return err != nil || slices.ContainsFunc(all, func(g workspace.Garbage) bool { return g.Kind == workspace.Dead })
}

// jobRunner makes the runner of jobs that the configuration describes. most is the greatest number
// of jobs that run at the same time. command is the command that all jobs start, or nil if each job
// names its own command.
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
		spaces.Users, spaces.Keeper, j.users = usersFrom(users), keeper, users.Users()
	}
	if j.Walls, err = wallsOf(cfg, visibilityOf(cfg, data, command, users != nil, secrets...)); err != nil {
		return nil, err
	}
	if j.tool, err = giveTool(j, dir); err != nil {
		log.Warn("agents cannot ask people", "error", err)
	}
	spaces.Hidden, spaces.Secrets, spaces.Readable = j.Walls.Hidden, j.Walls.Secrets, j.Walls.Readable
	return j, testSandbox(ctx, j.Runner, log)
}

// testSandbox runs a trial job to find out which walls (parts of the sandbox) this machine
// provides, and logs these walls. It returns an error, so that no jobs run, if the machine cannot
// provide a wall that the configuration demands. It also returns an error if the trial job fails
// with a system user of its own but succeeds as the user of this process, as in some containers
// that run as root. This error tells the operator about the setting agent.users: none, with which
// jobs run as root.
func testSandbox(ctx context.Context, r *agent.Runner, log *slog.Logger) error {
	held, err := r.Probe(ctx)
	var missing *process.WallError
	switch {
	case err == nil:
		r.Walled = held.Walled
		log.Info("jobs are isolated", "isolated_by", held.By)
		for _, why := range lacking(r, held.Walls) {
			log.Warn("the sandbox of jobs lacks a wall", "why", why)
		}
	case ctx.Err() != nil:
	case errors.As(err, &missing):
		return fmt.Errorf("this machine cannot isolate jobs as the setting %s requires; without the setting, jobs run "+
			"without that restriction: %w", settingOf[missing.Wall], err)
	case r.Workspaces.Users != nil && withoutUsers(ctx, r):
		return fmt.Errorf("on this machine jobs cannot have users of their own (%w): with agent.users: none jobs "+
			"run as the user of this process, root", err)
	default:
		log.Warn("the trial job of the sandbox has failed, so other jobs may fail too", "error", err)
	}
	return nil //nolint:nilerr // a job whose sandbox cannot be made fails and names the reason
}

// settingOf maps a wall (a restriction) of the sandbox to the configuration key that demands the
// wall.
var settingOf = map[process.Wall]string{process.WallNetwork: "agent.egress", process.WallHidden: "agent.hidden"}

// lacking lists the walls (restrictions) of the sandbox that this machine does not provide.
func lacking(r *agent.Runner, w process.Walls) (why []string) {
	if os.Geteuid() == 0 && r.Workspaces.Users == nil {
		why = append(why, "jobs run as root, because agent.users is none")
	}
	if r.Seal && w.Seal == "" {
		why = append(why, "jobs can write wherever their user may, because this machine has no user namespaces and no "+
			"Landlock")
	}
	if w.Landlock == 0 {
		why = append(why, "this machine has no Landlock, so jobs may be able to use signals and abstract sockets of "+
			"other processes of their user")
	}
	if len(w.Replaceable) > 0 {
		why = append(why, "if these files are replaced while a job runs, the job can read the new files, if its user "+
			"may: "+strings.Join(w.Replaceable, ", "))
	}
	return why
}

// withoutUsers reports whether a trial job succeeds as the user of this process.
func withoutUsers(ctx context.Context, r *agent.Runner) bool {
	users, keeper := r.Workspaces.Users, r.Workspaces.Keeper
	defer func() { r.Workspaces.Users, r.Workspaces.Keeper = users, keeper }()
	r.Workspaces.Users, r.Workspaces.Keeper = nil, nil
	_, err := r.Probe(ctx)
	return err == nil
}

const (
	// ownUsers is the first system user of jobs if the configuration names no range. It is above
	// the users that operating systems give to people, services and containers.
	ownUsers = 0x70000000
	// mostUsers is the greatest number of system users that a runner of jobs reserves: four for each
	// job, and at most 10,000 jobs run at the same time.
	mostUsers = 4 * 10_000
	// userJournal is the directory in which all Belay processes of this machine record which
	// process uses which system user.
	userJournal = "/run/belay/users"
)

// jobUsers returns the pool of system users for workspaces, from which each workspace gets its own
// user, and the user that owns the base clones. If agent.users is none, or if it is auto and this
// process does not run as root, the pool and the user are nil, and jobs run as the user of this
// process.
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
	if err := checkReadable(command); err != nil {
		return nil, nil, err
	}
	keeper, users, err := splitUsers(users)
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

// usersOf reads a range FIRST-LAST of users. Package config has checked the form of the text.
func usersOf(text string) (users process.Range, err error) {
	var last uint32
	_, err = fmt.Sscanf(text, "%d-%d", &users.First, &last)
	users.Count = last - users.First + 1
	return users, err
}

// usersFrom returns a function with which workspaces take users from a pool.
func usersFrom(pool *process.Pool) workspace.Users {
	return func(ctx context.Context, id string) (host.User, func(context.Context) error, error) {
		seat, err := pool.Take(ctx, id)
		if err != nil {
			return host.User{}, nil, err
		}
		return seat.User, seat.Free, nil
	}
}
