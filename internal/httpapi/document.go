package httpapi

import (
	"encoding/json"
	"net/http"
	"reflect"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// document is an OpenAPI document under construction. Huma adds the operations whose requests it
// decodes and makes their handlers; the other operations are added by hand.
type document struct {
	api      huma.API
	handlers map[string]http.HandlerFunc // the handlers that huma has made, by pattern
}

// newDocument returns a document without routes. The registry has its schemas.
func newDocument(schemas huma.Registry) *document {
	configureHuma()
	d := &document{handlers: make(map[string]http.HandlerFunc)}
	d.api = humago.New(d, config(schemas))
	return d
}

// HandleFunc notes a handler that huma has made.
func (d *document) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	d.handlers[pattern] = h
}

// ServeHTTP is never called: only the mux of the API serves requests.
func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

func (d *document) doc() *huma.OpenAPI { return d.api.OpenAPI() }

func (d *document) schemas() huma.Registry { return d.doc().Components.Schemas }

// schema is the schema of a type; name is the schema's name if the type has none.
func (d *document) schema(t reflect.Type, name string) *huma.Schema {
	return d.schemas().Schema(t, true, name)
}

// documented is the route's operation in the document.
func (d *document) documented(rt *route) *huma.Operation {
	item := d.doc().Paths[rt.path]
	return map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodDelete: item.Delete,
	}[rt.method]
}

// define adds a route and its handler, and a function that describes the route in the document.
func (a *api) define(rt *route, h http.HandlerFunc, describe func(*document)) {
	if rt.status == 0 {
		rt.status = http.StatusOK
	}
	a.routes[rt.pattern()] = rt
	if describe != nil {
		a.described = append(a.described, describe)
	}
	a.mux.HandleFunc(rt.pattern(), func(w http.ResponseWriter, r *http.Request) { a.enter(w, r, rt, h) })
}

// whole returns the OpenAPI document of all routes.
func (a *api) whole() *huma.OpenAPI {
	d := newDocument(newRegistry())
	d.doc().Components.Responses = problems(d.schemas())
	for _, describe := range a.described {
		describe(d)
	}
	amend(d.doc())
	return d.doc()
}

// text returns the document as JSON.
func (a *api) text() []byte {
	text, err := json.MarshalIndent(a.whole(), "", "  ")
	if err != nil {
		panic(err) // the document has only values that this package made
	}
	return text
}

// byHuma returns a handler that decodes requests and encodes answers with huma. The function
// describe registers the route rt. The handler is built at the first request, because most
// processes serve few of the routes, and building all of them takes tens of milliseconds.
func (a *api) byHuma(rt *route, describe func(*document)) http.HandlerFunc {
	built := sync.OnceValue(func() http.HandlerFunc {
		d := newDocument(a.schemas)
		describe(d)
		return d.handlers[rt.pattern()]
	})
	return func(w http.ResponseWriter, r *http.Request) { built()(w, r) }
}

// registry is a huma.Registry for several goroutines.
type registry struct {
	mu  sync.RWMutex
	all huma.Registry
}

// Schema implements huma.Registry.
func (r *registry) Schema(t reflect.Type, allowRef bool, hint string) *huma.Schema {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all.Schema(t, allowRef, hint)
}

// SchemaFromRef implements huma.Registry.
func (r *registry) SchemaFromRef(ref string) *huma.Schema {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.all.SchemaFromRef(ref)
}

// TypeFromRef implements huma.Registry.
func (r *registry) TypeFromRef(ref string) reflect.Type {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.all.TypeFromRef(ref)
}

// Map implements huma.Registry.
func (r *registry) Map() map[string]*huma.Schema { return r.all.Map() }

// RegisterTypeAlias implements huma.Registry.
func (r *registry) RegisterTypeAlias(t, alias reflect.Type) { r.all.RegisterTypeAlias(t, alias) }
