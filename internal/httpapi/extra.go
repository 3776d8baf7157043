package httpapi

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Route is an operation of another package, whose handler runs behind the checks of this package:
// the host, the key and its scopes, the rate, and the body. The body must be complete, within its
// limit, and JSON that all decoders interpret in the same way.
type Route struct {
	ID, Method, Path, Tag, Summary, Doc string
	// Scopes lists scopes; a key needs one of them. If Scopes is empty, every caller may use the
	// route.
	Scopes []belay.Scope
	// Request is a struct whose fields are the parameters, named by the tags path, query and header; nil if
	// there are none.
	Request reflect.Type
	// Body is the type of the request's body, nil if the request has none. Limit is the most bytes
	// of the body; 0 means the limit of this package's routes.
	Body  reflect.Type
	Limit int64
	// Answer is the type of the body of a success, and Status its status; 0 means 200. Headers is a struct
	// whose fields are the headers of a success, named by the tag header.
	// Text is the media type of a body that is text; empty if the body is JSON.
	Answer  reflect.Type
	Text    string
	Headers reflect.Type
	Status  int
	// Stream says that an answer may have no end, and Events are the server-sent events of such an answer.
	Stream bool
	Events []Event
	// If Token is set, a request without a key may open the stream with a stream token of the
	// execution whose id is in the path.
	Token bool
	// Over describes, for the OpenAPI document, when the route answers 204 because a stream has no
	// more events; it is empty if the route never answers 204.
	Over string
	// Also lists the statuses of refusals in addition to those of every route.
	Also []int
	// Refuse writes a refusal of the checks before the handler, in a form other than a problem, and
	// Fault is the type of that form. If Refuse is nil, these refusals are problems.
	Refuse func(http.ResponseWriter, wire.Problem)
	Fault  reflect.Type
	// Handler answers the requests. Each of its writes must end within the write timeout; a handler
	// that streams moves the deadline with http.ResponseController.
	Handler http.HandlerFunc
}

// extra adds the routes of other packages.
func (a *api) extra() {
	for i := range a.o.Extra {
		x := &a.o.Extra[i]
		rt := &route{
			id: x.ID, method: x.Method, path: x.Path, tag: x.Tag, summary: x.Summary, doc: x.Doc, scopes: x.Scopes,
			status: x.Status, body: x.Body != nil, limit: x.Limit, stream: x.Stream, errors: x.Also, refuse: x.Refuse,
			fault: x.Fault, heads: x.Headers, token: x.Token,
		}
		a.foreign = a.foreign || x.Refuse != nil
		a.define(rt, x.Handler, func(d *document) { x.describe(d, rt) })
	}
}

// describe adds the route to the OpenAPI document.
func (x *Route) describe(d *document, rt *route) {
	op := d.operation(rt)
	op.Parameters = parametersOf(d.schemas(), x.Request)
	if x.Body != nil {
		op.RequestBody = &huma.RequestBody{
			Required: true, Content: map[string]*huma.MediaType{
				"application/json": {Schema: d.schema(x.Body, x.ID)},
			},
		}
	}
	content := make(map[string]*huma.MediaType)
	if x.Text != "" {
		content[x.Text] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	if x.Answer != nil {
		content["application/json"] = &huma.MediaType{Schema: d.schema(x.Answer, x.ID)}
	}
	if len(x.Events) > 0 {
		content["text/event-stream"] = d.eventStream(x.Events...)
	}
	success := &huma.Response{
		Description: http.StatusText(rt.status), Content: content, Headers: make(map[string]*huma.Param),
	}
	headersOf(d.schemas(), x.Headers, success)
	op.Responses[strconv.Itoa(rt.status)] = success
	if x.Over != "" {
		op.Responses["204"] = noContent(x.Over)
	}
	d.doc().AddOperation(&op)
}

// answer writes a refusal in the form of the route.
func (rt *route) answer(w http.ResponseWriter, f *refusal) {
	if rt.refuse == nil {
		f.write(w)
		return
	}
	for name, values := range f.header {
		w.Header()[name] = values
	}
	rt.refuse(w, f.problem)
}

// Actor is the name of the key with which a request was sent, or the name that the request gives if it needed no key.
func Actor(ctx context.Context, said string) string { return callerOf(ctx).actor(said) }

// Trace is the trace in the headers of a request; zero if they have none that is valid.
func Trace(ctx context.Context) belay.Trace {
	if in, ok := ctx.Value(admittedKey{}).(*admitted); ok {
		return in.trace
	}
	return belay.Trace{}
}
