package datadir

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// Rule: sessions belong to the store, so a worker continues when the engine moves to another
// process: its runs are neither lost nor started again, and each of their steps is executed once.
func TestAWorkerOutlivesItsHosts(t *testing.T) {
	dir := t.TempDir()
	server := func() *Host {
		h, err := OpenHost(t.Context(), dir, Options{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	host := server()
	mine, other := open(t, dir, "the worker's"), open(t, dir, "another")
	const executions, steps = 4, 12
	var mu sync.Mutex
	done := make(map[string]int)
	began := make(map[belay.ExecutionID]int)
	at := make(chan struct{}) // every step waits here for its turn
	w := worker.New(mine, worker.Options{Concurrency: executions, Log: quiet})
	worker.Register(w, "steps", func(ctx context.Context, _ int) (int, error) {
		id := workflow.Execution(ctx)
		mu.Lock()
		began[id]++
		mu.Unlock()
		for i := range steps {
			if _, err := workflow.Step(ctx, fmt.Sprint("s", i), func(context.Context) (int, error) {
				<-at
				mu.Lock()
				defer mu.Unlock()
				done[fmt.Sprint(id, " ", i)]++
				return i, nil
			}); err != nil {
				return 0, err
			}
		}
		return steps, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- w.Run(ctx) }()
	var handles []workflow.Handle[int]
	for i := range executions {
		h, err := workflow.Start[int](t.Context(), other, "steps", i)
		if err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	// While steps run, the test ends the server again and again. Each time another process starts
	// the engine and then gives way to the next server.
	for i := range executions * steps {
		at <- struct{}{}
		if i%8 == 4 {
			if err := host.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if i%8 == 6 {
			host = server()
		}
	}
	for _, h := range handles {
		if n, err := h.Result(t.Context()); err != nil || n != steps {
			t.Errorf("%d, %v", n, err)
		}
	}
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if err := host.Close(); err != nil {
		t.Error(err)
	}
	if len(done) != executions*steps || len(began) != executions {
		t.Errorf("%d steps of %d executions", len(done), len(began))
	}
	for what, n := range done {
		if n != 1 {
			t.Errorf("step %s was done %d times", what, n)
		}
	}
	for id, n := range began {
		if n != 1 {
			t.Errorf("%s began %d times", id, n)
		}
	}
}
