package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

var ready = regexp.MustCompile(`https?://127\.0\.0\.1:\d+`)

// serve starts belay serve on a free port and returns its address once it is ready.
func (p *place) serve(args ...string) (*started, api) {
	p.t.Helper()
	x := p.start(p.command(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...))
	x.until("the server is ready", func() bool { return ready.MatchString(x.err.String()) })
	return x, api{p.t, ready.FindString(x.err.String())}
}

// api calls a running server over plain HTTP, as clients without the SDK do.
type api struct {
	t   *testing.T
	url string
}

// answer is a response of the server.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// at returns a value in an answer's body by its path: at("lease", "token").
func (a answer) at(path ...string) any {
	var v any = a.body
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func (a answer) string(path ...string) string {
	s, _ := a.at(path...).(string)
	return s
}

// call makes one request. headers alternates between names and values.
func (a api) call(method, path, body string, headers ...string) answer {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	out := answer{status: response.StatusCode, header: response.Header, text: string(text)}
	_ = json.Unmarshal(text, &out.body)
	return out
}

// want makes one request and checks the status of the answer.
func (a api) want(status int, method, path, body string, headers ...string) answer {
	a.t.Helper()
	got := a.call(method, path, body, headers...)
	if got.status != status {
		a.t.Fatalf("%s %s: %d, want %d\n%s", method, path, got.status, status, got.text)
	}
	return got
}

// seen is an event with the time at which a watcher received it.
type seen struct {
	at   time.Time
	kind string
	seq  float64
}

// watch follows an execution by server-sent events until the execution or the test ends.
func (a api) watch(id string) <-chan seen {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.url+"/v1/executions/"+id+"/events", nil)
	if err != nil {
		a.t.Fatal(err)
	}
	events := make(chan seen, 10_000)
	go func() {
		defer close(events)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return
		}
		defer response.Body.Close()
		name := ""
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			line := lines.Bytes()
			if v, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
				name = string(v)
			}
			if v, ok := bytes.CutPrefix(line, []byte("data: ")); ok && name == "event" {
				var e struct {
					Kind string
					Seq  float64
				}
				_ = json.Unmarshal(v, &e)
				events <- seen{time.Now(), e.Kind, e.Seq}
			}
		}
	}()
	return events
}

// await waits for an event of a kind.
func await(t *testing.T, events <-chan seen, kind string) seen {
	t.Helper()
	over := time.After(patience)
	for {
		select {
		case e, open := <-events:
			if !open {
				t.Fatalf("the watch ended without %s", kind)
			}
			if e.kind == kind {
				return e
			}
		case <-over:
			t.Fatalf("no %s within %s", kind, patience)
		}
	}
}
