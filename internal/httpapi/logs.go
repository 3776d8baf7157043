package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

const (
	// logChunks is how many chunks are read at a time for people.
	logChunks = 16
	// logPoll is how often the end of a log is looked at while somebody follows
	// it: what is appended wakes nobody.
	logPoll = 250 * time.Millisecond
)

type logRequest struct {
	ID     belay.ExecutionID `path:"id"`
	Name   string            `path:"name" maxLength:"600" doc:"The name of a log or artifact."`
	From   int64             `query:"from" minimum:"0" doc:"The first chunk's number."`
	Limit  int               `query:"limit" minimum:"1" maximum:"256" doc:"How many chunks; 64, unless said otherwise. As text, all."`
	Wait   wait              `query:"wait"`
	Accept string            `header:"Accept" hidden:"true"`
}

func (a *api) logs() {
	add(a, route{
		id: "getLog", method: http.MethodGet, path: "/v1/executions/{id}/logs/{name}", tag: "executions", summary: "Read a log or an artifact",
		doc: "JSON has the chunks with their numbers and times, base64 inside. Accept: text/plain or application/octet-stream gives the content " +
			"itself; with wait it is followed that long, or until the execution has ended.",
		scopes: []belay.Scope{belay.ScopeRead}, stream: true,
	}, a.log)
	doc := a.documented(a.routes["GET /v1/executions/{id}/logs/{name}"])
	schemas := a.huma.OpenAPI().Components.Schemas
	doc.Responses["200"].Content = map[string]*huma.MediaType{
		"application/json":         {Schema: schemas.Schema(reflect.TypeFor[wire.Chunks](), true, "")},
		"text/plain":               {Schema: &huma.Schema{Type: huma.TypeString}},
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}
}

func (a *api) log(ctx context.Context, in *logRequest) (*stream, error) {
	q := belay.ChunkQuery{Execution: in.ID, Name: in.Name, From: in.From, Limit: in.Limit}
	kind := plain(in.Accept)
	if kind != "" {
		q.Limit = logChunks
	}
	chunks, err := a.b.Chunks(ctx, q)
	if err != nil {
		return nil, err
	}
	if len(chunks) == 0 { // no execution, or nothing in it yet
		if _, err := a.b.Execution(ctx, in.ID); err != nil {
			return nil, err
		}
		chunks = []belay.StoredChunk{}
	}
	return &stream{Body: func(c huma.Context) {
		r, w := humago.Unwrap(c)
		if kind == "" {
			respond(w, http.StatusOK, &wire.Chunks{Chunks: chunks})
			return
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(http.StatusOK)
		a.pour(r.Context(), w, q, chunks, in.Wait.Duration)
	}}, nil
}

// plain is the media type of the content itself, if that is what is wanted.
func plain(accept string) string {
	switch kind, _, _ := strings.Cut(accept, ";"); strings.TrimSpace(kind) {
	case "text/plain":
		return "text/plain; charset=utf-8"
	case "application/octet-stream":
		return "application/octet-stream"
	}
	return ""
}

// pour writes a log as it stands, and follows it for as long as it is asked to.
func (a *api) pour(ctx context.Context, w http.ResponseWriter, q belay.ChunkQuery, chunks []belay.StoredChunk, follow time.Duration) {
	s := sender{w, a.o.WriteTimeout}
	over := time.NewTimer(follow)
	defer over.Stop()
	for last := follow == 0; ; {
		for _, c := range chunks {
			if !s.send(c.Data) {
				return
			}
			q.From = c.N + 1
		}
		if len(chunks) < q.Limit {
			if last {
				return
			}
			last = !a.more(ctx, q.Execution, over.C) // what came before the end is still to be read
		}
		var err error
		if chunks, err = a.b.Chunks(ctx, q); err != nil {
			return
		}
	}
}

// more waits a moment for more of a log, and reports whether to wait again.
func (a *api) more(ctx context.Context, id belay.ExecutionID, over <-chan time.Time) bool {
	x, err := a.b.Execution(ctx, id)
	if err != nil || x.State.Terminal() {
		return false
	}
	t := time.NewTimer(logPoll)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-over:
	case <-a.o.Stopping:
	case <-ctx.Done():
	}
	return false
}
