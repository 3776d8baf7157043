package demo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/internal/datadir"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/worker"
)

// The kinds of notes: messages of a worker to the demo.
const (
	noteReady    = "ready"
	noteOwns     = "owns"
	notePrepared = "prepared"
	noteSkipped  = "skipped"
	noteStarted  = "started"
	noteWrote    = "wrote"
	noteEnded    = "ended"
	noteGone     = "gone" // listen makes this note when the worker's process has ended
)

// note is one line of JSON that a worker of the demo writes for the demo's process.
type note struct {
	Kind string `json:"kind"`
	Step string `json:"step,omitempty"`
	Text string `json:"text,omitempty"`
	// The lease that the worker won, with its secret. When the worker is dead, the demo sends a
	// late write under this lease.
	Execution belay.ExecutionID `json:"execution,omitzero"`
	Worker    belay.WorkerID    `json:"worker,omitzero"`
	Token     belay.Token       `json:"token,omitempty"`
	Secret    []byte            `json:"secret,omitempty"`

	from *workerProcess
}

func (n *note) lease() belay.Lease {
	l := belay.Lease{Execution: n.Execution, Worker: n.Worker, Token: n.Token}
	copy(l.Secret[:], n.Secret)
	return l
}

// Work runs a worker process of a demo. It ends when in ends, so that the worker does not outlive
// the demo, and writes notes to out.
func Work(ctx context.Context, name, queue, dir, version string, in io.Reader, out io.Writer,
	open func(dir string) (*workspace.Manager, error)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	b, err := datadir.Dial(ctx, dir, datadir.Options{
		Purpose: "belay demo, worker " + name, Version: version, InJob: process.InJob,
		Patience: ttl, // the demo runs the engine until all workers have ended
	})
	if err != nil {
		return err
	}
	spaces, err := open(spacesOf(dir, name))
	if err != nil {
		return errors.Join(err, b.Close())
	}
	t := &reporter{Backend: b, out: json.NewEncoder(out)}
	w := worker.New(t, worker.Options{
		Name: name, Queues: []string{queue}, Concurrency: 1, TTL: ttl, Heartbeat: beat, Grace: -1, Version: version,
	})
	runner := &agent.Runner{Workspaces: spaces, Observer: t}
	worker.Register(w, agent.Workflow, runner.Run)
	err = w.Run(ctx)
	return errors.Join(err, b.Close())
}

// spacesOf is the directory for the workspaces of a worker of the demo.
func spacesOf(dir, name string) string { return filepath.Join(dir, "demo-"+name) }

// reporter is the Backend of a worker, and writes notes about the worker's calls and steps.
type reporter struct {
	belay.Backend
	mu   sync.Mutex
	out  *json.Encoder
	step string // the name of the running step
	last string // the last line that the step has written
	half string // the beginning of a line that the step has not ended
}

var _ agent.Observer = (*reporter)(nil)

func (t *reporter) note(n note) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.out.Encode(n); err != nil {
		slog.Warn("write a note to the demo", "error", err) // the demo has ended, and this worker ends soon
	}
}

// OpenWorker writes a note that the worker is connected.
func (t *reporter) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	session, err := t.Backend.OpenWorker(ctx, s)
	if err == nil {
		t.note(note{Kind: noteReady})
	}
	return session, err
}

// Claim writes a note for each lease that the worker has won.
func (t *reporter) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	reply, err := t.Backend.Claim(ctx, r)
	for _, a := range reply.Assignments {
		l := a.Lease
		t.note(note{Kind: noteOwns, Execution: l.Execution, Worker: l.Worker, Token: l.Token, Secret: l.Secret[:]})
	}
	return reply, err
}

// Preparing writes no note, because preparing takes a short time.
func (t *reporter) Preparing(*agent.Job) {}

// Prepared writes a note with the commit that was checked out.
func (t *reporter) Prepared(commit string, _ bool) {
	t.note(note{Kind: notePrepared, Text: commit[:min(len(commit), 12)]})
}

// Skipped writes a note that a finished step does not run again.
func (t *reporter) Skipped(s agent.StepResult) { t.note(note{Kind: noteSkipped, Step: s.Name}) }

// Started writes a note that a step begins.
func (t *reporter) Started(s agent.Step) {
	t.step, t.last, t.half = s.Name, "", ""
	t.note(note{Kind: noteStarted, Step: s.Name})
}

// Wrote writes a note for every line that the step writes.
func (t *reporter) Wrote(_ bool, b []byte) {
	lines := strings.Split(t.half+string(b), "\n")
	t.half = lines[len(lines)-1]
	for _, l := range lines[:len(lines)-1] {
		t.last = l
		t.note(note{Kind: noteWrote, Step: t.step, Text: screen.Brief(l, 200)})
	}
}

// Ended writes a note that says how the step ended and has the step's last line.
func (t *reporter) Ended(s agent.StepResult) {
	text := t.last
	if s.ExitCode != 0 {
		text = "it failed: " + text
	}
	t.note(note{Kind: noteEnded, Step: s.Name, Text: screen.Brief(text, 200)})
}
