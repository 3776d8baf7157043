package httptask_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/belaytest"
	"github.com/belaydev/belay/embedded"
	"github.com/belaydev/belay/internal/httptask"
	"github.com/belaydev/belay/internal/reach"
	"github.com/belaydev/belay/internal/secretref"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

const token = "t0ken-of-the-engine-test"

// receiver is a server on loopback that records the idempotency keys of its requests.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	keys []string
}

func receive(t *testing.T, h func(rw http.ResponseWriter, r *http.Request, n int)) *receiver {
	t.Helper()
	s := &receiver{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
		n := len(s.keys)
		s.mu.Unlock()
		h(rw, r, n)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *receiver) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.keys...)
}

// caller makes a Caller that may reach the receiver, with a secret for it.
func (s *receiver) caller(t *testing.T, workflow string, owners ...string) *httptask.Caller {
	t.Helper()
	host := s.Listener.Addr().String()
	policy, err := reach.Parse([]string{"public", host})
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := secretref.Parse([]string{"TOKEN for " + workflow + " to " + host})
	if err != nil {
		t.Fatal(err)
	}
	secrets.Env, secrets.Log = func(string) string { return token }, slog.New(slog.DiscardHandler)
	c := &httptask.Caller{Dialer: reach.Dialer{Policy: policy}, Secrets: secrets, Agent: "test"}
	c.Owners = func(context.Context, belay.ExecutionID) ([]string, error) { return owners, nil }
	t.Cleanup(c.Close)
	return c
}

// request is an input for the receiver.
func (s *receiver) request(more string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"url": %q, "method": "POST", "auth": {"bearer": "${{ secrets.TOKEN }}"}%s}`,
		s.URL+"/x", more))
}

// open opens a Backend in this process with a worker for HTTP requests.
func open(t *testing.T, c *httptask.Caller, more ...func(*worker.Worker)) belay.Backend {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	b, err := embedded.Open(t.Context(), "memory:", embedded.Logger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(b, worker.Options{Log: quiet, Grace: -1})
	worker.Register(w, httptask.Workflow, c.Run)
	for _, register := range more {
		register(w)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = b.Close()
	})
	return b
}

func submit(t *testing.T, b belay.Backend, input json.RawMessage, p belay.Policy) belay.Execution {
	t.Helper()
	p.BackoffBase = belay.Duration(time.Millisecond)
	out, err := b.Submit(t.Context(), belay.Submission{
		ID: belay.ExecutionID(embedded.NewID()), Workflow: httptask.Workflow, Input: input, Policy: p,
	})
	if err == nil {
		err = out[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
	return ended(t, b, out[0].ID)
}

func ended(t *testing.T, b belay.Backend, id belay.ExecutionID) belay.Execution {
	t.Helper()
	x, err := b.Await(t.Context(), id, 20*time.Second)
	if err == nil {
		x, err = b.Execution(t.Context(), id)
	}
	if err != nil || !x.State.Terminal() {
		t.Fatalf("%s, %v", x.State, err)
	}
	return x
}

// Rule: an attempt is repeated after a status that asks for it, with the same idempotency key; another
// generation has another key. The stored execution, its runs and its history contain no secret.
func TestARequestIsRepeatedUnderItsKey(t *testing.T) {
	s := receive(t, func(rw http.ResponseWriter, r *http.Request, n int) {
		if n != 3 {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(rw, "you sent %s", r.Header.Get("Authorization"))
	})
	b := open(t, s.caller(t, "http"))
	x := submit(t, b, s.request(""), belay.Policy{MaxAttempts: 2})
	if x.State != belay.Failed || x.Error.Class != belay.ClassTransient || strings.Contains(string(x.Output), token) {
		t.Errorf("%s, %+v, %s", x.State, x.Error, x.Output)
	}
	if _, err := b.Control(t.Context(), belay.Control{Execution: x.ID, Action: belay.ActionRequeue}); err != nil {
		t.Fatal(err)
	}
	x = ended(t, b, x.ID)
	var out httptask.Response
	if err := json.Unmarshal(x.Output, &out); err != nil || x.State != belay.Succeeded ||
		string(out.Body) != `"you sent Bearer [TOKEN]"` {
		t.Errorf("%s: %s, %v", x.State, x.Output, err)
	}
	id := x.ID.String()
	if diff := cmp.Diff([]string{id + "-1", id + "-1", id + "-2"}, s.seen()); diff != "" {
		t.Errorf("the keys: %s", diff)
	}
	history, err := b.Events(t.Context(), belay.EventQuery{Execution: x.ID, Data: true})
	if err != nil {
		t.Fatal(err)
	}
	runs, err := b.Runs(t.Context(), x.ID)
	if err != nil {
		t.Fatal(err)
	}
	for what, v := range map[string]any{"execution": x, "history": history, "runs": runs} {
		if text, err := json.Marshal(v); err != nil || strings.Contains(string(text), token) {
			t.Errorf("the %s contains the secret: %s, %v", what, text, err)
		}
	}
}

// Rule: each end of a request has its class, and a failed run keeps the answer.
func TestEndsHaveTheirClasses(t *testing.T) {
	s := receive(t, func(rw http.ResponseWriter, r *http.Request, _ int) {
		switch r.URL.Query().Get("do") {
		case "hang":
			<-r.Context().Done()
		case "late":
			rw.Header().Set("Retry-After", "3600")
			rw.WriteHeader(http.StatusTooManyRequests)
		case "bad":
			rw.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(rw, "no such thing as "+r.Header.Get("Authorization"))
		}
	})
	b := open(t, s.caller(t, "http"))
	for do, want := range map[string]struct {
		more     string
		class    belay.Class
		attempts int
	}{
		"hang": {`, "timeout": "50ms"`, belay.ClassTimeout, 2},
		"bad":  {"", belay.ClassPermanent, 1},
	} {
		x := submit(t, b, s.request(`, "query": {"do": "`+do+`"}`+want.more), belay.Policy{MaxAttempts: 2})
		if x.State != belay.Failed || x.Error == nil || x.Error.Class != want.class || x.Attempt != want.attempts ||
			strings.Contains(x.Error.Message, token) {
			t.Errorf("%s: %s, attempt %d, %+v", do, x.State, x.Attempt, x.Error)
		}
		if do == "bad" && (!strings.Contains(x.Error.Message,
			"422 Unprocessable Entity: no such thing as Bearer [TOKEN]") ||
			!strings.Contains(string(x.Output), `"status":422`)) {
			t.Errorf("%s: %+v, output %s", do, x.Error, x.Output)
		}
	}
	out, err := b.Submit(t.Context(), belay.Submission{
		ID: belay.ExecutionID(embedded.NewID()), Workflow: httptask.Workflow, Input: s.request(`, "query": {"do": "late"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	id, seq := out[0].ID, int64(1)
	for range 10 {
		events, err := b.Events(t.Context(), belay.EventQuery{Execution: id, After: seq, Wait: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			seq = e.Seq
		}
		if x, err := b.Execution(t.Context(), id); err == nil && x.State == belay.Pending && seq > 2 {
			if wait := time.Until(x.DueAt); wait < 50*time.Minute || wait > time.Hour {
				t.Errorf("the next attempt is in %s", wait)
			}
			return
		}
	}
	t.Error("the request was not tried")
}

// Rule: when a worker dies in the middle of a request, another worker sends the request again, with the
// same key, and the dead worker's answer counts no more.
func TestARequestSurvivesItsWorker(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	s := receive(t, func(rw http.ResponseWriter, _ *http.Request, n int) {
		if n == 1 {
			close(arrived)
			<-release
		}
		fmt.Fprintf(rw, "answer %d", n)
	})
	c := s.caller(t, "http")
	k := belaytest.Open(func(w *worker.Worker) { worker.Register(w, httptask.Workflow, c.Run) })
	h, err := workflow.Start[httptask.Response](t.Context(), k.Backend, httptask.Workflow, s.request(""))
	if err != nil {
		t.Fatal(err)
	}
	<-arrived
	k.Crash()
	k.Restart()
	a, err := h.Result(t.Context())
	if err != nil || string(a.Body) != `"answer 2"` {
		t.Errorf("%s, %v", a.Body, err)
	}
	close(release)
	if keys := s.seen(); len(keys) != 2 || keys[0] != keys[1] || keys[0] == "" {
		t.Errorf("the keys: %q", keys)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// Rule: a rule for the workflow of the parent allows a secret to its child, and not to an execution that a
// client has submitted.
func TestSecretsOfAParent(t *testing.T) {
	s := receive(t, func(rw http.ResponseWriter, r *http.Request, _ int) {
		_, _ = io.WriteString(rw, r.Header.Get("Authorization"))
	})
	b := open(t, s.caller(t, "deploy", "deploy"), func(w *worker.Worker) {
		worker.Register(w, "deploy", func(ctx context.Context, _ any) (string, error) {
			a, err := workflow.Child[httptask.Response](ctx, "call", httptask.Workflow, s.request(""))
			return string(a.Body), err
		})
	})
	h, err := workflow.Start[string](t.Context(), b, "deploy", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := h.Result(t.Context()); err != nil || got != `"Bearer [TOKEN]"` {
		t.Errorf("of the parent: %q, %v", got, err)
	}
	x := submit(t, b, s.request(""), belay.Policy{})
	if x.State != belay.Failed || x.Error.Class != belay.ClassPermanent || !strings.Contains(x.Error.Message,
		"the secret TOKEN is not allowed") {
		t.Errorf("alone: %s, %+v", x.State, x.Error)
	}
}

// Rule: a request has the trace of its run, unless its own headers have another one.
func TestARequestHasTheTraceOfItsRun(t *testing.T) {
	var headers []string
	s := receive(t, func(_ http.ResponseWriter, r *http.Request, _ int) {
		headers = append(headers, r.Header.Get("Traceparent")+" "+r.Header.Get("Tracestate"))
	})
	b := open(t, s.caller(t, "http"))
	const of, other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "another"
	for _, more := range []string{"", `, "headers": {"TraceParent": "` + other + `"}`} {
		out, err := b.Submit(t.Context(), belay.Submission{
			Workflow: httptask.Workflow, Input: s.request(more), Trace: belay.Trace{Parent: of, State: "a=b"},
		})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		if x := ended(t, b, out[0].ID); x.State != belay.Succeeded {
			t.Errorf("%s, %+v", x.State, x.Error)
		}
	}
	submit(t, b, s.request(""), belay.Policy{})
	if diff := cmp.Diff([]string{of + " a=b", other + " a=b", " "}, headers); diff != "" {
		t.Error(diff)
	}
}
