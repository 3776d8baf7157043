package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/worker"
)

// listenHealth opens the port for health probes of the workers of this process; nil for none.
func (o *workerOptions) listenHealth() (*worker.Health, error) {
	if o.health == "" {
		return nil, nil
	}
	var check worker.HealthCheck
	if o.healthCheck != "" {
		check = func(ctx context.Context) error { return runHealthCheck(ctx, o.healthCheck) }
	}
	h, err := worker.ListenHealth(o.health, check)
	if err == nil {
		o.log.Info("the worker answers health probes", "address", "http://"+h.Addr().String()+"/healthz")
	}
	return h, err
}

// runHealthCheck runs the command of the flag --health-check in a shell. If the command fails, the
// error has its exit code and the last line of its output. When ctx ends, all processes of the command
// are killed.
func runHealthCheck(ctx context.Context, command string) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("run the health check: %w", err)
	}
	var last lastLine
	r, err := process.Run(ctx, process.Command{
		ID: fmt.Sprintf("health-check-%d", os.Getpid()), Args: []string{"/bin/sh", "-c", command}, Dir: dir,
		Inherit: process.Basics(), Grace: -1,
		Output: func(_ context.Context, c process.Chunk) error {
			last.add(c.Data)
			return nil
		},
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the health check took too long: %w", context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("run the health check: %w", err)
	case r.Code != 0:
		return fmt.Errorf("the health check ended with exit code %d: %s", r.Code, last.text())
	}
	return nil
}

// lastLine keeps the last tailSize bytes of a command's output, and returns the last line of these
// bytes.
type lastLine struct {
	mu   sync.Mutex
	tail []byte
}

const tailSize = 1 << 10

func (l *lastLine) add(data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, data[max(0, len(data)-tailSize):]...)
	l.tail = l.tail[max(0, len(l.tail)-tailSize):]
}

func (l *lastLine) text() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := bytes.TrimSpace(l.tail)
	return line[bytes.LastIndexByte(line, '\n')+1:]
}
