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

// The kinds of notes.
const (
	noteReady    = "ready"
	noteOwns     = "owns"
	notePrepared = "prepared"
	noteSkipped  = "skipped"
	noteStarted  = "started"
	noteWrote    = "wrote"
	noteEnded    = "ended"
	noteGone     = "gone" // written by nobody: the process has ended
)

// note is one line that a worker of the demo tells who started it.
type note struct {
	Kind string `json:"kind"`
	Step string `json:"step,omitempty"`
	Text string `json:"text,omitempty"`
	// The lease that the worker won, its secret too: the demo writes with it
	// when the worker is dead.
	Execution belay.ExecutionID `json:"execution,omitzero"`
	Worker    belay.WorkerID    `json:"worker,omitzero"`
	Token     belay.Token       `json:"token,omitempty"`
	Secret    []byte            `json:"secret,omitempty"`

	from *crewMember
}

func (n *note) lease() belay.Lease {
	l := belay.Lease{Execution: n.Execution, Worker: n.Worker, Token: n.Token}
	copy(l.Secret[:], n.Secret)
	return l
}

// Work is a worker process of a demo: it works until in ends, so that it does not outlive
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
		Patience: ttl, // the demo has the engine from before it starts workers to after they end
	})
	if err != nil {
		return err
	}
	spaces, err := open(spacesOf(dir, name))
	if err != nil {
		return errors.Join(err, b.Close())
	}
	t := &talking{Backend: b, out: json.NewEncoder(out)}
	w := worker.New(t, worker.Options{
		Name: name, Queues: []string{queue}, Concurrency: 1, TTL: ttl, Heartbeat: beat, Grace: -1, Version: version,
	})
	runner := &agent.Runner{Workspaces: spaces, Observer: t}
	worker.Register(w, agent.Workflow, runner.Run)
	err = w.Run(ctx)
	return errors.Join(err, b.Close())
}

// spacesOf is where a worker of the demo keeps its workspaces.
func spacesOf(dir, name string) string { return filepath.Join(dir, "demo-"+name) }

// talking is the Backend of a worker that tells what it does.
type talking struct {
	belay.Backend
	mu   sync.Mutex
	out  *json.Encoder
	step string
	last string // what the step wrote last
	half string // the line that it has not ended
}

var _ agent.Observer = (*talking)(nil)

func (t *talking) note(n note) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.out.Encode(n); err != nil {
		slog.Warn("tell the demo", "error", err) // it is gone, and this worker soon
	}
}

// OpenWorker tells that the worker is connected.
func (t *talking) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	session, err := t.Backend.OpenWorker(ctx, s)
	if err == nil {
		t.note(note{Kind: noteReady})
	}
	return session, err
}

// Claim tells what the worker won.
func (t *talking) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	reply, err := t.Backend.Claim(ctx, r)
	for _, a := range reply.Assignments {
		l := a.Lease
		t.note(note{Kind: noteOwns, Execution: l.Execution, Worker: l.Worker, Token: l.Token, Secret: l.Secret[:]})
	}
	return reply, err
}

// Preparing is not told: it is short.
func (t *talking) Preparing(*agent.Job) {}

// Prepared tells what was checked out.
func (t *talking) Prepared(commit string, _ bool) {
	t.note(note{Kind: notePrepared, Text: commit[:min(len(commit), 12)]})
}

// Skipped tells that the step is not run again.
func (t *talking) Skipped(s agent.StepResult) { t.note(note{Kind: noteSkipped, Step: s.Name}) }

// Started tells that the step begins.
func (t *talking) Started(s agent.Step) {
	t.step, t.last, t.half = s.Name, "", ""
	t.note(note{Kind: noteStarted, Step: s.Name})
}

// Wrote tells every line that the step writes.
func (t *talking) Wrote(_ bool, b []byte) {
	lines := strings.Split(t.half+string(b), "\n")
	t.half = lines[len(lines)-1]
	for _, l := range lines[:len(lines)-1] {
		t.last = l
		t.note(note{Kind: noteWrote, Step: t.step, Text: screen.Brief(l, 200)})
	}
}

// Ended tells how the step ended, with the last that it wrote.
func (t *talking) Ended(s agent.StepResult) {
	text := t.last
	if s.ExitCode != 0 {
		text = "it failed: " + text
	}
	t.note(note{Kind: noteEnded, Step: s.Name, Text: screen.Brief(text, 200)})
}
