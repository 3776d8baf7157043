package definition

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a compiled JSON Schema.
type Schema struct {
	node     *node
	compiled *jsonschema.Schema
	patterns *patternBudget
}

// maxSchema is the largest number of schemas within a schema.
const maxSchema = 1000

// The keywords of JSON Schema 2020-12 whose values are schemas.
var (
	schemaOne = []string{
		"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
		"unevaluatedProperties",
	}
	schemaMany = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaMaps = []string{"properties", "patternProperties", "dependentSchemas"}
	// schemaData are the other keywords.
	schemaData = []string{
		"$schema", "$comment", "title", "description", "default", "examples", "type", "enum", "const", "multipleOf",
		"maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength", "minLength", "pattern", "maxItems",
		"minItems", "uniqueItems", "maxContains", "minContains", "maxProperties", "minProperties", "required",
		"dependentRequired", "format", "contentEncoding", "contentMediaType", "deprecated", "readOnly", "writeOnly",
	}
	// schemaRefs are keywords that a document may not use: with them, validation could take exponential time.
	schemaRefs = []string{"$ref", "$dynamicRef", "$defs", "$id", "$anchor", "$dynamicAnchor", "definitions"}
)

// noLoader refuses to load schemas from files and URLs.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("a document may not load the schema %s", quoted(url))
}

// schema compiles the schema of a node; what names it in messages.
func (r *report) schema(n *node, what string) *Schema {
	if n == nil || n.kind != mapNode && n.kind != boolNode {
		return nil
	}
	w := schemaWalk{report: r, what: what}
	if w.walk(n); w.bad {
		return nil
	}
	budget := &patternBudget{left: maxPatternWork}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(budget.compile)
	c.DefaultDraft(jsonschema.Draft2020)
	const url = "document:schema"
	err := c.AddResource(url, n.plain())
	var compiled *jsonschema.Schema
	if err == nil {
		compiled, err = c.Compile(url)
	}
	if err != nil {
		r.schemaError(n, what, err)
		return nil
	}
	s := &Schema{n, compiled, budget}
	s.checkDefaults(r, n, what)
	return s
}

// schemaError reports the errors of a schema at their positions.
func (r *report) schemaError(n *node, what string, err error) {
	var invalid *jsonschema.SchemaValidationError
	var v *jsonschema.ValidationError
	if !errors.As(err, &invalid) || !errors.As(invalid.Err, &v) {
		r.add(n.at, "", "%s is no JSON Schema: %s", what, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	seen := map[string]bool{}
	for _, l := range leaves(v) {
		location := strings.Join(l.InstanceLocation, "/")
		if seen[location] {
			continue // another alternative of the same keyword
		}
		seen[location] = true
		x := n
		for _, k := range l.InstanceLocation {
			if next := x.child(k); next != nil {
				x = next
			}
		}
		name := what
		if len(l.InstanceLocation) > 0 {
			name = strings.Join(l.InstanceLocation, ".") + " of " + what
		}
		r.add(x.at, "", "%s is no JSON Schema: %s", name, leafText(l))
	}
}

// child returns the entry of a map or list with the name or number k.
func (n *node) child(k string) *node {
	if n.kind == listNode {
		var i int
		if _, err := fmt.Sscanf(k, "%d", &i); err == nil && i >= 0 && i < len(n.items) {
			return n.items[i]
		}
		return nil
	}
	return n.get(k)
}

// leaves returns the errors of a validation that have no further causes.
func leaves(v *jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(v.Causes) == 0 {
		return []*jsonschema.ValidationError{v}
	}
	const most = 5
	var all []*jsonschema.ValidationError
	for _, c := range v.Causes {
		if all = append(all, leaves(c)...); len(all) >= most {
			return all[:most]
		}
	}
	return all
}

// leafText describes an error without its location.
func leafText(v *jsonschema.ValidationError) string {
	out := v.BasicOutput()
	if out.Error != nil {
		return out.Error.String()
	}
	for i := range out.Errors {
		if out.Errors[i].Error != nil {
			return out.Errors[i].Error.String()
		}
	}
	return "it does not match"
}

// Validate returns an error that names each part of a value that does not match the schema. what names the value.
func (s *Schema) Validate(v any, what string) error {
	if s == nil {
		return nil
	}
	all := s.Mismatches(v)
	if len(all) == 0 {
		return nil
	}
	texts := make([]string, len(all))
	for i, m := range all {
		texts[i] = strings.Join(append([]string{what}, m.Path...), ".") + ": " + m.Message
	}
	slices.Sort(texts)
	return errors.New(strings.Join(slices.Compact(texts), "; "))
}

// Mismatch is a part of a value that does not match a schema.
type Mismatch struct {
	// Path has the names of the properties and the numbers of the entries that lead to the part. It is empty for the
	// whole value.
	Path    []string
	Message string
}

// Mismatches returns the parts of a value that do not match the schema.
func (s *Schema) Mismatches(v any) []Mismatch {
	err := s.run(v)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return []Mismatch{{Message: err.Error()}}
	}
	var all []Mismatch
	for _, l := range leaves(invalid) {
		all = append(all, Mismatch{l.InstanceLocation, leafText(l)})
	}
	return all
}

// Property is a property that a schema lists.
type Property struct {
	Name     string
	Required bool
	// Schema is the schema of the property as encoding/json would decode it, except that an integer is an int.
	Schema any
}

// Properties returns the properties that the schema lists, in the order of the document.
func (s *Schema) Properties() []Property {
	list := s.node.get("properties")
	if list == nil || list.kind != mapNode {
		return nil
	}
	required := make(map[string]bool)
	if names := s.node.get("required"); names != nil {
		for _, n := range names.items {
			required[n.text()] = true
		}
	}
	all := make([]Property, len(list.keys))
	for i, k := range list.keys {
		all[i] = Property{k.name, required[k.name], list.items[i].plain()}
	}
	return all
}

// schemaWalk refuses keywords that no schema has, and those that a document may not use.
type schemaWalk struct {
	*report
	what  string
	count int
	// program is the number of instructions of all patterns.
	program int
	bad     bool
}

func (w *schemaWalk) refuse(pos at, suggestion, format string, args ...any) {
	w.bad = true
	w.add(pos, suggestion, format, args...)
}

func (w *schemaWalk) walk(n *node) {
	if w.count++; w.count > maxSchema {
		if w.count == maxSchema+1 {
			w.refuse(n.at, "", "%s has more than %d schemas", w.what, maxSchema)
		}
		return
	}
	if n.kind != mapNode {
		if n.kind != boolNode {
			w.refuse(n.at, "", "a schema in %s must be a map, not %s", w.what, n.kind)
		}
		return
	}
	known := slices.Concat(schemaOne, schemaMany, schemaMaps, schemaData)
	for i, k := range n.keys {
		x := n.items[i]
		switch {
		case slices.Contains(schemaOne, k.name):
			w.walk(x)
		case slices.Contains(schemaMany, k.name) && x.kind == listNode:
			for _, y := range x.items {
				w.walk(y)
			}
		case slices.Contains(schemaMaps, k.name) && x.kind == mapNode:
			for j, y := range x.items {
				if k.name == "patternProperties" {
					w.pattern(x.keys[j].at, x.keys[j].name)
				}
				w.walk(y)
			}
		case k.name == "pattern" && x.kind == textNode:
			w.pattern(x.at, x.text())
		case slices.Contains(schemaRefs, k.name):
			w.refuse(k.at, "write the schema out", "%s may not use %s", w.what, k.name)
		case !slices.Contains(known, k.name):
			suggestion := didYouMean(k.name, known)
			if suggestion == "" {
				suggestion = "list the properties of an object under properties"
			}
			w.refuse(k.at, suggestion, "JSON Schema has no keyword %s", quoted(k.name))
		}
	}
}

func (w *schemaWalk) pattern(pos at, pattern string) {
	size, err := checkPattern(pattern)
	if err == nil && w.program <= maxSchemaProgram {
		if w.program += size; w.program > maxSchemaProgram {
			err = errors.New("the patterns repeat too much together")
		}
	}
	if err != nil {
		w.refuse(pos, "", "%s: %s", w.what, err)
	}
}

// checkDefaults reports defaults of properties that do not match their own schema.
func (s *Schema) checkDefaults(r *report, n *node, what string) {
	properties := n.get("properties")
	if properties == nil || s.compiled == nil {
		return
	}
	for i, p := range properties.items {
		d := p.get("default")
		compiled := s.compiled.Properties[properties.keys[i].name]
		if d == nil || compiled == nil {
			continue
		}
		sub := Schema{p, compiled, s.patterns}
		if err := sub.Validate(d.plain(), "default of "+properties.keys[i].name); err != nil {
			r.add(d.at, "", "%s: %s", what, err)
		}
	}
}

// Fill adds the defaults of absent properties to a value.
func (s *Schema) Fill(v any) any {
	if s == nil {
		return v
	}
	return fill(s.node, v)
}

func fill(n *node, v any) any {
	properties := n.get("properties")
	m, ok := v.(map[string]any)
	if properties == nil || v != nil && !ok {
		return v
	}
	if v == nil {
		m = map[string]any{}
	}
	for i, p := range properties.items {
		name := properties.keys[i].name
		if x, has := m[name]; has {
			m[name] = fill(p, x)
		} else if d := p.get("default"); d != nil {
			m[name] = d.plain()
		}
	}
	if v == nil && len(m) == 0 {
		return nil
	}
	return m
}

// property follows a chain of keys below the schema. It returns the node of the last key, or nil if the schema does
// not describe it. unknown is the first key that a value may not have, and known are the keys that it may have.
func (s *Schema) property(chain []string) (n *node, unknown string, known []string) {
	n = s.node
	for _, k := range chain {
		properties := n.get("properties")
		if properties == nil {
			return nil, "", nil
		}
		next := properties.get(k)
		if next == nil {
			for _, open := range []string{"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf",
				"if"} {
				if x := n.get(open); x != nil && (x.kind != boolNode || x.value == true) {
					return nil, "", nil
				}
			}
			for _, p := range properties.keys {
				known = append(known, p.name)
			}
			return nil, k, known
		}
		n = next
	}
	return n, "", nil
}
