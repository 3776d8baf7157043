package httpapi

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// Event is one kind of event of a stream of server-sent events, as the OpenAPI document describes it.
type Event struct {
	// Schema is the name of the event's schema in the document.
	Schema string
	// Name is the event's name on the wire; empty for an event without a name, which browsers call "message".
	Name string
	// ID is the pattern of the event's id, empty if the event has none.
	ID string
	// Data is the type of the event's data, which is JSON. If it is nil, the data is the word Word.
	Data reflect.Type
	Word string
}

// eventStream describes a stream of server-sent events: an array whose items are the events. Each kind of event
// has a schema of its own among the components.
func (a *api) eventStream(events ...Event) *huma.MediaType {
	schemas := a.huma.OpenAPI().Components.Schemas
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
			property("data", schemas.Schema(e.Data, true, ""))
		} else {
			property("data", &huma.Schema{Type: huma.TypeString, Enum: []any{e.Word}})
		}
		schemas.Map()[e.Schema] = s
		items.AnyOf = append(items.AnyOf, &huma.Schema{Ref: "#/components/schemas/" + e.Schema})
	}
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeArray, Items: items}}
}

// places are the tags of a parameter's field, each the place of the parameter in a request.
var places = []string{"path", "query", "header"}

// parametersOf describes the parameters that the fields of a struct are.
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

// headersOf adds the headers that the fields of a struct are to a response.
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

// plainSchema is the schema of a field without the description, which stands beside it.
func plainSchema(schemas huma.Registry, f reflect.StructField) *huma.Schema {
	s := *huma.SchemaFromField(schemas, f, "")
	s.Description = ""
	return &s
}

// amend says in the document what the types cannot say, and leaves out what is no part of OpenAPI.
func amend(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas.Map()
	if lock := schemas["LockReply"]; lock != nil {
		was := lock.Properties["checkpoint"]
		lock.Properties["checkpoint"] = &huma.Schema{
			Description: was.Description, AnyOf: []*huma.Schema{{Ref: was.Ref}, {Type: "null"}},
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
	eachSchema(doc, func(s *huma.Schema) {
		s.PatternDescription = "" // the messages of refusals that say it are made by now
	})
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
