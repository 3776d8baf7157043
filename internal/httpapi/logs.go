package httpapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

const (
	// defaultChunks is how many chunks an answer has if the request names no limit.
	defaultChunks = 64
	// logPoll is how often a log is read while a client follows it, because no event reports an
	// appended chunk.
	logPoll = 250 * time.Millisecond
)

type logRequest struct {
	ID     belay.ExecutionID `path:"id"`
	Name   string            `path:"name" maxLength:"600" doc:"The name of a log or artifact."`
	From   int64             `query:"from" minimum:"0" doc:"The first chunk's number."`
	Limit  int               `query:"limit" minimum:"1" maximum:"256" doc:"How many chunks; 64 by default. An answer in text has all of them."`
	Wait   wait              `query:"wait"`
	Accept string            `header:"Accept" hidden:"true"`
}

func (a *api) logs() {
	add(a, route{
		id: "getLog", method: http.MethodGet, path: "/v1/executions/{id}/logs/{name}", tag: "executions",
		summary: "Read a log or an artifact",
		doc: "JSON has the chunks with their numbers and times, and the content in base64. Accept: text/plain or " +
			"application/octet-stream gives the content " +
			"itself; with wait the answer follows the log for that long, or until the execution has ended.",
		scopes: []belay.Scope{belay.ScopeRead, belay.ScopeWorker}, stream: true,
	}, a.log, func(d *document, op *huma.Operation) {
		op.Responses["200"].Content = map[string]*huma.MediaType{
			"application/json":         {Schema: d.schema(reflect.TypeFor[wire.Chunks](), "")},
			"text/plain":               {Schema: &huma.Schema{Type: huma.TypeString}},
			"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
		}
	})
}

func (a *api) log(ctx context.Context, in *logRequest) (*stream, error) {
	if _, err := a.b.Execution(ctx, in.ID); err != nil {
		return nil, err
	}
	q := belay.ChunkQuery{Execution: in.ID, Name: in.Name, From: in.From}
	// The first part is read before the answer begins, so that an error is still answered with a
	// refusal.
	first, give, err := a.part(ctx, q, in.Limit)
	if err != nil {
		return nil, err
	}
	give = sync.OnceFunc(give)
	unread := context.AfterFunc(ctx, give) // gives the memory back if the answer is never written
	return &stream{Body: func(c huma.Context) {
		defer unread()
		defer give()
		r, w := humago.Unwrap(c)
		p := &pour{api: a, ctx: r.Context(), sender: sender{w, a.o.WriteTimeout}, q: q}
		kind := plain(in.Accept)
		if kind == "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			p.chunks(first, give, cmp.Or(in.Limit, defaultChunks))
			return
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(http.StatusOK)
		p.content(first, give, in.Wait.Duration)
	}}, nil
}

// part takes memory from the budget that all readers of logs share, and reads some chunks of a log,
// no more than most. The caller must call give, which returns the memory, when it no longer uses
// the chunks.
func (a *api) part(ctx context.Context, q belay.ChunkQuery, most int) (chunks []belay.StoredChunk, give func(),
	err error) {
	if q.Limit = logChunks; most > 0 {
		q.Limit = min(most, logChunks)
	}
	if give, err = a.o.Reading.Take(ctx, PageBytes); err != nil {
		return nil, nil, err
	}
	if chunks, err = a.b.Chunks(ctx, q); err != nil {
		give()
		return nil, nil, err
	}
	return chunks, give, nil
}

// plain is the media type of the log's content, or empty if the client accepts JSON.
func plain(accept string) string {
	switch kind, _, _ := strings.Cut(accept, ";"); strings.TrimSpace(kind) {
	case "text/plain":
		return "text/plain; charset=utf-8"
	case "application/octet-stream":
		return "application/octet-stream"
	}
	return ""
}

// pour writes a log a part at a time, so that no more than a part is in memory.
type pour struct {
	*api
	ctx context.Context // the context of the request
	sender
	q belay.ChunkQuery
}

// next reads the next part of the log.
func (p *pour) next(most int) ([]belay.StoredChunk, func(), bool) {
	chunks, give, err := p.part(p.ctx, p.q, most)
	return chunks, give, err == nil
}

// chunks writes no more than left chunks as JSON. An answer that cannot be finished is cut off,
// because half an answer must not look complete.
func (p *pour) chunks(part []belay.StoredChunk, give func(), left int) {
	ok := p.send([]byte(`{"chunks":[`))
	for between := ""; ok; {
		read := len(part)
		for _, c := range part {
			if c.Data == nil {
				c.Data = []byte{} // an empty text in JSON, not null
			}
			text, err := json.Marshal(&c)
			ok = ok && err == nil && p.send(append([]byte(between), text...))
			between, p.q.From = ",", c.N+1
		}
		give()
		if left -= read; !ok || read < logChunks || left <= 0 {
			break
		}
		part, give, ok = p.next(left)
	}
	if !ok || !p.send([]byte("]}\n")) {
		panic(http.ErrAbortHandler)
	}
}

// content writes the content of a log, and follows it for the given time. An answer that cannot be
// finished is cut off.
func (p *pour) content(part []belay.StoredChunk, give func(), follow time.Duration) {
	over := time.NewTimer(follow)
	defer over.Stop()
	for last := follow == 0; ; {
		ok := true
		read := len(part)
		for _, c := range part {
			ok = ok && p.send(c.Data)
			p.q.From = c.N + 1
		}
		give()
		if !ok || read < logChunks && last {
			return
		}
		if read < logChunks {
			last = !p.more(p.ctx, p.q.Execution, over.C) // the next read still gets the chunks written before the end
		}
		if part, give, ok = p.next(0); !ok && p.ctx.Err() == nil {
			panic(http.ErrAbortHandler)
		} else if !ok {
			return
		}
	}
}

// more waits a moment for more of a log, and reports whether the reader should continue to follow
// it.
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
