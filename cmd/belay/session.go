package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/agent/workspace"
	"github.com/belaydev/belay/worker"
)

// session is a belay run: an engine on the data directory and a worker for one
// execution and its descendants.
type session struct {
	backend    *embedded.Backend
	workspaces *workspace.Manager
	view       *view
}

// openSession opens the engine, and sweeps what runs on this host that died
// have left: only the holder of the data directory gets here, so every run that
// is marked as one of its own and not of this process is over.
func (a *app) openSession(ctx context.Context, purpose string, v *view) (*session, error) {
	dir, err := filepath.Abs(a.data)
	if err != nil {
		return nil, err
	}
	s := &session{view: v}
	s.backend, err = a.engine(ctx, brief(purpose, 120))
	if err != nil {
		return nil, err
	}
	s.workspaces, err = workspace.Open(filepath.Join(dir, "workspaces"))
	if err != nil {
		return nil, errors.Join(err, s.backend.Close())
	}
	if err := s.workspaces.Sweep(ctx, func(string) bool { return false }); err != nil {
		slog.Warn("remove what earlier runs left", "error", err)
	}
	return s, nil
}

// bury kills the processes of a worker that died on this host. Only the holder
// of the data directory gets here, so whatever carries the mark of a run in this
// store is left over, unless the run has another owner: this very process.
func bury(ctx context.Context, c belay.Client, dead belay.Worker) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := process.SweepOrphans(ctx, func(mark string) bool {
		var run belay.RunID
		if run.UnmarshalText([]byte(mark)) != nil || run.IsZero() {
			return false
		}
		x, err := c.Execution(ctx, run.Execution)
		return err == nil && (run.Token < x.Token || run.Token == x.Token && (x.State != belay.Running || x.Worker == dead.ID))
	})
	return err
}

// work runs the worker until the execution has ended, or the person at the
// keyboard has had enough.
func (s *session) work(ctx context.Context, e *belay.Execution) error {
	switch {
	case e.State.Terminal():
		return s.view.summary(e)
	case e.State == belay.Paused: // nobody could resume it while this process has the directory
		return &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf("%s is paused; let it go on with: belay resume %s", e.ID, e.ID)}
	}
	w := worker.New(&announced{Backend: s.backend, view: s.view}, worker.Options{
		Name: fmt.Sprintf("belay run (pid %d)", os.Getpid()), Queues: []string{e.Queue}, Concurrency: 4, Version: version,
		// Whoever interrupts wants an end now: the step gets its own grace, and
		// then a while to be cleaned up after.
		Grace: -1, Unwind: s.view.job.Grace.D() + time.Minute,
	})
	runner := &agent.Runner{Workspaces: s.workspaces, Observer: s.view}
	worker.Register(w, agent.Workflow, runner.Run)
	wctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	worked := make(chan error, 1)
	go func() { worked <- w.Run(wctx) }()
	ended, err := s.await(ctx, e, worked)
	if s.backend.Failure() != nil {
		return err // at once: waiting for what cannot be kept helps nobody
	}
	if ended == nil && err == nil {
		s.view.say("stopping; once more to stop at once")
		go s.stopAtOnce(e)
	}
	stop()
	werr := s.view.tickUntil(worked)
	if err != nil || werr != nil {
		return errors.Join(err, werr)
	}
	if ended == nil {
		return s.interrupted(e)
	}
	return s.view.summary(ended)
}

// await waits for the end of the execution; nil if ctx ended first.
func (s *session) await(ctx context.Context, e *belay.Execution, worked chan error) (*belay.Execution, error) {
	type answer struct {
		e   belay.Execution
		err error
	}
	got := make(chan answer, 1)
	go func() {
		for {
			x, err := s.backend.Await(ctx, e.ID, time.Minute)
			if err != nil || x.State.Terminal() {
				got <- answer{x, err}
				return
			}
		}
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case a := <-got:
			if ctx.Err() != nil {
				return nil, nil
			}
			if a.err == nil {
				a.e, a.err = s.backend.Execution(ctx, e.ID) // with what Await leaves out
			}
			return &a.e, a.err
		case err := <-worked:
			worked <- nil
			if err == nil {
				err = errors.New("the worker stopped before the execution ended")
			}
			return nil, err
		case <-s.backend.Failed():
			// Nothing more can be kept, so nothing more may happen: the
			// supervisors end what they started when this process is gone.
			return nil, fmt.Errorf("the store has failed, and everything stops here; see to the disk, then type the same line again: %w", s.backend.Failure())
		case <-tick.C:
			s.view.tick()
		}
	}
}

// farewell is how long, after the second request to stop, what is left may take
// to be cleaned up: the next run does it otherwise.
const farewell = 3 * time.Second

// stopAtOnce kills what the execution has started at the second request to stop.
// With nothing left to wait for, the session then ends as it does in order.
func (s *session) stopAtOnce(e *belay.Execution) {
	again := make(chan os.Signal, 1)
	notify(again)
	<-again
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	if _, err := process.SweepOrphans(ctx, func(mark string) bool {
		var run belay.RunID
		return run.UnmarshalText([]byte(mark)) == nil && run.Execution == e.ID
	}); err != nil {
		slog.Warn("kill what the command has started", "error", err)
	}
	<-ctx.Done()
	cancel()
	os.Exit(130)
}

// interrupted says how to go on.
func (s *session) interrupted(e *belay.Execution) error {
	how := "type the same line with --resume to go on"
	if e.Key != "" {
		how = "type the same line to go on"
	}
	s.view.say("stopped; %s, or end it with: belay cancel %s", how, e.ID)
	return exitCode(130)
}

func (s *session) close() error { return s.backend.Close() }

func notify(c chan os.Signal) { signal.Notify(c, os.Interrupt, syscall.SIGTERM) }
