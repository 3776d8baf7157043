package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay/internal/wire"
)

// hot registers a route that workers use all the time. The OpenAPI document has it like every other
// route, and the API decodes its bodies as strictly as those of other routes. But huma does not
// decode them, because huma would decode each body twice. The handler itself checks the limits in
// B's schema.
func hot[B, R any](a *api, rt route, h func(ctx context.Context, r *http.Request, body *B, out http.Header) (*R,
	error)) {
	if rt.shape = shapeOf(reflect.TypeFor[B]()); rt.path == "/v1/batch" {
		rt.shape.lenient() // a missing field must refuse only its operation, not the whole batch
	}
	a.define(&rt, func(w http.ResponseWriter, r *http.Request) {
		reply, err := answer(r, w.Header(), h)
		switch {
		case err != nil:
			f := refuse(err)
			a.failed(r.Context(), &rt, f)
			f.write(w)
		case reply == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			respond(w, rt.status, reply)
		}
	}, func(d *document) { describeHot(d, &rt, reflect.TypeFor[B](), reflect.TypeFor[R]()) })
}

// describeHot adds a route of hot to the OpenAPI document.
func describeHot(d *document, rt *route, body, answer reflect.Type) {
	op := d.operation(rt)
	op.RequestBody.Required = true
	op.RequestBody.Content["application/json"].Schema = d.schema(body, "")
	switch {
	case rt.submits:
		op.Parameters = []*huma.Param{{
			Name: wire.HeaderOnly, In: "header", Schema: &huma.Schema{
				Type: huma.TypeString, Enum: []any{wire.OnlySubmits},
			},
			Description: "Says that every operation submits an execution without a parent. A server under too much load " +
				"refuses such a batch before it reads the body.",
		}, {
			Name: "traceparent", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "The trace of submissions that have none of their own, as in W3C Trace Context. It is ignored " +
				"if it is not valid.",
		}, {
			Name: "tracestate", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "The tracestate that belongs to traceparent.",
		}}
	default:
		op.Parameters = []*huma.Param{{
			Name: "id", In: "path", Required: true, Schema: workerID{}.Schema(d.schemas()),
		}}
	}
	success := &huma.Response{
		Description: http.StatusText(rt.status), Headers: make(map[string]*huma.Param),
		Content: map[string]*huma.MediaType{"application/json": {Schema: d.schema(answer, "")}},
	}
	for _, name := range rt.headers {
		success.Headers[name] = &huma.Param{Schema: headerSchema(d.schemas(), name)}
	}
	op.Responses[strconv.Itoa(rt.status)] = success
	for _, status := range rt.also {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: http.StatusText(status)}
	}
	d.doc().AddOperation(&op)
}

// headerSchema is the schema of a header of a claim's answer.
func headerSchema(schemas huma.Registry, name string) *huma.Schema {
	switch name {
	case "Lease-Id":
		return leaseID{}.Schema(schemas)
	case "Lease-Token":
		return token{}.Schema(schemas)
	default:
		return &huma.Schema{Type: huma.TypeString}
	}
}

func answer[B, R any](r *http.Request, out http.Header, h func(context.Context, *http.Request, *B, http.Header) (*R,
	error)) (*R, error) {
	var body B
	if r.URL.RawQuery != "" {
		return nil, malformed("this takes no query")
	}
	whole, ok := r.Body.(*whole)
	if !ok {
		return nil, malformed("this needs a body")
	}
	if trimmed := bytes.TrimLeft(whole.text, " \t\r\n"); trimmed[0] != '{' {
		return nil, invalid("body", "must be an object")
	}
	if err := decode(whole.text, &body); err != nil {
		return nil, err
	}
	return h(r.Context(), r, &body, out)
}

// respond writes a success.
func respond(w http.ResponseWriter, status int, body any) {
	buffer := buffers.Get()
	defer buffers.Put(buffer)
	if err := encode(buffer, body); err != nil {
		refuse(err).write(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(buffer.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(buffer.Bytes())
}

// bounded refuses a number outside the limits of its schema.
func bounded(field string, n, least, most int64) error {
	if n < least || n > most {
		return invalid("body."+field, "must be between "+strconv.FormatInt(least, 10)+" and "+strconv.FormatInt(most,
			10))
	}
	return nil
}

// maxMillis is the most milliseconds that fit into a time.Duration.
const maxMillis = int64(1<<63-1) / int64(1e6)

// waitOf is the wait of a claim, wire.MaxWait at most.
func waitOf(ms int64) wait { return wait{min(wire.Duration(ms), wire.MaxWait)} }
