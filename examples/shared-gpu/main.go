// Command shared-gpu lets executions of several models share one GPU.
//
//	go run ./examples/shared-gpu model 127.0.0.1:9000                             a model server (a fake one)
//	go run ./examples/shared-gpu work http://127.0.0.1:7420 http://127.0.0.1:9000    a worker
//
// The model server holds one model at a time, as a GPU does, and refuses questions to another model. The
// worker runs two workflows: "answer" asks a model, and "load-model" makes the model server load another
// model. Belay calls load-model when executions wait for another model, and only while no answer is under
// way:
//
//	belay resources set gpu --swap-workflow load-model --min-residency 2s --max-wait 10s
//	belay submit answer --requires gpu=llama --input '{"model": "llama", "prompt": "Hello"}'
//	belay submit answer --requires gpu=qwen --input '{"model": "qwen", "prompt": "Hello"}'
//	belay resources get gpu
//
// Start workers at several servers that share a database: the models still exclude each other.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// question is the input of the workflow "answer".
type question struct {
	Model  string `json:"model"`
	Prompt string `json:"prompt"`
}

// models calls the model server.
type models struct{ url string }

// answer asks the model. The gate of the resource ensures that the model is loaded.
func (m models) answer(ctx context.Context, q question) (string, error) {
	return workflow.Step(ctx, "ask", func(ctx context.Context) (string, error) { return m.call(ctx, "/ask", q) })
}

// load makes the model server load the model that the resource wants.
func (m models) load(ctx context.Context, s belay.SwapInput) (string, error) {
	return m.call(ctx, "/load", question{Model: s.To})
}

func (m models) call(ctx context.Context, path string, q question) (string, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<16))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("the model server answers %s: %s", answer.Status, text)
	}
	return string(text), err
}

// fake is a model server that holds one model at a time.
type fake struct {
	mu      sync.Mutex
	model   string
	asked   int // questions that are being answered
	Loads   int `json:"loads"`
	Answers int `json:"answers"`
	// Refused counts the questions to a model that was not loaded, and the loads while a question was
	// being answered. Both stay 0 while Belay shares the server.
	Refused int `json:"refused"`
}

func (f *fake) ask(w http.ResponseWriter, r *http.Request) {
	q, ok := f.begin(w, r, func(q question) bool { return q.Model == f.model })
	if !ok {
		return
	}
	<-time.After(50 * time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked--
	f.Answers++
	fmt.Fprintf(w, "%s says: you asked %q", q.Model, q.Prompt)
}

func (f *fake) load(w http.ResponseWriter, r *http.Request) {
	q, ok := f.begin(w, r, func(question) bool { return f.asked == 0 })
	if !ok {
		return
	}
	f.mu.Lock()
	f.model = "" // while it loads
	f.mu.Unlock()
	<-time.After(200 * time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked--
	f.Loads++
	f.model = q.Model
	fmt.Fprintln(w, "loaded", q.Model)
}

// begin reads a request, and refuses it if it does not fit.
func (f *fake) begin(w http.ResponseWriter, r *http.Request, fits func(question) bool) (q question, ok bool) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return q, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !fits(q) {
		f.Refused++
		http.Error(w, "the model "+q.Model+" cannot be used now", http.StatusConflict)
		return q, false
	}
	f.asked++
	return q, true
}

func (f *fake) show(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := json.NewEncoder(w).Encode(f); err != nil {
		fmt.Fprintln(os.Stderr, "shared-gpu:", err)
	}
}

func serve(ctx context.Context, address string) error {
	f := &fake{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /ask", f.ask)
	mux.HandleFunc("POST /load", f.load)
	mux.HandleFunc("GET /", f.show)
	s := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	fmt.Println("the model server listens on", address)
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func work(ctx context.Context, server, modelServer string) error {
	b, err := client.Dial(ctx, server)
	if err != nil {
		return err
	}
	defer b.Close()
	m := models{modelServer}
	w := worker.New(b, worker.Options{Concurrency: 4})
	worker.Register(w, "answer", m.answer)
	worker.Register(w, "load-model", m.load)
	fmt.Println("the worker works for", server)
	return w.Run(ctx)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shared-gpu:", err)
		os.Exit(1)
	}
}

func run(a []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch {
	case len(a) == 2 && a[0] == "model":
		return serve(ctx, a[1])
	case len(a) == 3 && a[0] == "work":
		return work(ctx, a[1], a[2])
	}
	return errors.New("usage: shared-gpu model ADDRESS | shared-gpu work SERVER MODEL_SERVER")
}
