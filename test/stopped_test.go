package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

const (
	writerCount = 8
	stoppedTTL  = time.Second
)

// told is the error with which the engine ended one writer.
type told struct {
	Code  belay.Code
	Cause belay.Cause
	Saves int
}

// writersProcess is a worker with eight writers. Each writes until a write is refused, and the
// worker then prints the errors of all writers.
func writersProcess() error {
	b := &remote{socket: os.Getenv(socketEnv)}
	w := worker.New(b, worker.Options{TTL: stoppedTTL, Heartbeat: 300 * time.Millisecond, Log: quiet})
	ctx, stop := context.WithCancel(context.Background())
	ends := make(chan told, writerCount)
	worker.Register(w, "write", func(ctx context.Context, _ any) (string, error) {
		defer stop()
		var all sync.WaitGroup
		for i := range writerCount {
			all.Go(func() { ends <- write(ctx, i) })
		}
		all.Wait()
		return "the first owner", context.Cause(ctx)
	})
	if err := w.Run(ctx); err != nil {
		return err
	}
	for range writerCount {
		if err := json.NewEncoder(os.Stdout).Encode(<-ends); err != nil {
			return err
		}
	}
	return nil
}

func write(ctx context.Context, i int) told {
	for n := 0; ; n++ {
		err := workflow.Checkpoint(ctx, fmt.Sprintf("writer %d, %d", i, n))
		if err == nil {
			continue
		}
		var e *belay.Error
		if !errors.As(err, &e) {
			e = &belay.Error{Code: belay.CodeInternal}
		}
		return told{e.Code, e.Cause, n}
	}
}

// watched is a Backend that counts the checkpoints that an old owner sends after a new owner's
// claim.
type watched struct {
	belay.Backend
	newest   atomic.Int64 // the token of the new owner, once there is one
	saves    atomic.Int64
	late     atomic.Int64 // checkpoints that arrived under an older token
	accepted atomic.Int64 // checkpoints counted in late that the engine nevertheless accepted
}

func (w *watched) Save(ctx context.Context, s belay.Save) (int64, error) {
	w.saves.Add(1)
	late := int64(s.Lease.Token) < w.newest.Load()
	seq, err := w.Backend.Save(ctx, s)
	if late {
		w.late.Add(1)
		if err == nil {
			w.accepted.Add(1)
		}
	}
	return seq, err
}

// Rule: if a worker is stopped (SIGSTOP) for longer than its TTL and then continues, the engine
// accepts none of its late writes, and each of its eight writers gets lease_lost (guarantees G1 and
// G2). The loss is noticed within [TTL, TTL + 1 s] (guarantee G6). The test stops the worker at a
// random moment, and continues it while another owner writes.
func TestStoppedPastTheTTLAndContinued(t *testing.T) {
	t.Parallel()
	r := dice(t)
	rounds := 2
	if *long {
		rounds = 20
	}
	for i := range rounds {
		moment := between(r, 0, 300*time.Millisecond)
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			t.Parallel()
			stopAndContinue(t, moment)
		})
	}
}

func stopAndContinue(t *testing.T, moment time.Duration) {
	p := newPlace(t)
	real, err := embedded.Open(t.Context(), "sqlite:"+p.data, embedded.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	b := &watched{Backend: real}
	l, err := serve(b, p.path("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h, err := workflow.Start[string](t.Context(), b, "write", nil)
	if err != nil {
		t.Fatal(err)
	}
	child := p.start(p.role("writers", socketEnv+"="+p.path("socket")))
	child.until("the worker has written for a while", func() bool { return b.saves.Load() > 10*writerCount })
	child.after(moment)
	child.signal(syscall.SIGSTOP)
	past := time.After(stoppedTTL + time.Second)
	defer child.signal(syscall.SIGCONT)

	until(t, "the loss is noticed", func() bool { return count(events(t, b, h.ID()), "lost") == 1 })
	second := startSecond(t, b)
	until(t, "another owner works", func() bool { return second.saves.Load() > 0 })
	b.newest.Store(second.token.Load())
	<-past
	child.signal(syscall.SIGCONT)
	r := child.wait(patience).want(0)
	close(second.enough)
	if v, err := h.Result(t.Context()); err != nil || v != "the second owner" {
		t.Errorf("result %q, %v", v, err)
	}
	second.stop()

	all := events(t, b, h.ID())
	wellFormed(t, all) // no event of the old owner comes after the new owner's claim
	if n := b.accepted.Load(); n != 0 {
		t.Errorf("%d late checkpoints were accepted\n%s", n, show(all))
	}
	decoder := json.NewDecoder(strings.NewReader(r.out))
	for i := range writerCount {
		var got told
		if err := decoder.Decode(&got); err != nil {
			t.Fatalf("only %d writers printed a result: %v\n%s", i, err, r)
		}
		if got.Code != belay.CodeLeaseLost {
			t.Errorf("a writer got %+v, want lease_lost", got)
		}
	}
	t.Logf("%d checkpoints; %d arrived late, none was accepted", b.saves.Load(), b.late.Load())
	noticedInTime(t, b, stoppedTTL)
}

// noticedInTime checks that exactly one session has expired, and that the engine noticed it between
// TTL and TTL + 1 s after the last heartbeat (guarantee G6).
func noticedInTime(t *testing.T, b belay.Client, ttl time.Duration) {
	t.Helper()
	all, err := b.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, w := range all {
		if w.State != belay.WorkerLost || strings.HasSuffix(w.EndReason, "is gone") {
			continue // a worker that ended while it opened a session may have left a second session
		}
		lost++
		if took := w.EndedAt.Sub(w.HeartbeatAt); took < ttl || took > ttl+time.Second {
			t.Errorf("G6: the loss was noticed %s after the last heartbeat; want %s to %s", took, ttl, ttl+time.Second)
		} else {
			t.Logf("the loss was noticed %s after the last heartbeat", took)
		}
	}
	if lost != 1 {
		t.Errorf("%d sessions are lost, want one: %+v", lost, all)
	}
}

// second is the worker that owns the execution after the loss. It writes until the test ends it.
type second struct {
	saves  atomic.Int64
	token  atomic.Int64
	enough chan struct{}
	stop   func()
}

func startSecond(t *testing.T, b belay.Backend) *second {
	s := &second{enough: make(chan struct{})}
	w := worker.New(b, worker.Options{Name: "second", Log: quiet})
	worker.Register(w, "write", func(ctx context.Context, _ any) (string, error) {
		s.token.Store(int64(workflow.Token(ctx)))
		for {
			if err := workflow.Checkpoint(ctx, s.saves.Load()); err != nil {
				return "", err
			}
			s.saves.Add(1)
			select {
			case <-s.enough:
				return "the second owner", nil
			default:
			}
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- w.Run(ctx) }()
	s.stop = func() {
		stop()
		if err := <-over; err != nil {
			t.Errorf("the second worker: %v", err)
		}
	}
	return s
}
