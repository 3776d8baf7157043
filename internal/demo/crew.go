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

// crewMember is a worker process of the demo.
type crewMember struct {
	name    string
	process *exec.Cmd
	stdin   io.Closer
	stderr  *tailBuffer
	read    sync.WaitGroup // its notes
	lease   belay.Lease    // the last one it won
	lines   int            // that its step has written
	killed  bool
}

// hire starts a worker process.
func (d *demo) hire(ctx context.Context, name, queue string) (*crewMember, error) {
	m := &crewMember{name: name, stderr: &tailBuffer{}}
	// It is ended in order by its standard input, or killed by the story.
	c, err := d.opt.Worker(context.WithoutCancel(ctx), name, queue, d.dir)
	if err != nil {
		return nil, err
	}
	c.Env = append(os.Environ(), ledgerEnv+"="+d.ledger, workerEnv+"="+name)
	c.Stderr = m.stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo to hear
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

// listen passes a worker's notes on until it is gone.
func (d *demo) listen(m *crewMember, out io.Reader) {
	for dec := json.NewDecoder(out); ; {
		n := note{from: m}
		if err := dec.Decode(&n); err != nil {
			d.notes <- note{Kind: noteGone, from: m}
			return
		}
		d.notes <- n
	}
}

// failed says why a worker is gone that should be there.
func (m *crewMember) failed() error {
	return &belay.Error{
		Code: belay.CodeUnavailable, Message: "worker " + m.name + " has ended by itself: " +
			strings.TrimSpace(m.stderr.String()),
	}
}

// kill does the deed.
func (d *demo) kill(m *crewMember) error {
	d.facts.Killed, d.facts.Victim, d.facts.OldToken = time.Now(), m.name, m.lease.Token
	m.killed = true
	if err := m.process.Process.Kill(); err != nil {
		return fmt.Errorf("kill worker %s: %w", m.name, err)
	}
	d.tell.deed(fmt.Sprintf("kill -9 %d: %s is dead, in the middle of step %d", m.process.Process.Pid, m.name,
		stepNumber(victim)))
	return nil
}

// lateWrite does what the dead worker would do if it were only slow: it saves
// the result of its step, under its own lease, now that another works on it.
func (d *demo) lateWrite(ctx context.Context) {
	var old *crewMember
	for _, m := range d.crew {
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

// errAccepted is what a late write must never come to.
var errAccepted = errors.New("it was accepted")

// nameOf is the worker of the demo that had this session.
func (d *demo) nameOf(id belay.WorkerID) string {
	for _, m := range d.crew {
		if m.lease.Worker == id {
			return m.name
		}
	}
	return id.String()
}

// dismiss ends the workers in order, and tells what they still have to say. What
// does not end is killed.
func (d *demo) dismiss() error {
	var errs []error
	var gone sync.WaitGroup
	over := time.AfterFunc(10*time.Second, func() {
		for _, m := range d.crew {
			_ = m.process.Process.Kill() // it may have ended
		}
	})
	defer over.Stop()
	for _, m := range d.crew {
		_ = m.stdin.Close() // a dead one has none
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
	for _, m := range d.crew {
		if err := m.process.Wait(); err != nil && !m.killed {
			errs = append(errs, m.failed())
		}
		errs = append(errs, os.RemoveAll(spacesOf(d.dir, m.name)))
	}
	return errors.Join(errs...)
}

// tailBuffer keeps the end of what is written to it.
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
