package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/internal/agent/agentapi"
	"github.com/belaydev/belay/internal/httpapi"
	"github.com/belaydev/belay/internal/wire"
	"github.com/belaydev/belay/worker"
	"github.com/belaydev/belay/workflow"
)

// serveAgents starts the API with the routes for agents, and a worker that plays the agent: it
// answers with its prompt, fails if the prompt is "fail", or waits until its execution is cancelled
// if the prompt is "wait".
func serveAgents(t *testing.T, depth int) *server {
	t.Helper()
	return serveAgentsWith(t, depth, httpapi.Options{})
}

// serveAgentsWith is like serveAgents, with the options o.
func serveAgentsWith(t *testing.T, depth int, o httpapi.Options) *server {
	t.Helper()
	b := &lateBackend{}
	agents := agentapi.New(b, agentapi.Options{
		Setup:    agent.Setup{Command: agent.Template{"agent"}, Timeout: time.Minute},
		Capacity: 2, QueueDepth: depth, ChatTimeout: 20 * time.Second, Model: "belay",
		Policy: belay.Policy{MaxAttempts: 1},
	})
	o.Extra = agents.Routes(nil)
	s := serve(t, o)
	b.Backend = s.b
	w := worker.New(s.b, worker.Options{Concurrency: 2, Log: slog.New(slog.DiscardHandler)})
	worker.Register(w, agent.Prompted, pretend)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return s
}

// lateBackend is a Backend for routes that a test makes before the real Backend exists. The test
// sets the real Backend later.
type lateBackend struct{ belay.Backend }

// pretend plays an agent.
func pretend(ctx context.Context, p agent.Prompt) (agent.Answer, error) {
	for log, text := range map[string]string{
		agent.PhaseLog: "{}\n", agent.OutputLog: p.Text + "\n", agent.ProgressLog: `{"said": 1}` + "\n",
		agent.AnswerLog: p.Text,
	} {
		if _, err := workflow.Output(ctx, log).Write([]byte(text)); err != nil {
			return agent.Answer{}, err
		}
	}
	switch p.Text {
	case "wait":
		<-ctx.Done()
		return agent.Answer{}, context.Cause(ctx)
	case "ask":
		q := agent.Question{Number: 1, Text: "May I?"}
		log := workflow.Output(ctx, agent.QuestionLog)
		if _, err := log.Write([]byte(`{"number":1,"text":"May I?"}` + "\n")); err != nil {
			return agent.Answer{}, err
		}
		if err := log.Flush(); err != nil {
			return agent.Answer{}, err
		}
		text, err := workflow.WaitSignal[string](ctx, q.Signal())
		return agent.Answer{Text: text, Isolation: "none"}, err
	case "fail":
		return agent.Answer{}, belay.Permanent(errors.New("the agent did not want to"))
	}
	return agent.Answer{
		Text: p.Text, Isolation: "none", Usage: &agent.Usage{InputTokens: 3, OutputTokens: 4},
		Notes: []string{"a note"}, Session: "s", Commit: "abc", Changes: &agent.Changes{},
	}, nil
}

// Every answer of the routes for agents matches the OpenAPI document: jobs, their streams, chats
// with one answer and with a stream, models, and refusals, as problems and in the form of the chat
// API.
func TestAnswersForAgentsAreAsDocumented(t *testing.T) {
	s := serveAgents(t, 100)
	w := &walker{s, documentOf(t, s)}
	w.step(200, "GET", "/health", "")
	w.jobs()
	w.responses()
	w.chats()

	for _, r := range w.doc.routes {
		tags, _ := r.operation["tags"].([]any)
		for status := range r.operation["responses"].(map[string]any) {
			at := r.method + " " + r.path + " " + status
			if len(tags) == 1 && tags[0] == "agents" && status < "400" && !w.doc.seen[at] {
				t.Errorf("%s is documented, and no request of this test led to it", at)
			}
		}
	}
}

// conversation continues a job, and answers a question.
func (w *walker) conversation(job string) {
	w.t.Helper()
	w.step(409, "POST", job+"/prompt", `{"prompt": "more"}`) // it has no repository
	first := w.step(202, "POST", "/execute", `{"prompt": "one", "repo": "https://example.org/a.git"}`)["location"].(string)
	w.step(200, "GET", first+"?wait=20", "")
	next := w.step(202, "POST", first+"/prompt", `{"prompt": "two"}`, "Idempotency-Key", "p")["location"].(string)
	if again := w.step(202, "POST", first+"/prompt", `{"prompt": "two"}`, "Idempotency-Key", "p"); again["location"] != next {
		w.t.Errorf("the repetition found %v, not %s", again["location"], next)
	}
	w.step(409, "POST", first+"/prompt", `{"prompt": "two"}`)
	w.step(409, "POST", first+"/prompt", `{"prompt": "other"}`, "Idempotency-Key", "p")
	w.step(422, "POST", first+"/prompt", `{"prompt": ""}`)
	w.step(422, "POST", first+"/prompt", `{"prompt": "x", "repo": "y"}`)
	w.step(404, "POST", "/jobs/nonsense/prompt", `{"prompt": "x"}`)
	w.step(200, "GET", next+"?wait=20", "")
	w.step(409, "POST", next+"/answer", `{"answer": "yes"}`)
	w.step(200, "GET", next+"/diff", "")
	asks := w.step(202, "POST", "/execute", `{"prompt": "ask"}`)["location"].(string)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !strings.Contains(string(w.do("GET", asks, "").body), `"question":{"number":1,"text":"May I?"}`) {
		<-look.C
	}
	w.step(200, "GET", "/jobs?status=waiting", "")
	list := string(w.do("GET", "/jobs?status=waiting", "").body)
	if !strings.Contains(list, strings.TrimPrefix(asks, "/jobs/")) {
		w.t.Error("the list of waiting jobs does not have the job that asks")
	}
	w.step(409, "POST", asks+"/prompt", `{"prompt": "x"}`)
	w.step(409, "POST", asks+"/answer", `{"answer": "yes", "question": 2}`)
	w.step(422, "POST", asks+"/answer", `{"answer": ""}`)
	w.step(400, "POST", asks+"/answer", `{"answer": "a\u0000b"}`)
	w.step(413, "POST", asks+"/answer", `{"answer": "`+strings.Repeat("x", agent.MaxAnswer+1)+`"}`)
	w.step(202, "POST", asks+"/answer", `{"answer": "yes"}`)
	w.step(200, "GET", asks+"?wait=20", "")
}

func (w *walker) jobs() {
	w.t.Helper()
	const full = `{"prompt": "hello", "metadata": {"a": [1]}, "timeout_seconds": 30, "budget": {"cost": 12.5}}`
	job := w.step(202, "POST", "/execute", full, "Idempotency-Key", "one")["location"].(string)
	w.step(202, "POST", "/execute", full, "Idempotency-Key", "one")
	w.step(422, "POST", "/execute", `{"prompt": "other"}`, "Idempotency-Key", "one")
	w.step(422, "POST", "/execute", strings.Replace(full, "12.5", "13", 1), "Idempotency-Key", "one")
	w.step(422, "POST", "/execute", `{"prompt": ""}`)
	w.step(422, "POST", "/execute", `{"prompt": "x", "budget": {"cost": 0}}`)
	w.step(422, "POST", "/execute", `{"prompt": "x", "zz": 1}`)
	w.step(400, "POST", "/execute", `{"prompt": `)
	w.step(415, "POST", "/execute", full, "Content-Type", "text/plain")
	w.step(405, "GET", "/execute", "")
	w.step(200, "GET", job+"?wait=20", "")
	w.step(200, "GET", job, "", "Accept", "text/event-stream")
	w.step(200, "GET", job+"/log", "")
	w.step(200, "GET", job+"/log", "", "Last-Event-ID", "1.0.0")
	_, last, _ := strings.Cut(string(w.do("GET", job+"/log", "").body), "event: end\nid: ")
	last, _, _ = strings.Cut(last, "\n")
	w.step(204, "GET", job+"/log", "", "Last-Event-ID", last)
	w.step(204, "GET", job, "", "Last-Event-ID", last, "Accept", "text/event-stream")
	w.step(400, "GET", job+"/log", "", "Last-Event-ID", "x")
	w.step(400, "GET", job+"?wait=x", "")
	w.step(409, "POST", job+"/cancel", "")
	w.step(404, "GET", "/jobs/ex_0000000000000000000000000b", "")
	w.step(404, "GET", "/jobs/nonsense", "")
	w.conversation(job)
	w.step(200, "GET", "/jobs?status=completed&repo=x&label=a%3Db&limit=1", "")
	w.step(200, "GET", "/jobs", "")
	w.step(400, "GET", "/jobs?status=lost", "")
	w.step(400, "GET", "/jobs?limit=101", "")
	w.step(400, "GET", "/jobs?label=x", "")
	w.step(400, "GET", "/jobs?prompt=x", "")
	failed := w.step(202, "POST", "/execute", `{"prompt": "fail"}`)["location"].(string)
	w.step(200, "GET", failed+"?wait=20", "")
	w.step(200, "GET", failed+"/log", "")
	for _, end := range [][2]string{{"POST", "/cancel"}, {"DELETE", ""}} {
		waiting := w.step(202, "POST", "/execute", `{"prompt": "wait"}`)["location"].(string)
		w.step(200, "GET", waiting, "")
		w.step(202, end[0], waiting+end[1], "", "Idempotency-Key", "c")
		w.step(200, "GET", waiting+"?wait=20", "")
	}
}

func (w *walker) chats() {
	w.t.Helper()
	const said = `"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}]`
	w.step(200, "POST", "/v1/chat/completions", `{"model": "any", `+said+`, "temperature": 0.5, "n": 1}`, "Idempotency-Key", "k")
	w.step(200, "POST", "/v1/chat/completions", `{"model": "any", `+said+`}`, "Idempotency-Key", "k")
	w.step(200, "POST", "/v1/chat/completions", `{"stream": true, "stream_options": {"include_usage": true}, `+said+`}`)
	w.step(200, "POST", "/v1/chat/completions", `{"stream": true, "messages": [{"role": "user", "content": "fail"}]}`)
	w.step(422, "POST", "/v1/chat/completions", `{"messages": [{"role": "user", "content": "fail"}]}`)
	w.step(422, "POST", "/v1/chat/completions", `{"messages": [{"role": "user", "content": "other"}]}`, "Idempotency-Key", "k")
	w.step(400, "POST", "/v1/chat/completions", `{"messages": []}`)
	w.step(400, "POST", "/v1/chat/completions", `{"messages": `)
	w.step(415, "POST", "/v1/chat/completions", `{`+said+`}`, "Content-Type", "text/plain")
	w.step(413, "POST", "/v1/chat/completions", `{"model": "`+strings.Repeat("x", 2<<20)+`"}`)
	w.step(405, "DELETE", "/v1/chat/completions", "")
	w.step(200, "GET", "/v1/models", "")
	w.step(200, "GET", "/v1/models/belay", "")
	w.step(404, "GET", "/v1/models/other", "")
	w.step(403, "POST", "/v1/chat/completions", `{`+said+`}`, "Sec-Fetch-Site", "cross-site", "Origin", "http://evil.test")
	reader := w.withKey("reader", belay.ScopeRead)
	(&walker{reader, w.doc}).step(403, "POST", "/v1/chat/completions", `{`+said+`}`)
	w.key = "bly_nobody"
	w.step(401, "GET", "/v1/models", "")
	w.key = ""
}

func (w *walker) responses() {
	w.t.Helper()
	const path = "/v1/responses"
	const input = `"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}], "metadata": {"a": "b"}`
	id, _ := w.step(200, "POST", path, `{"model": "any", `+input+`}`, "Idempotency-Key", "r")["id"].(string)
	w.step(200, "POST", path, `{`+input+`, "stream": false}`, "Idempotency-Key", "r")
	w.step(200, "POST", path, `{`+input+`, "stream": true, "instructions": "be kind"}`)
	w.step(200, "POST", path, `{"input": "fail", "stream": true}`)
	w.step(422, "POST", path, `{"input": "fail"}`)
	w.step(422, "POST", path, `{"input": "other"}`, "Idempotency-Key", "r")
	w.step(400, "POST", path, `{"input": "x", "tools": [{"type": "function", "name": "f"}]}`)
	w.step(400, "POST", path, `{"input": `)
	w.step(415, "POST", path, `{`+input+`}`, "Content-Type", "text/plain")
	w.step(405, "PUT", path, "")
	w.step(200, "GET", path+"/"+id, "")
	w.step(400, "GET", path+"/"+id+"?stream=true", "")
	w.step(200, "POST", path+"/"+id+"/cancel", "")
	w.step(404, "GET", path+"/resp_nonsense", "")
	w.step(404, "POST", path+"/nonsense/cancel", "")
	w.step(405, "DELETE", path+"/"+id, "")
}

// Rule: a server with agents refuses a request below /v1/ that has no route as a problem that also has the form of
// OpenAI's API. Other addresses, and servers without agents, get only the problem.
func TestUnknownRoutesAnswerClientsOfOpenAI(t *testing.T) {
	agents, plain := serveAgents(t, 10), serve(t, httpapi.Options{})
	for _, c := range []struct {
		server       *server
		method, path string
		status       int
		foreign      bool
	}{
		{agents, "POST", "/v1/embeddings", 404, true}, {agents, "GET", "/v1/files/x", 404, true},
		{agents, "DELETE", "/v1/chat/completions", 405, true}, {agents, "POST", "/v1/\"<script>", 404, true},
		{agents, "POST", "/v1", 404, false}, {agents, "POST", "/embeddings", 404, false},
		{plain, "POST", "/v1/embeddings", 404, false},
	} {
		a := c.server.do(c.method, strings.ReplaceAll(c.path, `"`, "%22"), "")
		var got struct {
			Status int
			Code   string
			Detail string
			Error  *wire.ChatFault
		}
		if err := json.Unmarshal(a.body, &got); err != nil {
			t.Fatal(err)
		}
		if a.StatusCode != c.status || got.Status != c.status || got.Detail == "" || (got.Error != nil) != c.foreign {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.StatusCode, a.body)
		}
		want := wire.ChatFault{Message: got.Detail, Type: "invalid_request_error", Code: got.Code}
		if c.foreign && *got.Error != want {
			t.Errorf("%s %s: %s", c.method, c.path, a.body)
		}
	}
}

// A full queue refuses a job with 429 and a chat with 503, the statuses that clients of each API
// expect, and the header Retry-After says when to repeat the request. If a client repeats the
// request for a stored job, the server answers as before.
func TestAFullQueueSaysWhenToAskAgain(t *testing.T) {
	s := serveAgents(t, 1)
	job := s.want(http.StatusAccepted, nil, "POST", "/execute", `{"prompt": "wait"}`, "Idempotency-Key", "k").
		Header.Get("Location")
	const chat = `{"messages": [{"role": "user", "content": "hi"}], "stream": %t}`
	for _, c := range []struct {
		status     int
		path, body string
	}{
		{429, "/execute", `{"prompt": "more"}`}, {503, "/v1/chat/completions", fmt.Sprintf(chat, false)},
		{503, "/v1/chat/completions", fmt.Sprintf(chat, true)},
		{503, "/v1/responses", `{"input": "hi"}`}, {503, "/v1/responses", `{"input": "hi", "stream": true}`},
	} {
		a := s.want(c.status, nil, "POST", c.path, c.body)
		if a.Header.Get("Retry-After") != "5" || a.Header.Get("X-Should-Retry") != "" ||
			!strings.Contains(string(a.body), `"queue_full"`) {
			t.Errorf("%s: %v %s", c.path, a.Header, a.body)
		}
	}
	s.want(http.StatusAccepted, nil, "POST", "/execute", `{"prompt": "wait"}`, "Idempotency-Key", "k")
	s.want(http.StatusAccepted, nil, "DELETE", job, "")
}
