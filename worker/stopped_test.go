//go:build unix

package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/host"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// childEnv is the environment variable that makes the test binary the process under test: a worker
// whose effects are lines in a file. The value is the path of the file.
const childEnv = "WORKER_TEST_EFFECTS"

func TestMain(m *testing.M) {
	if file := os.Getenv(childEnv); file != "" {
		if err := stoppedChild(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	writers  = 8
	childTTL = time.Second
)

// Rule: a worker whose TTL has passed writes nothing, neither to the store nor to a file, and each
// of its writers gets the error lease_lost. The test stops the worker's process (SIGSTOP) and lets
// it continue after the TTL, so that no timer of the process has fired before it continues.
func TestAStoppedAndContinuedProcessWritesNothingLate(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	b := engine.New(memory.New(time.Now), engine.Options{Log: quiet})
	t.Cleanup(func() { b.Close() })
	effects := filepath.Join(t.TempDir(), "effects")
	child := startChild(t, b, effects)
	h, err := workflow.Start[string](t.Context(), b, "write", nil)
	if err != nil {
		t.Fatal(err)
	}
	await(t, b, h.ID(), "lost") // the child process has stopped itself, and its session has expired

	w := worker.New(b, worker.Options{Log: quiet})
	worker.Register(w, "write", func(ctx context.Context, _ any) (string, error) {
		if err := effect(effects, workflow.Token(ctx)); err != nil {
			return "", err
		}
		return "second owner", workflow.Checkpoint(ctx, "second owner")
	})
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- w.Run(ctx) }()
	if v, err := h.Result(t.Context()); err != nil || v != "second owner" {
		t.Fatal(v, err)
	}
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}

	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil { // the exit code is 0 if all writers got lease_lost
		t.Errorf("the continued worker: %v", err)
	}
	wantNoneLate(t, b, h.ID(), effects)
}

// wantNoneLate fails the test if the history or the effects have a write of the first owner after a
// write of the second owner.
func wantNoneLate(t *testing.T, b belay.Backend, id belay.ExecutionID, effects string) {
	t.Helper()
	events, err := b.Events(t.Context(), belay.EventQuery{Execution: id})
	if err != nil {
		t.Fatal(err)
	}
	var newest belay.Token
	saved := 0
	for _, e := range events {
		if e.Kind == "state" {
			saved++
		}
		if e.Token < newest {
			t.Errorf("event %d, %s, carries token %d after token %d", e.Seq, e.Kind, e.Token, newest)
		}
		newest = max(newest, e.Token)
	}
	data, err := os.ReadFile(effects)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(data))
	if len(lines) < 2*writers || saved < writers || lines[len(lines)-1] != "2" ||
		strings.Count(string(data), "2\n") != 1 {
		t.Errorf("%d checkpoints; effects by token: %q", saved, lines)
	}
}

// effect appends the token to the file, so that the lines show the order of the effects of both
// processes.
func effect(file string, token belay.Token) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, int64(token))
	return errors.Join(err, f.Close())
}

func await(t *testing.T, b belay.Backend, id belay.ExecutionID, kind string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for after := int64(0); ; {
		events, err := b.Events(ctx, belay.EventQuery{Execution: id, After: after, Wait: time.Minute})
		if err != nil {
			t.Fatalf("no event %s: %v", kind, err)
		}
		for _, e := range events {
			if after = e.Seq; e.Kind == kind {
				return
			}
		}
	}
}

// startChild starts the worker process, and serves the Backend to that process over its standard
// input and output.
func startChild(t *testing.T, b belay.Backend, effects string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+effects)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer()
	if err := server.RegisterName("Owner", &Owner{b}); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	go server.ServeConn(pipes{out, in})
	return cmd
}

type pipes struct {
	io.Reader
	io.WriteCloser
}

// stoppedChild runs a worker whose writers write until the store refuses a write. After a while it
// stops its own process at a time when no writer is between its check and its effect.
func stoppedChild(effects string) error {
	b := &remote{client: rpc.NewClient(pipes{os.Stdin, os.Stdout})}
	w := worker.New(b, worker.Options{
		TTL: childTTL, Heartbeat: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	refusals := make(chan error, writers)
	worker.Register(w, "write", func(ctx context.Context, _ any) (string, error) {
		defer stop()
		var between sync.RWMutex
		var wg sync.WaitGroup
		var rounds sync.WaitGroup
		rounds.Add(writers)
		for i := range writers {
			wg.Go(func() {
				refusals <- write(ctx, effects, i, &between, rounds.Done)
			})
		}
		rounds.Wait() // waits until each writer has written three times
		between.Lock()
		at := host.Boottime()
		err := syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		for host.Boottime()-at < childTTL { // after SIGSTOP it takes a moment until all threads stop
			runtime.Gosched()
		}
		between.Unlock()
		wg.Wait()
		return "first owner", err
	})
	if err := w.Run(ctx); err != nil {
		return err
	}
	for range writers {
		if err := <-refusals; !errors.Is(err, belay.ErrLeaseLost) {
			return fmt.Errorf("a writer got %w, want lease_lost", err)
		}
	}
	return nil
}

// write writes until the store refuses a write. It calls wroteThree when it has written three times.
func write(ctx context.Context, effects string, i int, between *sync.RWMutex, wroteThree func()) error {
	for k := 0; ; k++ {
		if k == 3 {
			wroteThree()
		}
		if err := guarded(ctx, effects, between); err != nil {
			return err
		}
		if err := workflow.Checkpoint(ctx, fmt.Sprintf("writer %d, %d", i, k)); err != nil {
			return err
		}
	}
}

// guarded writes one line to the file, after it has checked that the run still owns its execution.
func guarded(ctx context.Context, effects string, between *sync.RWMutex) error {
	between.RLock()
	defer between.RUnlock()
	if err := workflow.Guard(ctx); err != nil {
		return err
	}
	return effect(effects, workflow.Token(ctx))
}

// Reply is the result or the error of a call, as it is sent over the pipe.
type Reply[T any] struct {
	Value   T
	Code    belay.Code
	Cause   belay.Cause
	Message string
}

func (r *Reply[T]) set(v T, err error) error {
	r.Value = v
	var e *belay.Error
	if errors.As(err, &e) {
		r.Code, r.Cause, r.Message = e.Code, e.Cause, e.Message
	}
	return nil
}

// Owner serves over net/rpc those calls of a Backend that a worker makes.
type Owner struct{ b belay.Backend }

func (o *Owner) OpenWorker(s belay.WorkerSpec, r *Reply[belay.Session]) error {
	return r.set(o.b.OpenWorker(context.Background(), s))
}

func (o *Owner) Claim(c belay.ClaimRequest, r *Reply[belay.ClaimReply]) error {
	return r.set(o.b.Claim(context.Background(), c))
}

func (o *Owner) Heartbeat(h belay.Heartbeat, r *Reply[belay.HeartbeatReply]) error {
	return r.set(o.b.Heartbeat(context.Background(), h))
}

func (o *Owner) Drain(id belay.WorkerID, r *Reply[bool]) error {
	return r.set(true, o.b.Drain(context.Background(), id))
}

func (o *Owner) CloseWorker(id belay.WorkerID, r *Reply[bool]) error {
	return r.set(true, o.b.CloseWorker(context.Background(), id))
}

func (o *Owner) Save(s belay.Save, r *Reply[int64]) error {
	return r.set(o.b.Save(context.Background(), s))
}

func (o *Owner) Settle(s belay.Settlement, r *Reply[bool]) error {
	return r.set(true, o.b.Settle(context.Background(), s))
}

// remote is the Backend in the child process: it sends each call to the Owner in the parent
// process.
type remote struct {
	belay.Backend
	client *rpc.Client
}

func ask[T any](ctx context.Context, b *remote, method string, args any) (T, error) {
	var none T
	r := new(Reply[T])
	c := b.client.Go("Owner."+method, args, r, make(chan *rpc.Call, 1))
	select {
	case <-c.Done:
	case <-ctx.Done():
		return none, context.Cause(ctx) // the reply may still arrive
	}
	if c.Error != nil {
		return none, c.Error
	}
	if r.Code != "" {
		return r.Value, &belay.Error{Code: r.Code, Cause: r.Cause, Message: r.Message}
	}
	return r.Value, nil
}

func (b *remote) OpenWorker(ctx context.Context, s belay.WorkerSpec) (belay.Session, error) {
	return ask[belay.Session](ctx, b, "OpenWorker", s)
}

func (b *remote) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	return ask[belay.ClaimReply](ctx, b, "Claim", r)
}

func (b *remote) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	return ask[belay.HeartbeatReply](ctx, b, "Heartbeat", h)
}

func (b *remote) Drain(ctx context.Context, id belay.WorkerID) error {
	_, err := ask[bool](ctx, b, "Drain", id)
	return err
}

func (b *remote) CloseWorker(ctx context.Context, id belay.WorkerID) error {
	_, err := ask[bool](ctx, b, "CloseWorker", id)
	return err
}

func (b *remote) Save(ctx context.Context, s belay.Save) (int64, error) {
	return ask[int64](ctx, b, "Save", s)
}

func (b *remote) Settle(ctx context.Context, s belay.Settlement) error {
	_, err := ask[bool](ctx, b, "Settle", s)
	return err
}
