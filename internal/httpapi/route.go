package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// route is one operation of the API: how it is documented, and which checks its requests pass.
type route struct {
	id      string // the operation's name in generated clients
	method  string
	path    string
	tag     string
	summary string
	doc     string
	scopes  []belay.Scope // a key needs one of these; if empty, no key is needed
	status  int           // the status of a success; 0 means 200
	also    []int         // statuses of further successes with the same body
	errors  []int         // statuses of refusals beyond those of every route
	body    bool          // the request has a body
	// strangers is for a route that needs no key and takes large bodies: it returns the largest size of the body, and
	// these bodies have memory of their own.
	strangers func(*http.Request) (int64, error)
	raw       bool                                    // the body may have any type; the handler checks it
	limit     int64                                   // the most bytes of the body; 0 means wire.MaxBody
	lists     []string                                // query parameters that may be repeated
	stream    bool                                    // the answer may have no end
	wait      bool                                    // the request may wait for news
	tagged    bool                                    // a success has an ETag, which If-None-Match may name
	probe     bool                                    // a probe of the server, with a rate limit of its own
	alive     bool                                    // keeps a session alive; its body gets memory before all others
	page      bool                                    // for browsers; the server asks them for a password
	token     bool                                    // a stream token opens the route
	example   string                                  // an example of the request's body
	submits   bool                                    // the header may say that a batch only submits
	headers   []string                                // headers of a success that are not fields of its type
	refuse    func(http.ResponseWriter, wire.Problem) // writes refusals in another form; nil for problems
	fault     reflect.Type                            // type of the body of refusals in another form
	heads     reflect.Type                            // struct of a success's headers, for routes of other packages
	shape     *shape                                  // the names of the body's fields, if the decoder ignores case
}

// waits reports whether a request of the route may take long and is counted against the limit of
// waiting requests. It is false for claims: they may take long too, but their number is bounded by
// the number of workers.
func (rt *route) waits() bool {
	return rt.stream || rt.wait
}

func (rt *route) pattern() string { return rt.method + " " + rt.path }

// most returns the maximum size of a request's body, in bytes.
func (rt *route) most() int64 {
	if rt.limit != 0 {
		return rt.limit
	}
	return wire.MaxBody
}

// refusals are the statuses with which the route may refuse a request.
func (rt *route) refusals() []int {
	out := []int{
		http.StatusBadRequest, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusServiceUnavailable,
	}
	out = append(out, http.StatusForbidden) // for requests to other hosts, and from pages of other sites
	out = append(out, http.StatusMethodNotAllowed)
	if len(rt.scopes) > 0 {
		out = append(out, http.StatusUnauthorized)
	}
	if rt.body {
		out = append(out, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
			http.StatusUnprocessableEntity)
	}
	if strings.Contains(rt.path, "{") {
		out = append(out, http.StatusNotFound)
	}
	return append(out, rt.errors...)
}

// operation describes the route for huma.
func (d *document) operation(rt *route) huma.Operation {
	op := huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: rt.path, Tags: []string{rt.tag}, Summary: rt.summary,
		Description:   rt.doc,
		DefaultStatus: rt.status, Responses: make(map[string]*huma.Response), MaxBodyBytes: -1, BodyReadTimeout: -1,
	}
	if len(rt.scopes) > 0 {
		names := make([]string, len(rt.scopes))
		for i, s := range rt.scopes {
			names[i] = string(s)
		}
		op.Security = []map[string][]string{{"key": {}}, {}}
		if rt.token {
			op.Security = []map[string][]string{{"key": {}}, {"streamToken": {}}, {}}
		}
		op.Extensions = map[string]any{"x-scopes": names}
	} else {
		op.Security = []map[string][]string{}
	}
	if rt.example != "" {
		op.RequestBody = &huma.RequestBody{
			Content: map[string]*huma.MediaType{"application/json": {Example: json.RawMessage(rt.example)}},
		}
	}
	for _, status := range rt.refusals() {
		op.Responses[strconv.Itoa(status)] = d.refused(rt, status)
	}
	return op
}

// refused describes the route's refusals with a status.
func (d *document) refused(rt *route, status int) *huma.Response {
	if rt.fault == nil {
		return &huma.Response{Ref: "#/components/responses/" + problemName(status)}
	}
	content := map[string]*huma.MediaType{"application/json": {Schema: d.schema(rt.fault, "")}}
	switch status {
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusInternalServerError:
		// The server may refuse the request before it knows the route, or after the route's handler
		// has panicked.
		content[wire.ProblemType] = &huma.MediaType{Schema: d.schema(reflect.TypeFor[wire.Problem](), "")}
	}
	response := refusalResponse(status, content)
	if rt.stream && (status == http.StatusServiceUnavailable || status == http.StatusUnprocessableEntity) {
		headersOf(d.schemas(), rt.heads, response)
	}
	return response
}

// add adds a route: huma reads its parameters and body as the type I, writes its answer from the
// type O, and describes both types in the OpenAPI document. The functions in more add what the types
// do not say.
func add[I, O any](a *api, rt route, h func(context.Context, *I) (*O, error),
	more ...func(*document, *huma.Operation),
) {
	register := func(d *document) {
		huma.Register(d.api, d.operation(&rt), func(ctx context.Context, in *I) (*O, error) {
			out, err := h(ctx, in)
			if err != nil {
				f := refuse(err)
				a.failed(ctx, &rt, f)
				return nil, f
			}
			return out, nil
		})
	}
	a.define(&rt, a.byHuma(&rt, register), func(d *document) {
		register(d)
		op := d.documented(&rt)
		for _, status := range rt.also {
			same := *op.Responses[strconv.Itoa(rt.status)]
			same.Description = http.StatusText(status)
			if status == http.StatusNoContent || status == http.StatusNotModified {
				same.Content = nil
			}
			op.Responses[strconv.Itoa(status)] = &same
		}
		for _, describe := range more {
			describe(d, op)
		}
	})
}
