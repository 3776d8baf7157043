package client_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/client"
	"github.com/belaydev/belay/internal/testkit/sdktest"
	"github.com/belaydev/belay/internal/wire"
)

// inBubble runs a test on virtual time with a client of a server that serves the handler h.
func inBubble(t *testing.T, h func(t *testing.T) http.Handler, test func(t *testing.T, c *client.Client),
	options ...client.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		options = append([]client.Option{
			client.Dialer(sdktest.Serve(t, h(t))), client.Lazy(), client.Logger(slog.New(slog.DiscardHandler)),
		}, options...)
		c, err := client.Dial(t.Context(), "http://belay.test", options...)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, c)
	})
}

// server is a fake server that records requests and answers batches with success. A test sets the
// field answer if the server should give other answers.
type server struct {
	t *testing.T

	mu       sync.Mutex
	requests []seen
	// answer returns false if the server should give its default answer
	answer func(n int, w http.ResponseWriter, r *http.Request) bool
}

// bodyKey is the context key under which answer finds the request's body.
type bodyKey struct{}

// seen is a received request.
type seen struct {
	method, path string
	header       http.Header
	body         []byte
	ops          []wire.Op
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client closed the connection
	}
	in := seen{method: r.Method, path: r.URL.Path, header: r.Header, body: body}
	var batch wire.Batch
	if r.URL.Path == "/v1/batch" {
		if err := json.Unmarshal(body, &batch); err != nil {
			s.t.Errorf("a batch that cannot be read: %v", err)
		}
		if err := batch.Check(); err != nil {
			s.t.Errorf("a batch that breaks the rules: %v", err)
		}
		in.ops = batch.Ops
	}
	s.mu.Lock()
	s.requests = append(s.requests, in)
	n, answer := len(s.requests), s.answer
	s.mu.Unlock()
	if answer != nil && answer(n, w, r.WithContext(context.WithValue(r.Context(), bodyKey{}, body))) {
		return
	}
	if r.URL.Path == "/v1/batch" {
		reply(w, wire.BatchReply{Results: results(batch.Ops)})
		return
	}
	reply(w, struct{}{})
}

// results returns a successful result for each operation. The result of a Save has the value of its
// field Consumes as the seq, so that a test can tell the results apart.
func results(ops []wire.Op) []wire.Result {
	out := make([]wire.Result, len(ops))
	for i, o := range ops {
		switch {
		case o.Submit != nil:
			out[i].Submitted = &belay.Submitted{ID: o.Submit.ID}
		case o.Save != nil:
			out[i].Seq = o.Save.Consumes
		}
	}
	return out
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, e *belay.Error) {
	p := wire.ProblemOf(e)
	w.Header().Set("Content-Type", wire.ProblemType)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// got returns the requests received so far.
func (s *server) got() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.requests...)
}

// cut closes the connection without an answer, as if the server had carried out the request and
// crashed.
func cut() { panic(http.ErrAbortHandler) }
