package worker_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// sleeper is the boot-time clock of a machine that can sleep. A sleep advances this clock; the
// timers of the machine and the clock of the store do not advance.
type sleeper struct {
	began time.Time
	slept atomic.Int64
}

func (s *sleeper) Boottime() time.Duration {
	return time.Since(s.began) + time.Duration(s.slept.Load())
}

// sleep makes the machine sleep for d and then run for half a second.
func (s *sleeper) sleep(d time.Duration) {
	s.slept.Add(int64(d))
	time.Sleep(500 * time.Millisecond)
	synctest.Wait()
}

// beats is a Backend that counts heartbeats, and returns an error for them while cut is set.
type beats struct {
	belay.Backend
	mu  sync.Mutex
	n   int
	cut bool
}

func (b *beats) Heartbeat(ctx context.Context, h belay.Heartbeat) (belay.HeartbeatReply, error) {
	b.mu.Lock()
	b.n++
	cut := b.cut
	b.mu.Unlock()
	if cut {
		return belay.HeartbeatReply{}, &belay.Error{Code: belay.CodeUnavailable, Message: "cut off"}
	}
	return b.Backend.Heartbeat(ctx, h)
}

func (b *beats) sent() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

// Rule: if a machine has slept past the time of the next heartbeat, its worker sends the heartbeat
// soon after the machine wakes. If the machine has slept past the fence, the worker also freezes
// its runs soon. The worker does not wait for the rest of a timer, which did not run during the
// sleep.
func TestAWorkerSendsAHeartbeatAndFreezesSoonAfterItsMachineWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quiet := slog.New(slog.DiscardHandler)
		b := &beats{Backend: engine.New(memory.New(time.Now), engine.Options{Log: quiet})}
		defer b.Close()
		machine := &sleeper{began: time.Now()}
		w := worker.New(b, worker.Options{Log: quiet, Clock: machine})
		frozen := make(chan string, 10)
		worker.Register(w, "w", func(ctx context.Context, _ any) (any, error) {
			defer workflow.OnFreeze(ctx, func() { frozen <- "frozen" }, func() { frozen <- "thawed" })()
			<-ctx.Done()
			return nil, ctx.Err()
		})
		ctx, stop := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- w.Run(ctx) }()
		if _, err := workflow.Start[any](ctx, b, "w", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second) // the worker has sent a heartbeat at 5 s
		synctest.Wait()
		before := b.sent()
		machine.sleep(2 * time.Second)
		if n := b.sent(); n != before || len(frozen) != 0 {
			t.Errorf("slept for less than a heartbeat: %d heartbeats, %d freezes", n-before, len(frozen))
		}
		machine.sleep(3 * time.Second)
		if n := b.sent(); n != before+1 || len(frozen) != 0 {
			t.Errorf("slept past a heartbeat: %d heartbeats, %d freezes", n-before, len(frozen))
		}
		b.mu.Lock()
		b.cut = true
		b.mu.Unlock()
		machine.sleep(11 * time.Second)
		if len(frozen) != 1 || <-frozen != "frozen" {
			t.Fatalf("slept past the fence, and the run was not frozen")
		}
		b.mu.Lock()
		b.cut = false
		b.mu.Unlock()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(frozen) != 1 || <-frozen != "thawed" {
			t.Error("the run is still frozen after a heartbeat")
		}
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}
