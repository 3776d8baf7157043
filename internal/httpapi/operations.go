package httpapi

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type healthReply struct{ Body wire.Health }

// pagePaths are the paths of the pages. A path that ends with a slash stands for all paths below it.
var pagePaths = []string{
	"/{$}", "/overview", "/executions", "/executions/", "/dead", "/workers", "/queues", "/workflows", "/workflows/",
	"/schedules", "/schedules/", "/webhooks", "/webhooks/", "/notifications", "/notifications/", "/bulks", "/bulks/",
	"/act", "/start", "/audit", "/keys", "/keys/", assetsPath,
}

// operations adds the routes at the root, for operators of the server.
func (a *api) operations() {
	add(a, route{
		id: "healthz", method: http.MethodGet, path: "/healthz", tag: "operations", probe: true,
		summary: "Whether the server answers",
	}, func(context.Context, *struct{}) (*healthReply, error) { return a.health(), nil })
	add(a, route{
		id: "readyz", method: http.MethodGet, path: "/readyz", tag: "operations", probe: true,
		summary: "Whether the server takes work",
	}, func(ctx context.Context, _ *struct{}) (*healthReply, error) {
		h := a.health()
		if a.o.Ready != nil {
			notes, err := a.o.Ready(ctx)
			if err != nil {
				return nil, notReady(err)
			}
			h.Body.Notes = notes
		}
		return h, nil
	})
	a.metrics()
	if a.o.Pages != nil {
		for _, path := range pagePaths {
			a.pages(path)
		}
		a.forms()
		a.signIn()
		a.live()
	}
	a.describe()
}

func (a *api) health() *healthReply {
	return &healthReply{wire.Health{Status: "ok", Version: a.o.Version}}
}

// notReady says why the server takes no work. It shows the message of a *belay.Error only.
func notReady(err error) *refusal {
	const message = "the server does not take work now"
	e := &belay.Error{Code: belay.CodeUnavailable, Message: message}
	var known *belay.Error
	if errors.As(err, &known) {
		e.Message += ": " + known.Message
	}
	f := refuse(e)
	f.cause = err
	return f
}

// metrics adds the route of the metrics. Without Options.Metrics the route answers 404.
func (a *api) metrics() {
	h := a.o.Metrics
	if h == nil {
		h = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			unrouted(http.StatusNotFound, w.Header()).write(w)
		})
	}
	rt := route{
		id: "metrics", method: http.MethodGet, path: "/metrics", tag: "operations", summary: "Metrics for Prometheus",
		scopes: []belay.Scope{belay.ScopeRead}, errors: []int{http.StatusNotFound},
	}
	a.define(&rt, h.ServeHTTP, func(d *document) {
		op := d.operation(&rt)
		op.Responses["200"] = &huma.Response{
			Description: "OK", Content: map[string]*huma.MediaType{
				"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}},
			},
		}
		d.doc().AddOperation(&op)
	})
}

// describe adds the route of the OpenAPI document.
func (a *api) describe() {
	rt := route{
		id: "openapi", method: http.MethodGet, path: "/openapi.json", tag: "operations", summary: "This document",
		tagged: true,
	}
	text := sync.OnceValue(a.text) // built on demand: most servers get no request for it
	a.define(&rt, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(text())
	}, func(d *document) {
		op := d.operation(&rt)
		op.Responses["200"] = &huma.Response{
			Description: "OK", Content: map[string]*huma.MediaType{
				"application/json": {Schema: &huma.Schema{Type: huma.TypeObject}},
			},
			Headers: make(map[string]*huma.Param),
		}
		op.Responses["304"] = noContent("Not Modified")
		op.Parameters = parametersOf(d.schemas(), reflect.TypeFor[struct {
			Have string `header:"If-None-Match" doc:"The ETag of an answer that the caller has; the server answers 304 if the document is still the same."`
		}]())
		d.doc().AddOperation(&op)
		describeTag(d, &op)
	})
}
