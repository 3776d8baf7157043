package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// sweepMost is the time limit of a sweep. A process that still exists so long after SIGKILL waits
// inside the kernel.
const sweepMost = 30 * time.Second

// SweepOrphans kills the processes that ended runs have left on this machine: every process whose
// mark (BELAY_RUN in its environment) names a run for which the function over returns true, and all
// descendants of such a process. It returns the processes that it has killed, in no particular
// order, and an error that wraps [ErrSurvived] if it could not kill a process before ctx ended or
// has no right to kill it.
//
// The function over must return true only for a run whose owner has certainly ended, because the
// mark names the run of a process but does not say whether the run is over. The run that this
// process itself belongs to is never swept.
func SweepOrphans(ctx context.Context, over func(runID string) bool) ([]Orphan, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepMost)
	defer cancel()
	own := os.Getenv(Marker)
	match := func(id string) bool { return id != own && over(id) }
	killed, err := killRuns(ctx, match)
	for _, c := range groupsHere(match) {
		_ = syscall.Rmdir(c.dir) // the kernel refuses to remove a group that is not empty
	}
	if err != nil {
		return killed, fmt.Errorf("sweep orphans: %w", err)
	}
	return killed, nil
}

// killFromOutside kills a tree whose supervisor does not answer or has ended.
func (t *Tree) killFromOutside() error {
	ctx, cancel := context.WithTimeout(context.Background(), slack)
	defer cancel()
	var err error
	if t.isolation == Subreaper {
		if t.cgroup.dir != "" {
			t.cgroup.kill() // also kills processes that have no mark and no ancestor in the run any more
		}
		_, err = killRuns(ctx, func(id string) bool { return id == t.command.ID })
	}
	// if the supervisor is process 1 of a namespace, the kernel then kills all processes of the
	// namespace
	_ = t.supervisor.Process.Kill()
	select {
	case <-t.ended:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("%w: supervisor %d", ErrSurvived, t.supervisor.Process.Pid))
	}
	for _, c := range groupsHere(func(id string) bool { return id == t.command.ID }) {
		c.close()
	}
	return err
}

// killRuns kills the processes of the matching runs until a pass over the whole machine finds no
// such process and all killed processes have ended.
func killRuns(ctx context.Context, match func(id string) bool) ([]Orphan, error) {
	h := killedRuns{killed: make(map[host.Process]string), groups: make(map[string]cgroup)}
	defer h.close()
	for {
		targets, err := find(match)
		if err != nil {
			return h.orphans(), err
		}
		if len(targets) == 0 && h.dead() {
			return h.orphans(), nil
		}
		if !h.kill(targets) {
			return h.orphans(), h.survivors(targets) // this process has no right to kill any of them
		}
		select {
		case <-time.After(killEvery):
		case <-ctx.Done():
			return h.orphans(), h.survivors(targets)
		}
	}
}

// survivors returns an error that names every process that still exists although it should have
// been killed.
func (h *killedRuns) survivors(targets []target) error {
	names := make(map[string]bool)
	for _, p := range targets {
		names[fmt.Sprintf("process %d of run %s", p.PID, p.run)] = true
	}
	for p, run := range h.killed {
		if !dead(p) {
			names[fmt.Sprintf("process %d of run %s", p.PID, run)] = true
		}
	}
	return fmt.Errorf("%w: %s", ErrSurvived, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
}

// killedRuns is the set of processes that one call of killRuns has killed.
type killedRuns struct {
	killed map[host.Process]string // run ids of the killed processes
	groups map[string]cgroup
}

// kill kills the targets and reports whether it could kill at least one.
func (h *killedRuns) kill(targets []target) (could bool) {
	// All targets are stopped first, so that no target can start a process while another target is
	// being killed. Supervisors are killed last, because until then they are the parents of the
	// tree.
	for _, p := range targets {
		if !p.supervisor {
			_ = p.Signal(syscall.SIGSTOP)
		}
	}
	could = len(targets) == 0
	for _, last := range []bool{false, true} {
		for _, p := range targets {
			if p.supervisor != last {
				continue
			}
			err := p.Signal(syscall.SIGKILL)
			if err == nil {
				h.killed[p.identity()] = p.run
			}
			could = could || err == nil || errors.Is(err, os.ErrProcessDone)
		}
	}
	// In cgroup v1 a frozen process dies only after a thaw, so the method kill of a group also
	// thaws the group.
	for _, p := range targets {
		for _, c := range p.groups {
			c.kill()
			h.groups[c.dir] = c
		}
	}
	return could
}

// dead reports whether all killed processes have ended. This needs a check of its own: find does
// not see a process that is exiting, because the kernel has already removed its arguments and its
// environment.
func (h *killedRuns) dead() bool {
	for p := range h.killed {
		if !dead(p) {
			return false
		}
	}
	return true
}

func dead(p host.Process) bool {
	s, err := host.Lookup(p.PID)
	return err != nil || s.Start != p.Start || s.Ended()
}

func (h *killedRuns) orphans() (list []Orphan) {
	for p, run := range h.killed {
		list = append(list, Orphan{RunID: run, Process: p})
	}
	return list
}

func (h *killedRuns) close() {
	for _, c := range h.groups {
		c.close()
	}
}

// target is a process to kill.
type target struct {
	host.Status
	self       host.Process
	run        string
	supervisor bool
	groups     []cgroup
}

func (t target) identity() host.Process {
	p := t.self
	p.PID, p.Start = t.PID, t.Start
	return p
}

// find lists the processes of the matching runs, and all descendants of these processes. It finds
// supervisors by their arguments, and other processes by the run id in their environment (the mark)
// or by their cgroup. It never lists the calling process and its ancestors.
func find(match func(id string) bool) ([]target, error) {
	self, err := host.Self()
	if err != nil {
		return nil, err
	}
	marked, err := host.FindEnv(Marker, match)
	if err != nil {
		return nil, err
	}
	table, err := host.Processes()
	if err != nil {
		return nil, err
	}
	runs := make(map[int]target)
	add := func(s host.Status, run string, supervisor bool) {
		if _, known := runs[s.PID]; !known {
			runs[s.PID] = target{Status: s, self: self, run: run, supervisor: supervisor}
		}
	}
	heads(table, marked, match, add)
	for _, head := range slices.Collect(maps.Values(runs)) {
		for _, s := range host.Descendants(table, head.PID) {
			add(s, head.run, false)
		}
	}
	spare := ancestry(table)
	var targets []target
	for _, t := range runs {
		if !spare[t.PID] && !t.Ended() {
			t.groups = groupsOf(t.PID, t.run)
			targets = append(targets, t)
		}
	}
	return targets, nil
}

// heads adds the processes that belong to a matching run by their own properties: processes with
// the run id in their environment (the mark), supervisors, and processes in the cgroup of a run.
// find then adds the descendants of these processes.
func heads(table []host.Status, marked []host.Found, match func(id string) bool, add func(s host.Status, run string,
	supervisor bool)) {
	marks := make(map[int]host.Found, len(marked))
	for _, f := range marked {
		marks[f.PID] = f
	}
	members := make(map[int]string)
	for _, c := range groupsHere(match) {
		for _, pid := range c.members() {
			members[pid] = c.run()
		}
	}
	for _, s := range table {
		if id, ok := supervises(s.PID); ok && match(id) {
			add(s, id, true)
		} else if f, ok := marks[s.PID]; ok && f.Start == s.Start {
			add(s, f.Value, false)
		} else if run, ok := members[s.PID]; ok {
			add(s, run, false)
		}
	}
}

// supervises reports whether the process pid is a supervisor, and returns the id of its run. It
// reads the arguments of the process, which other users can read; they cannot read the environment
// of a supervisor.
func supervises(pid int) (string, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return "", false
	}
	args := bytes.Split(raw, []byte{0})
	if len(args) < 2 || string(args[0]) != supervisorName || !runID.Match(args[1]) {
		return "", false
	}
	return string(args[1]), true
}

// ancestry returns the pids of this process and all its ancestors.
func ancestry(table []host.Status) map[int]bool {
	parents := make(map[int]int, len(table))
	for _, s := range table {
		parents[s.PID] = s.Parent
	}
	line := make(map[int]bool)
	for pid := os.Getpid(); pid > 0 && !line[pid]; pid = parents[pid] {
		line[pid] = true
	}
	return line
}

// groupsOf lists the cgroups of the run to which the process pid belongs.
func groupsOf(pid int, run string) (dirs []cgroup) {
	for _, h := range hierarchies("/proc/" + strconv.Itoa(pid)) {
		if filepath.Base(h.home) == cgroupPrefix+run {
			dirs = append(dirs, cgroup{hierarchy: h, dir: h.home})
		}
	}
	return dirs
}

// groupsHere lists the cgroups of matching runs, both for freezing and for limits. It searches the
// directories in which supervisors of this process make cgroups.
func groupsHere(match func(id string) bool) (found []cgroup) {
	for _, h := range allHierarchies() {
		dirs, _ := filepath.Glob(filepath.Join(h.place(), cgroupPrefix+"*"))
		for _, dir := range dirs {
			if c := (cgroup{hierarchy: h, dir: dir}); match(c.run()) {
				found = append(found, c)
			}
		}
	}
	return found
}
