package httpapi

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// Event describes, for the OpenAPI document, one kind of event in a stream of server-sent events.
type Event struct {
	// Schema is the name of the event's schema in the document.
	Schema string
	// Name is the event's name on the wire; empty for an event without a name, which browsers call "message".
	Name string
	// ID is the pattern of the event's id, empty if the event has none.
	ID string
	// Data is the type of the event's data, which is JSON. If Data is nil, the event's data is the
	// text of Word instead.
	Data reflect.Type
	Word string
}

// eventStream describes a stream of server-sent events: an array whose items are the events. Each kind of event
// has a schema of its own among the components.
func (d *document) eventStream(events ...Event) *huma.MediaType {
	items := &huma.Schema{}
	for _, e := range events {
		s := &huma.Schema{
			Type: huma.TypeObject, Properties: make(map[string]*huma.Schema), AdditionalProperties: false,
		}
		property := func(name string, schema *huma.Schema) {
			s.Properties[name] = schema
			s.Required = append(s.Required, name)
		}
		if e.Name != "" {
			property("event", &huma.Schema{Type: huma.TypeString, Enum: []any{e.Name}})
		}
		if e.ID != "" {
			property("id", &huma.Schema{Type: huma.TypeString, Pattern: e.ID})
		}
		if e.Data != nil {
			property("data", d.schema(e.Data, ""))
		} else {
			property("data", &huma.Schema{Type: huma.TypeString, Enum: []any{e.Word}})
		}
		d.schemas().Map()[e.Schema] = s
		items.AnyOf = append(items.AnyOf, &huma.Schema{Ref: "#/components/schemas/" + e.Schema})
	}
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeArray, Items: items}}
}

// noContent is a response without a body.
func noContent(doc string) *huma.Response {
	return &huma.Response{Description: doc, Headers: make(map[string]*huma.Param)}
}

// places are the struct tags of parameters; each tag names the part of the request that has the
// parameter.
var places = []string{"path", "query", "header"}

// parametersOf describes each field of a struct as a parameter.
func parametersOf(schemas huma.Registry, t reflect.Type) []*huma.Param {
	if t == nil {
		return nil
	}
	var out []*huma.Param
	for f := range t.Fields() {
		for _, in := range places {
			if name, ok := f.Tag.Lookup(in); ok {
				out = append(out, &huma.Param{
					Name: name, In: in, Required: in == "path", Description: f.Tag.Get("doc"),
					Schema: plainSchema(schemas, f),
				})
			}
		}
	}
	return out
}

// headerOf describes each field of T as a header.
func headerOf[T any](d *document) map[string]*huma.Param {
	r := &huma.Response{Headers: make(map[string]*huma.Param)}
	headersOf(d.schemas(), reflect.TypeFor[T](), r)
	return r.Headers
}

// headersOf adds each field of a struct as a header of a response.
func headersOf(schemas huma.Registry, t reflect.Type, to *huma.Response) {
	if t == nil {
		return
	}
	for f := range t.Fields() {
		to.Headers[f.Tag.Get("header")] = &huma.Param{
			Description: f.Tag.Get("doc"), Schema: plainSchema(schemas, f),
		}
	}
}

// plainSchema is the schema of a field without its description, because the parameter or header
// itself has the description.
func plainSchema(schemas huma.Registry, f reflect.StructField) *huma.Schema {
	s := *huma.SchemaFromField(schemas, f, "")
	s.Description = ""
	return &s
}

// nullable has, by the name of a schema, the fields whose value is an object or null: huma knows no
// nullable references.
var nullable = map[string][]string{
	"LockReply": {"checkpoint"}, "Response": {"error", "incomplete_details", "usage"},
}

// amend adds to the document what Go types cannot express, and removes unused responses and fields
// that are no part of OpenAPI.
func amend(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas.Map()
	for name, fields := range nullable {
		for _, field := range fields {
			if s := schemas[name]; s != nil {
				was := s.Properties[field]
				s.Properties[field] = &huma.Schema{
					Description: was.Description, AnyOf: []*huma.Schema{{Ref: was.Ref}, {Type: "null"}},
				}
			}
		}
	}
	used := make(map[string]bool)
	for _, op := range operationsOf(doc) {
		for _, r := range op.Responses {
			used[r.Ref] = true
		}
	}
	for name := range doc.Components.Responses {
		if !used["#/components/responses/"+name] {
			delete(doc.Components.Responses, name)
		}
	}
	common(doc)
	eachSchema(doc, func(s *huma.Schema) {
		s.PatternDescription = "" // no part of OpenAPI; huma has used it already, in the messages of refusals
	})
}

// common adds the headers that every answer may have.
func common(doc *huma.OpenAPI) {
	number := &huma.Schema{Type: huma.TypeInteger}
	doc.Components.Headers = map[string]*huma.Header{
		"X-Request-Id": {
			Description: "The id of the request: that of the request's header X-Request-Id if it is a word of at most " +
				"64 letters, digits, dots, hyphens and underscores, or else a new one. The server's log has it too.",
			Required: true, Schema: &huma.Schema{Type: huma.TypeString, Pattern: "^[A-Za-z0-9._-]{1,64}$"},
		},
		"RateLimit-Limit": {
			Description: "How many requests the caller may send at once, if the server limits them.", Schema: number,
		},
		"RateLimit-Remaining": {Description: "How many requests the caller may still send at once.", Schema: number},
		"RateLimit-Reset": {
			Description: "In how many seconds the caller may send as many requests as RateLimit-Limit says again.",
			Schema:      number,
		},
	}
	add := func(r *huma.Response) {
		if r.Ref != "" {
			return
		}
		if r.Headers == nil {
			r.Headers = make(map[string]*huma.Param)
		}
		for name := range doc.Components.Headers {
			r.Headers[name] = &huma.Param{Ref: "#/components/headers/" + name}
		}
	}
	for _, r := range doc.Components.Responses {
		add(r)
	}
	for _, op := range operationsOf(doc) {
		for _, r := range op.Responses {
			add(r)
		}
	}
}

// operationsOf are the operations of a document.
func operationsOf(doc *huma.OpenAPI) []*huma.Operation {
	var out []*huma.Operation
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
			if op != nil {
				out = append(out, op)
			}
		}
	}
	return out
}

// eachSchema visits every schema of a document.
func eachSchema(doc *huma.OpenAPI, visit func(*huma.Schema)) {
	for _, s := range doc.Components.Schemas.Map() {
		walk(s, visit)
	}
	responses := make([]*huma.Response, 0, len(doc.Components.Responses))
	for _, r := range doc.Components.Responses {
		responses = append(responses, r)
	}
	for _, op := range operationsOf(doc) {
		for _, p := range op.Parameters {
			walk(p.Schema, visit)
		}
		if op.RequestBody != nil {
			for _, m := range op.RequestBody.Content {
				walk(m.Schema, visit)
			}
		}
		for _, r := range op.Responses {
			responses = append(responses, r)
		}
	}
	for _, r := range responses {
		for _, h := range r.Headers {
			walk(h.Schema, visit)
		}
		for _, m := range r.Content {
			walk(m.Schema, visit)
		}
	}
}

// walk visits a schema and the schemas within it.
func walk(s *huma.Schema, visit func(*huma.Schema)) {
	if s == nil {
		return
	}
	visit(s)
	for _, p := range s.Properties {
		walk(p, visit)
	}
	for _, list := range [][]*huma.Schema{s.OneOf, s.AnyOf, s.AllOf, {s.Items}} {
		for _, one := range list {
			walk(one, visit)
		}
	}
	if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
		walk(more, visit)
	}
}
