package worker_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// instant is a Backend that has n executions and answers each call at once, so that a benchmark
// measures only the cost of the SDK.
type instant struct {
	belay.Backend
	left    atomic.Int64
	settled atomic.Int64
	n       int64
	done    chan struct{}
}

func (b *instant) OpenWorker(_ context.Context, s belay.WorkerSpec) (belay.Session, error) {
	return belay.Session{ID: s.ID, TTL: belay.DefaultTTL, Heartbeat: belay.DefaultHeartbeat}, nil
}

func (b *instant) Claim(ctx context.Context, r belay.ClaimRequest) (belay.ClaimReply, error) {
	var reply belay.ClaimReply
	for len(reply.Assignments) < r.Slots {
		k := b.left.Add(-1)
		if k < 0 {
			break
		}
		a := belay.Assignment{Workflow: "w", Queue: "default", Attempt: 1, Generation: 1, Input: []byte(`"in"`)}
		binary.BigEndian.PutUint64(a.Lease.Execution[:], uint64(k))
		a.Lease.Token, a.Lease.Worker = 1<<32+1, r.Worker
		reply.Assignments = append(reply.Assignments, a)
	}
	if len(reply.Assignments) == 0 {
		<-ctx.Done()
	}
	return reply, nil
}

func (b *instant) Heartbeat(context.Context, belay.Heartbeat) (belay.HeartbeatReply, error) {
	return belay.HeartbeatReply{ExpiresIn: 15 * time.Second}, nil
}
func (b *instant) Drain(context.Context, belay.WorkerID) error       { return nil }
func (b *instant) CloseWorker(context.Context, belay.WorkerID) error { return nil }
func (b *instant) Save(context.Context, belay.Save) (int64, error)   { return 1, nil }
func (b *instant) Settle(_ context.Context, s belay.Settlement) error {
	if s.Outcome != belay.OutcomeSucceeded {
		panic(fmt.Sprintf("%+v", s))
	}
	if b.settled.Add(1) == b.n {
		close(b.done)
	}
	return nil
}

func benchmark(b *testing.B, fn func(context.Context, string) (string, error)) {
	backend := &instant{n: int64(b.N), done: make(chan struct{})}
	backend.left.Store(int64(b.N))
	w := worker.New(backend, worker.Options{Concurrency: 1000, Log: slog.New(slog.DiscardHandler)})
	worker.Register(w, "w", fn)
	ctx, stop := context.WithCancel(b.Context())
	over := make(chan error)
	b.ReportAllocs()
	b.ResetTimer()
	go func() { over <- w.Run(ctx) }()
	<-backend.done
	b.StopTimer()
	stop()
	if err := <-over; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkNoop measures the SDK's cost of an execution that does nothing; 1,000 executions run at
// a time.
func BenchmarkNoop(b *testing.B) {
	benchmark(b, func(_ context.Context, in string) (string, error) { return in, nil })
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "executions/s")
}

// BenchmarkTenSteps measures the SDK's cost of an execution with ten steps; 1,000 executions run at
// a time.
func BenchmarkTenSteps(b *testing.B) {
	names := [10]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	benchmark(b, func(ctx context.Context, in string) (string, error) {
		for _, name := range names {
			if _, err := workflow.Step(ctx, name, func(context.Context) (int, error) { return 1, nil }); err != nil {
				return "", err
			}
		}
		return in, nil
	})
	b.ReportMetric(10*float64(b.N)/b.Elapsed().Seconds(), "steps/s")
}
