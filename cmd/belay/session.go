package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/datadir"
	"github.com/belaydev/belay/internal/screen"
	"github.com/belaydev/belay/worker"
)

// session is one call of belay run: a connection to the engine, and a worker for one execution
// and its descendants.
type session struct {
	backend belay.Backend
	runner  *agent.Runner
	view    *view
	own     *announced // the Backend of the worker: it uses the same engine and prints outages
	// register registers the workflows that the worker runs, and slots is how many executions it runs at the same time.
	// summarize prints the result.
	register  func(w *worker.Worker)
	slots     int
	summarize func(*belay.Execution) error
}

// openSession connects to the engine, or starts one in this process, and removes the workspaces
// of dead processes of this host.
func (a *app) openSession(ctx context.Context, purpose string, v *view, isolated bool) (*session, error) {
	dir, err := filepath.Abs(a.data)
	if err != nil {
		return nil, err
	}
	s := &session{view: v, slots: 4, summarize: v.summary}
	s.register = func(w *worker.Worker) { worker.Register(w, agent.Workflow, s.runner.Run) }
	if s.backend, err = a.backend(ctx, screen.Brief(purpose, 120)); err != nil {
		return nil, err
	}
	s.own = newAnnounced(s.backend, v)
	if s.runner, err = runnerOf(ctx, dir, isolated); err != nil {
		return nil, errors.Join(err, s.backend.Close())
	}
	s.runner.Observer = v
	return s, nil
}

// runnerOf returns the runner of the command. Unless the command must be isolated, it runs as the calling user and
// without a sandbox: a user's own command uses the user's caches and writes to the same places as a script of the user,
// and a sandbox would prevent both.
func runnerOf(ctx context.Context, dir string, isolated bool) (*agent.Runner, error) {
	if !isolated {
		spaces, err := openSpaces(filepath.Join(dir, "workspaces"))
		if err != nil {
			return nil, err
		}
		// Sweep calls the function only for workspaces of this process, which has none yet. It
		// never removes a workspace of another living process.
		if err := spaces.Sweep(ctx, func(string) bool { return true }); err != nil {
			slog.Warn("remove the workspaces of earlier runs", "error", err)
		}
		return &agent.Runner{Workspaces: spaces}, nil
	}
	cfg, err := config.Load(config.Sources{File: os.Getenv("BELAY_CONFIG"), Environ: os.Environ()})
	if err != nil {
		return nil, fmt.Errorf("the configuration has errors:\n%w", err)
	}
	j, err := jobRunner(ctx, cfg, dir, slog.Default(), nil, 1, os.Getenv("BELAY_KEY_FILE"))
	if err != nil {
		return nil, err
	}
	j.sweep(ctx, slog.Default())
	return j.Runner, nil
}

// work runs the worker until the execution has ended or the user interrupts belay run.
func (s *session) work(ctx context.Context, e *belay.Execution) error {
	if err := s.awaitPause(ctx, e); err != nil {
		return err
	}
	s.view.begin(e, s.elsewhere(ctx, e))
	switch {
	case e.State.Terminal():
		return s.summarize(e)
	case e.State == belay.Paused: // only an operator can resume the execution
		return &belay.Error{Code: belay.CodeConflict, Message: pausedText(e)}
	}
	w := worker.New(s.own, worker.Options{
		Name: fmt.Sprintf("belay run (pid %d)", os.Getpid()), Queues: []string{e.Queue}, Concurrency: s.slots,
		Version: version,
		// An interrupt must end the command soon: the step gets its own grace period, and then the
		// worker has a minute to clean up.
		Grace: -1, Unwind: s.view.job.Grace.D() + time.Minute,
	})
	s.register(w)
	wctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	worked := make(chan error, 1)
	go func() { worked <- w.Run(wctx) }()
	ended, err := s.await(ctx, e, worked)
	if s.failure() != nil {
		return err // return at once, since the results of the running step could not be saved any more
	}
	if ended == nil && err == nil {
		s.view.say("stopping the command; interrupt again to stop at once")
		go s.stopAtOnce()
	}
	stop()
	werr := s.view.tickUntil(worked)
	if err != nil || werr != nil {
		return errors.Join(err, werr)
	}
	if ended == nil {
		return s.interrupted(e)
	}
	return s.summarize(ended)
}

// awaitPause waits while an execution that is to be paused counts as running because the engine has not noticed yet
// that its owner is gone.
func (s *session) awaitPause(ctx context.Context, e *belay.Execution) error {
	for e.State == belay.Running && e.PauseRequested && s.elsewhere(ctx, e) == "" {
		_, err := s.backend.Events(ctx, belay.EventQuery{Execution: e.ID, After: e.Seq, Wait: time.Second})
		if err == nil {
			*e, err = s.backend.Execution(ctx, e.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// await waits for the end of the execution and returns the execution, or nil if ctx ended first.
func (s *session) await(ctx context.Context, e *belay.Execution, worked chan error) (*belay.Execution, error) {
	type answer struct {
		e   belay.Execution
		err error
	}
	got := make(chan answer, 1)
	var asking sync.WaitGroup
	defer asking.Wait()
	within, stop := context.WithCancel(ctx)
	defer stop()
	asking.Go(func() {
		x, err := s.ended(within, e.ID)
		got <- answer{x, err}
	})
	asking.Go(func() { s.announceActions(within, e) })
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case a := <-got:
			if ctx.Err() != nil {
				return nil, nil
			}
			return &a.e, a.err
		case err := <-worked:
			worked <- nil
			if err == nil {
				err = errors.New("the worker stopped before the execution ended")
			}
			return nil, err
		case <-s.failed():
			// Nothing can be saved any more, so the command must not continue: the supervisors kill
			// their processes when this process has ended.
			return nil, fmt.Errorf("the store has failed, so belay run stops; check the disk, then type the same line "+
				"again: %w", s.failure())
		case <-tick.C:
			s.view.tick()
		}
	}
}

// maxEngineOutage is how long belay run waits while no engine answers; then it ends with an error.
// By then the worker has given up its runs, after worker.DefaultMaxFreeze.
const maxEngineOutage = worker.DefaultMaxFreeze + 2*time.Minute

// ended waits for the end of an execution. It continues to wait while another process takes over
// the engine, and while no engine answers for up to maxEngineOutage.
func (s *session) ended(ctx context.Context, id belay.ExecutionID) (belay.Execution, error) {
	since := time.Now()
	for {
		x, err := s.backend.Await(ctx, id, time.Minute)
		if err == nil && x.State.Terminal() {
			x, err = s.backend.Execution(ctx, id) // reads the whole execution, since Await leaves out parts of it
			if err == nil {
				return x, nil
			}
		}
		switch {
		case err == nil:
			since = time.Now()
			continue
		case ctx.Err() != nil || belay.CodeOf(err) != belay.CodeUnavailable || time.Since(since) > maxEngineOutage:
			return x, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// announcedActions are the actions of operators that belay run prints for its user.
var announcedActions = []belay.Action{
	belay.ActionPause, belay.ActionResume, belay.ActionCancel, belay.ActionSteal, belay.ActionPreempt,
}

// pausedByBudget is the reason with which Belay pauses an execution that has spent its budget.
const pausedByBudget = "budget"

// announceActions prints the actions of operators on the execution until it ends.
func (s *session) announceActions(ctx context.Context, e *belay.Execution) {
	after := e.Seq
	for ctx.Err() == nil {
		events, err := s.backend.Events(ctx, belay.EventQuery{Execution: e.ID, After: after, Wait: time.Minute})
		if err != nil {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			continue
		}
		for i := range events {
			ev := &events[i]
			after = ev.Seq
			if ev.Final {
				return
			}
			if slices.Contains(announcedActions, belay.Action(ev.Kind)) {
				s.view.say("%s %s", ev.Kind, describe(ev))
			}
			if belay.Action(ev.Kind) == belay.ActionPause && ev.Text == pausedByBudget {
				s.view.say("its budget is spent; it goes on after: belay budget %s --cost TOKENS", e.ID)
			}
		}
	}
}

// elsewhere returns the name of the living worker that runs the execution now, or "" if none does.
func (s *session) elsewhere(ctx context.Context, e *belay.Execution) string {
	if e.State != belay.Running {
		return ""
	}
	workers, err := s.backend.Workers(ctx)
	if err != nil {
		return ""
	}
	for i := range workers {
		if w := &workers[i]; w.ID == e.Worker && living(w) {
			return w.Name
		}
	}
	return ""
}

// failed returns a channel that is closed when the engine in this process has lost its store.
func (s *session) failed() <-chan struct{} {
	if b, ok := s.backend.(*datadir.Backend); ok {
		return b.Failed()
	}
	return nil
}

func (s *session) failure() error {
	if b, ok := s.backend.(*datadir.Backend); ok {
		return b.Failure()
	}
	return nil
}

// lastCleanup is the time for cleaning up after the second request to stop. The next belay run
// removes the workspaces that are still left then.
const lastCleanup = 3 * time.Second

// stopAtOnce waits for the second request to stop and kills the processes that this session has
// started. The worker then ends by itself; if it does not end within lastCleanup, stopAtOnce ends
// this process.
func (s *session) stopAtOnce() {
	again := make(chan os.Signal, 1)
	notify(again)
	<-again
	ctx, cancel := context.WithTimeout(context.Background(), lastCleanup)
	if _, err := process.SweepOrphans(ctx, func(mark string) bool {
		var run belay.RunID
		return run.UnmarshalText([]byte(mark)) == nil && s.own.claimed(run)
	}); err != nil {
		slog.Warn("kill the processes of the command", "error", err)
	}
	<-ctx.Done()
	cancel()
	os.Exit(130)
}

// interrupted says how to continue the execution, and returns exit code 130.
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

// pausedText says how a paused execution continues.
func pausedText(e *belay.Execution) string {
	if e.Reason != nil && e.Reason.Code == pausedByBudget {
		return fmt.Sprintf("%s is paused: %s; see: belay explain %s", e.ID, e.Reason.Text, e.ID)
	}
	return fmt.Sprintf("%s is paused; continue it with: belay resume %s", e.ID, e.ID)
}
