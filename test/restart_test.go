package test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

const restartTTL = 2 * time.Second

// workerProcess is a worker process whose engine runs in another process. Its only workflow saves
// progress until a file appears.
func workerProcess() error {
	b := &remote{socket: os.Getenv(socketEnv)}
	w := worker.New(b, worker.Options{
		Name: os.Getenv("BLACKBOX_NAME"), Concurrency: 1, TTL: restartTTL, Heartbeat: 500 * time.Millisecond, Grace: -1,
		Log: quiet,
	})
	worker.Register(w, "hold", func(ctx context.Context, _ any) (string, error) {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			if err := workflow.Checkpoint(ctx, n); err != nil {
				return "", err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
			if _, err := os.Stat(os.Getenv(releaseEnv)); err == nil {
				return os.Getenv("BLACKBOX_NAME"), nil
			}
		}
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return w.Run(ctx)
}

// fleet is a process with an engine, and workers that each run in a process of their own.
type fleet struct {
	*place
	engine  *started
	workers []*started
}

func (f *fleet) startEngine() {
	f.t.Helper()
	f.engine = f.start(f.role("engine", socketEnv+"="+f.path("socket")))
	f.engine.says("ready")
}

func (f *fleet) startWorkers(n int) {
	f.t.Helper()
	for i := range n {
		f.workers = append(f.workers, f.start(f.role("worker",
			socketEnv+"="+f.path("socket"), releaseEnv+"="+f.path("release"), fmt.Sprintf("BLACKBOX_NAME=w%d", i))))
	}
}

// session returns the newest session of the i-th worker, as the store has it.
func (f *fleet) session(i int) belay.Worker {
	f.t.Helper()
	r := f.reader()
	defer r.Close()
	all, err := r.Workers(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	var found belay.Worker
	for _, w := range all {
		if w.Name == fmt.Sprintf("w%d", i) && w.OpenedAt.After(found.OpenedAt) {
			found = w
		}
	}
	return found
}

// owned returns the execution that a session owns.
func (f *fleet) owned(w belay.Worker) (found belay.Execution, ok bool) {
	f.t.Helper()
	for _, e := range f.executions() {
		if e.Worker == w.ID && e.State == belay.Running {
			return e, true
		}
	}
	return found, false
}

// Rule: an engine that starts after an outage longer than every TTL takes no execution from a
// worker that is alive. If a worker died during the outage, the engine declares it lost at once,
// because it can prove the death; if a worker only sends nothing, the engine declares it lost one
// TTL after the recovery, at most a second late, and never earlier (guarantees G2, G5 and G6).
func TestEngineRestartKeepsLiveWorkers(t *testing.T) {
	t.Parallel()
	f := &fleet{place: newPlace(t)}
	f.startEngine()
	const n = 4
	f.startWorkers(n)
	b := &remote{socket: f.path("socket")}
	for range n {
		if _, err := workflow.Start[string](t.Context(), b, "hold", nil); err != nil {
			t.Fatal(err)
		}
	}
	sessions, before := make([]belay.Worker, n), make([]belay.Execution, n)
	for i := range n {
		until(t, "every worker works", func() bool {
			sessions[i] = f.session(i)
			e, ok := f.owned(sessions[i])
			before[i] = e
			return ok && e.Checkpoints > 2
		})
	}

	f.engine.signal(syscall.SIGKILL)
	f.engine.wait(patience).want(128 + int(syscall.SIGKILL))
	const dead, silent = 2, 3
	f.workers[dead].signal(syscall.SIGKILL)
	f.workers[dead].wait(patience)
	f.workers[silent].signal(syscall.SIGSTOP)
	defer f.workers[silent].signal(syscall.SIGCONT)
	<-time.After(restartTTL + 1500*time.Millisecond) // the outage is longer than the TTL of every session

	restarted := time.Now()
	f.startEngine()
	ready := time.Now()
	until(t, "the dead worker is declared lost", func() bool { return f.session(dead).State.Ended() })
	if took := f.session(dead).EndedAt.Sub(restarted); took > restartTTL {
		t.Errorf("a death proven on its host was noticed after %s", took)
	}
	until(t, "the silent worker is declared lost", func() bool { return f.session(silent).State.Ended() })
	if at := f.session(silent).EndedAt; at.Before(restarted.Add(restartTTL)) ||
		at.After(ready.Add(restartTTL+time.Second)) {
		t.Errorf("G6: the silent worker was declared lost %s after the restart, want %s to %s",
			at.Sub(restarted), restartTTL, ready.Sub(restarted)+restartTTL+time.Second)
	} else {
		t.Logf("the silent worker was declared lost %s after the restart", at.Sub(restarted))
	}
	for _, i := range []int{0, 1} { // the live workers keep their executions, and continue under the same token
		now := f.execution(before[i].ID)
		if f.session(i).ID != sessions[i].ID || f.session(i).State.Ended() || now.Token != before[i].Token ||
			now.Worker != sessions[i].ID {
			t.Errorf("worker %d was alive and lost its work: %+v\n%s", i, f.session(i), show(f.history(now.ID)))
		}
		seq := now.Seq
		until(t, "the live workers continue", func() bool { return f.execution(before[i].ID).Seq > seq+3 })
	}

	f.workers[silent].signal(syscall.SIGCONT)
	if err := os.WriteFile(f.path("release"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		until(t, "everything ends", func() bool { return f.execution(before[i].ID).State == belay.Succeeded })
		lost := count(f.history(before[i].ID), "lost")
		if (i == dead || i == silent) != (lost == 1) {
			t.Errorf("execution of worker %d was lost %d times\n%s", i, lost, show(f.history(before[i].ID)))
		}
	}
	f.end(dead)
}

// end stops all processes gracefully, except for the dead worker.
func (f *fleet) end(dead int) {
	f.t.Helper()
	for i, w := range f.workers {
		if i != dead {
			w.signal(syscall.SIGTERM)
			w.wait(patience).want(0)
		}
	}
	f.engine.signal(syscall.SIGTERM)
	f.engine.wait(patience).want(0)
	f.sound()
}
