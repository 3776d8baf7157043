package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// The plan has no faults for the worker that runs the commands. The TTL of this worker is so long
// that the worker keeps its leases through every fault of its server, and so short that it must
// freeze its commands during the long outage of the database.
const (
	jobQueue = "commands"
	jobTTL   = 9 * time.Second
	// A command counts as frozen if it writes nothing for at least this time.
	frozen = time.Second
)

// jobs is a belay worker and the commands that it runs from the beginning to the end of the test.
// Each command has two processes: its own, and one that left the command's session.
type jobs struct {
	*world
	proc  *process
	tales []*agentTale
}

func (w *world) newJobs() *jobs {
	w.t.Helper()
	cmd := exec.Command(w.binary, "worker", "--server", w.servers[0].url(), "--data", w.path("jobs"), "--queue",
		jobQueue, "--ttl", jobTTL.String(), "--name", "commands",
		"--agent-users", "none", "--agent-seal=false") // the commands write to the test's files
	cmd.Dir, cmd.Env = w.dir, w.environment()
	p, err := w.starter.start(cmd, w.path("jobs.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	return &jobs{world: w, proc: p}
}

// ticking is the script of each process of a command: the process writes increasing numbers to its
// own file until the test releases it.
const ticking = `n=0; while [ ! -e "$0" ]; do n=$((n+1)); echo "$n $$ $EPOCHREALTIME" >> "$1"; sleep 0.2; done`

// begin submits a command and waits until both of its processes count.
func (j *jobs) begin(ctx context.Context, name string) error {
	script := fmt.Sprintf(`setsid bash -c '%s' %q %q & bash -c '%s' %q %q; wait`,
		ticking, j.release(), j.path(name+".child"), ticking, j.release(), j.path(name+".own"))
	input, err := json.Marshal(agent.Job{
		Steps: []agent.Step{{Name: "tick", Argv: []string{"bash", "-c", script}}}, Grace: belay.Duration(time.Second),
	})
	if err != nil {
		return err
	}
	s := belay.Submission{
		ID: newExecutionID(), Workflow: agent.Workflow, Queue: jobQueue, Input: input, Policy: belay.Policy{
			CancelGrace: belay.Duration(2 * time.Second),
		},
	}
	b := &recorder{j.servers[1%len(j.servers)].client, "submitter of commands", j.history}
	for {
		got, err := b.Submit(ctx, s)
		if err == nil && got[0].Err == nil {
			break
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	j.tales = append(j.tales, &agentTale{Execution: s.ID, Name: name})
	for j.read(name+".own").Numbers == 0 || j.read(name+".child").Numbers == 0 {
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("command %s does not begin: %w", name, err)
		}
	}
	return nil
}

func (j *jobs) release() string { return j.path("released") }

// cancel cancels the newest command.
func (j *jobs) cancel(ctx context.Context) {
	x := j.tales[len(j.tales)-1]
	op := newOp()
	q := belay.Control{Execution: x.Execution, Action: belay.ActionCancel, Actor: "canceller of commands", Op: op,
		Reason: "cancel of a command: " + op.String()}
	b := &recorder{j.servers[2%len(j.servers)].client, q.Actor, j.history}
	for ctx.Err() == nil {
		if _, err := b.Control(ctx, q); err == nil {
			x.Cancelled = true
			return
		}
	}
}

// end lets the commands end, and then stops the worker.
func (j *jobs) end() {
	if err := os.WriteFile(j.release(), nil, 0o600); err != nil {
		j.t.Error(err)
	}
}

func (j *jobs) stop() {
	j.proc.signal(syscall.SIGTERM)
	j.proc.end(30 * time.Second)
}

// tell returns the results of the commands.
func (j *jobs) tell() []*agentTale {
	for _, x := range j.tales {
		for _, file := range []string{x.Name + ".own", x.Name + ".child"} {
			tree := j.read(file)
			x.Trees = append(x.Trees, tree)
			for _, pid := range tree.PIDs {
				if j.ticksStill(pid) {
					x.Alive = append(x.Alive, pid)
				}
			}
		}
	}
	return j.tales
}

// ticksStill reports whether a process exists and belongs to the test.
func (j *jobs) ticksStill(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(line), filepath.Base(j.dir))
}

// read reads the numbers that one process has counted.
func (j *jobs) read(file string) ticks {
	var all ticks
	text, err := os.ReadFile(j.path(file))
	if err != nil {
		return all
	}
	var last time.Time
	for line := range strings.Lines(string(text)) {
		var n, pid int
		var at float64
		if _, err := fmt.Sscanf(line, "%d %d %f\n", &n, &pid, &at); err != nil {
			break // the process is still writing this line
		}
		when := time.UnixMicro(int64(at * 1e6))
		if n != all.Numbers+1 && all.Torn == "" {
			all.Torn = fmt.Sprintf("%d follows %d", n, all.Numbers)
		}
		all.Numbers = n
		if len(all.PIDs) == 0 || all.PIDs[len(all.PIDs)-1] != pid {
			all.PIDs = append(all.PIDs, pid)
		}
		if gap := when.Sub(last); !last.IsZero() && gap > frozen {
			all.Gaps = append(all.Gaps, gap)
		}
		last = when
	}
	return all
}
