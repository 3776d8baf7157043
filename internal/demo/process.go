package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
)

// workerProcess is a worker process of the demo.
type workerProcess struct {
	name    string
	process *exec.Cmd
	stdin   io.Closer
	stderr  *tailBuffer
	read    sync.WaitGroup // done when all notes of the worker are read
	lease   belay.Lease    // the last lease that the worker has won
	lines   int            // how many lines the worker's running step has written
	killed  bool
}

// startWorker starts a worker process.
func (d *demo) startWorker(ctx context.Context, name, queue string) (*workerProcess, error) {
	m := &workerProcess{name: name, stderr: &tailBuffer{}}
	// The process ends when its standard input ends, unless the demo kills it before.
	c, err := d.opt.Worker(context.WithoutCancel(ctx), name, queue, d.dir)
	if err != nil {
		return nil, err
	}
	c.Env = append(os.Environ(), ledgerEnv+"="+d.ledger, workerEnv+"="+name)
	c.Stderr = m.stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C reaches the demo alone
	if m.stdin, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start worker %s: %w", name, err)
	}
	m.process = c
	m.read.Go(func() { d.listen(m, out) })
	return m, nil
}

// listen passes a worker's notes on until its process has ended.
func (d *demo) listen(m *workerProcess, out io.Reader) {
	for dec := json.NewDecoder(out); ; {
		n := note{from: m}
		if err := dec.Decode(&n); err != nil {
			d.notes <- note{Kind: noteGone, from: m}
			return
		}
		d.notes <- n
	}
}

// failed returns the error about a worker that ended too early.
func (m *workerProcess) failed() error {
	return &belay.Error{
		Code: belay.CodeUnavailable, Message: "worker " + m.name + " has ended unexpectedly: " +
			strings.TrimSpace(m.stderr.String()),
	}
}

// kill kills a worker with SIGKILL.
func (d *demo) kill(m *workerProcess) error {
	d.facts.Killed, d.facts.Victim, d.facts.OldToken = time.Now(), m.name, m.lease.Token
	m.killed = true
	if err := m.process.Process.Kill(); err != nil {
		return fmt.Errorf("kill worker %s: %w", m.name, err)
	}
	d.tell.kill(fmt.Sprintf("kill -9 %d: %s is dead, in the middle of step %d", m.process.Process.Pid, m.name,
		stepNumber(victim)))
	return nil
}

// lateWrite tries to save the result of a step under the lease of the dead worker, while another
// worker owns the execution. A worker that is not dead but only slow would send such a write.
func (d *demo) lateWrite(ctx context.Context) {
	var old *workerProcess
	for _, m := range d.workers {
		if m.killed {
			old = m
		}
	}
	_, err := d.backend.Save(ctx, belay.Save{
		Lease: old.lease, Op: belay.OpID(embedded.NewID()), Kind: belay.KindStep, Key: stepKey(victim),
		Data: []byte(`{"name":"late"}`),
	})
	if err == nil {
		err = errAccepted
	}
	d.facts.Late = err
	var e *belay.Error
	switch {
	case errors.As(err, &e) && e.Code == belay.CodeLeaseLost:
		d.tell.line(old.name, fmt.Sprintf("writes late: its result of step %d, with token %d, is refused (%s)",
			stepNumber(victim), old.lease.Token, e.Cause))
	default:
		d.tell.line(old.name, "writes late: "+err.Error())
	}
}

// errAccepted is the result of a late write that the store has accepted, which must never happen.
var errAccepted = errors.New("it was accepted")

// nameOf returns the name of the demo's worker whose session has the id.
func (d *demo) nameOf(id belay.WorkerID) string {
	for _, m := range d.workers {
		if m.lease.Worker == id {
			return m.name
		}
	}
	return id.String()
}

// stopWorkers ends the workers, and prints the steps that they finish before they end. It kills a
// worker that does not end within ten seconds.
func (d *demo) stopWorkers() error {
	var errs []error
	var gone sync.WaitGroup
	over := time.AfterFunc(10*time.Second, func() {
		for _, m := range d.workers {
			_ = m.process.Process.Kill() // the process may have ended
		}
	})
	defer over.Stop()
	for _, m := range d.workers {
		_ = m.stdin.Close() // the error is ignored: the worker may be dead
		gone.Go(m.read.Wait)
	}
	done := make(chan struct{})
	go func() { gone.Wait(); close(done) }()
	for open := true; open; {
		select {
		case n := <-d.notes:
			if n.Kind == noteEnded && d.facts.State == belay.Succeeded {
				d.tell.ended(n)
			}
		case <-done:
			open = false
		}
	}
	for _, m := range d.workers {
		if err := m.process.Wait(); err != nil && !m.killed {
			errs = append(errs, m.failed())
		}
		errs = append(errs, os.RemoveAll(spacesOf(d.dir, m.name)))
	}
	return errors.Join(errs...)
}

// tailBuffer keeps the last 4 KiB that are written to it.
type tailBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *tailBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Write(p)
	if over := b.buf.Len() - 4<<10; over > 0 {
		b.buf.Next(over)
	}
	return len(p), nil
}

func (b *tailBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
