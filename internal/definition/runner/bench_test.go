package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/definition"
	"github.com/belaydev/belay/internal/definition/runner"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

const (
	links    = 10
	branches = 100
)

// chainDocument is a chain of tasks that do nothing, and fanDocument a fan-out.
func chainDocument() string {
	var b strings.Builder
	b.WriteString("name: chain\ntasks:\n  - {id: t0, uses: noop}\n")
	for i := 1; i < links; i++ {
		fmt.Fprintf(&b, "  - {id: t%d, uses: noop, needs: t%d}\n", i, i-1)
	}
	return b.String()
}

func fanDocument() string {
	return fmt.Sprintf("name: fan\ntasks:\n  - {id: each, uses: noop, foreach: '1..%d', parallel: %d}\n", branches,
		branches)
}

// chainOfChildren and fanOfChildren are the same workflows in Go.
func chainOfChildren(ctx context.Context, _ struct{}) (any, error) {
	for i := range links {
		if _, err := workflow.Child[any](ctx, "t", "noop", nil, workflow.Key(i)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func fanOfChildren(ctx context.Context, _ struct{}) (any, error) {
	all := make([]*workflow.Future[any], branches)
	for i := range all {
		all[i] = workflow.Go(ctx, "each", func(ctx context.Context) (any, error) {
			return workflow.Child[any](ctx, "t", "noop", nil)
		}, workflow.Key(i))
	}
	for _, f := range all {
		if _, err := f.Wait(ctx); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// BenchmarkDocuments measures a chain of ten tasks that do nothing and a fan-out of a hundred, as documents and as
// workflows in Go, in one process and over HTTP, on SQLite. It prints the median:
//
//	go test ./internal/definition/runner -run xxx -bench Documents -benchtime 30x
func BenchmarkDocuments(b *testing.B) {
	for _, place := range []string{"embedded", "http"} {
		backend := openBench(b, place)
		w := worker.New(backend, worker.Options{Concurrency: 200, Log: slog.New(slog.DiscardHandler)})
		worker.Register(w, runner.Workflow, (&runner.Runner{}).Run)
		worker.Register(w, "noop", func(context.Context, any) (any, error) { return nil, nil })
		worker.Register(w, "chain in Go", chainOfChildren)
		worker.Register(w, "fan in Go", fanOfChildren)
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		for name, start := range map[string]func() (string, any){
			"chain/document": func() (string, any) { return documentInput(chainDocument()) },
			"chain/go":       func() (string, any) { return "chain in Go", nil },
			"fan/document":   func() (string, any) { return documentInput(fanDocument()) },
			"fan/go":         func() (string, any) { return "fan in Go", nil },
		} {
			b.Run(place+"/"+name, func(b *testing.B) { measure(b, backend, start) })
		}
		stop()
		<-ended
	}
}

func openBench(b *testing.B, place string) belay.Backend {
	b.Helper()
	engine, err := embedded.Open(b.Context(), "sqlite:"+b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = engine.Close() })
	if place == "embedded" {
		return engine
	}
	s := httptest.NewUnstartedServer(httpapi.New(engine, httpapi.Options{Log: slog.New(slog.DiscardHandler)}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	b.Cleanup(s.Close)
	c, err := client.Dial(b.Context(), s.URL)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

func documentInput(text string) (string, any) {
	return runner.Workflow, runner.Input{Document: text, Hash: definition.Hash([]byte(text)),
		Input: json.RawMessage(nil)}
}

func measure(b *testing.B, backend belay.Backend, start func() (string, any)) {
	b.Helper()
	var all []time.Duration
	for b.Loop() {
		began := time.Now()
		name, input := start()
		h, err := workflow.Start[any](b.Context(), backend, name, input)
		if err == nil {
			_, err = h.Result(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*95/100].Microseconds())/1000, "p95-ms")
}

// clock is an Observer that notes when items end.
type clock struct{ ends []time.Time }

func (c *clock) Begun(belay.ExecutionID, *definition.Document, int)  {}
func (c *clock) Started(string, *definition.Task, belay.ExecutionID) {}
func (c *clock) Ended(key string, _ *definition.Task, _, _ string) {
	if strings.Contains(key, "[") {
		c.ends = append(c.ends, time.Now())
	}
}

// BenchmarkForeach measures a foreach of 10,000 items, 100 at a time, on SQLite in this process: the time of all, what
// the
// items of the last tenth cost in relation to those of the second tenth, and the heap after them:
//
//	go test ./internal/definition/runner -run xxx -bench Foreach -benchtime 1x
func BenchmarkForeach(b *testing.B) {
	const items = 10_000
	backend := openBench(b, "embedded")
	c := &clock{}
	w := worker.New(backend, worker.Options{Concurrency: 200, Log: slog.New(slog.DiscardHandler)})
	worker.Register(w, runner.Workflow, (&runner.Runner{Observer: c}).Run)
	worker.Register(w, "noop", func(context.Context, any) (any, error) { return nil, nil })
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	text := fmt.Sprintf("name: many\ntasks:\n  - {id: each, uses: noop, foreach: '1..%d', parallel: 100}\n", items)
	before := heap()
	measure(b, backend, func() (string, any) {
		c.ends = nil
		return documentInput(text)
	})
	b.ReportMetric(float64(heap()-before)/(1<<20), "heap-MiB")
	tenth := len(c.ends) / 10
	second := c.ends[2*tenth-1].Sub(c.ends[tenth])
	last := c.ends[len(c.ends)-1].Sub(c.ends[len(c.ends)-tenth])
	b.ReportMetric(float64(last)/float64(second), "last/second-tenth")
	b.ReportMetric(float64(len(c.ends))/c.ends[len(c.ends)-1].Sub(c.ends[0]).Seconds(), "items/s")
	stop()
	<-ended
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
