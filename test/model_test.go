package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// model is a stand-in for Anthropic's models: it answers requests for /v1/messages on loopback with
// a stream of events. A script decides the answers.
type model struct {
	t   *testing.T
	url string
	// gate is the address of a proxy that records and refuses every request.
	gate string

	mu     sync.Mutex
	script func(talk dialogue) move
	asked  []dialogue
	strays []string
}

// move is one answer of the model: a text, a tool call, or both. After an answer without a tool
// call the agent does not ask the model again.
type move struct {
	text, tool string
	input      map[string]any
}

// dialogue is the conversation that the model gets.
type dialogue struct {
	model string
	dir   string // the directory in which the agent works
	// prompts are the user's texts, without those that the agent adds.
	prompts []string
	// calls are the model's own tool calls, with their results.
	calls []call
}

type call struct {
	id, tool, input, result string
}

// newModel starts the stand-in for a language model, an HTTP server whose answers the script decides.
func newModel(t *testing.T, script func(talk dialogue) move) *model {
	t.Helper()
	m := &model{t: t, script: script}
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	m.url = s.URL
	gate, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.gate = gate.Addr().String()
	go http.Serve(gate, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.stray("by the proxy " + r.Method + " " + r.Host)
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(func() { _ = gate.Close() })
	return m
}

// env returns environment variables that let the agent connect to the model and to nothing else.
func (m *model) env() []string {
	return []string{
		"ANTHROPIC_BASE_URL=" + m.url, "ANTHROPIC_API_KEY=sk-ant-stand-in",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"HTTPS_PROXY=http://" + m.gate, "HTTP_PROXY=http://" + m.gate, "NO_PROXY=127.0.0.1",
	}
}

// names returns the names of env's variables.
func (m *model) names() string {
	var all []string
	for _, v := range m.env() {
		name, _, _ := strings.Cut(v, "=")
		all = append(all, name)
	}
	return strings.Join(all, ",")
}

func (m *model) stray(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.strays = append(m.strays, what)
}

// talks returns the dialogues that the model got, in order.
func (m *model) talks() []dialogue {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked)
}

// checkOnlyModelAsked checks that the agent sent requests only to the model.
func (m *model) checkOnlyModelAsked() {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.strays) > 0 {
		m.t.Errorf("the agent also requested %q", m.strays)
	}
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the test killed the agent during the request
	}
	if r.Method == http.MethodHead { // the agent checks whether the server answers
		return
	}
	if r.URL.Path != "/v1/messages" {
		m.stray(r.Method + " " + r.URL.Path)
		http.NotFound(w, r)
		return
	}
	talk, err := dialogueOf(body)
	if err != nil {
		m.t.Errorf("the model was asked with %s: %v", clip(string(body)), err)
	}
	m.mu.Lock()
	m.asked = append(m.asked, talk)
	n := len(m.asked)
	next := m.script(talk)
	m.mu.Unlock()
	next.stream(w, talk.model, n)
}

// stream writes an answer of the model as Anthropic's API streams a message.
func (v move) stream(w http.ResponseWriter, model string, n int) {
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(kind string, more map[string]any) {
		data := map[string]any{"type": kind}
		for name, value := range more {
			data[name] = value
		}
		raw, err := json.Marshal(data)
		if err == nil {
			_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, raw)
		}
		if flusher, ok := w.(http.Flusher); ok && err == nil {
			flusher.Flush()
		}
	}
	event("message_start", map[string]any{"message": map[string]any{
		"id": fmt.Sprintf("msg_%d", n), "type": "message", "role": "assistant", "model": model, "content": []any{},
		"usage": map[string]any{"input_tokens": 10, "output_tokens": 1},
	}})
	index := 0
	block := func(start, delta map[string]any) {
		event("content_block_start", map[string]any{"index": index, "content_block": start})
		event("content_block_delta", map[string]any{"index": index, "delta": delta})
		event("content_block_stop", map[string]any{"index": index})
		index++
	}
	if v.text != "" {
		block(map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": v.text})
	}
	why := "end_turn"
	if v.tool != "" {
		why = "tool_use"
		input, err := json.Marshal(v.input)
		if err != nil {
			panic(err) // a test's script contains an invalid input
		}
		block(
			map[string]any{
				"type": "tool_use", "id": fmt.Sprintf("toolu_%d", n), "name": v.tool, "input": map[string]any{},
			},
			map[string]any{"type": "input_json_delta", "partial_json": string(input)},
		)
	}
	event("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": why}, "usage": map[string]any{"output_tokens": 5},
	})
	event("message_stop", nil)
}

func dialogueOf(body []byte) (dialogue, error) {
	var asked struct {
		Model    string
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &asked); err != nil {
		return dialogue{}, err
	}
	d := dialogue{model: asked.Model}
	if found := primary.FindAllSubmatch(body, -1); len(found) > 0 {
		d.dir = string(found[len(found)-1][1])
	}
	for _, m := range asked.Messages {
		for _, b := range partsOf(m.Content) {
			switch {
			case b.Type == "tool_use":
				d.calls = append(d.calls, call{id: b.ID, tool: b.Name, input: string(b.Input)})
			case b.Type == "tool_result":
				for i := range d.calls {
					if d.calls[i].id == b.Of {
						d.calls[i].result = string(b.Content)
					}
				}
			case b.Type == "text" && m.Role == "user" && !strings.HasPrefix(b.Text, "<system-reminder>"):
				d.prompts = append(d.prompts, b.Text)
			}
		}
	}
	return d, nil
}

// primary finds the working directory in the system prompt that the agent sends to its model.
var primary = regexp.MustCompile(`Primary working directory: ([^\\"]+)`)

// part is one part of a message.
type part struct {
	Type    string
	Text    string
	ID      string
	Name    string
	Input   json.RawMessage
	Of      string `json:"tool_use_id"`
	Content json.RawMessage
}

func partsOf(raw json.RawMessage) []part {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []part{{Type: "text", Text: text}}
	}
	var all []part
	_ = json.Unmarshal(raw, &all) // parts of an unknown form are left out
	return all
}
