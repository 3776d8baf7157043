package test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
)

// frame is a server-sent event. A comment in the stream is a frame with the name ":".
type frame struct{ id, name, data string }

// follow reads a stream of events until the stream ends or the test cuts it. headers alternates
// between names and values.
func (a api) follow(path, last string, headers ...string) (events <-chan frame, cut func()) {
	a.t.Helper()
	ctx, cancel := context.WithCancel(a.t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	return a.events(request, cancel, headers...)
}

func (a api) events(request *http.Request, cancel func(), headers ...string) (<-chan frame, func()) {
	a.t.Helper()
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request) //nolint:bodyclose // the reader of the events closes the body
	if err != nil {
		a.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		_ = response.Body.Close()
		a.t.Fatalf("%s: %s", request.URL, response.Status)
	}
	out := make(chan frame, 10_000)
	go func() {
		defer close(out)
		defer response.Body.Close()
		var f frame
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "":
				if value != "" {
					f = frame{name: ":", data: value}
				}
				if f != (frame{}) {
					out <- f
				}
				f = frame{}
			case "id":
				f.id = value
			case "event":
				f.name = value
			case "data":
				f.data = value
			}
		}
	}()
	return out, cancel
}
