package httpapi

import (
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// shape lists the names that the objects of a body may have, in exact case, and which of them are
// required. The case matters because encoding/json, which decodes some bodies, also accepts a name
// in another case, and a proxy between client and server may not: the two would read different
// requests. A nil shape allows any value: a payload, or a type with its own decoder.
type shape struct {
	fields map[string]field // by the name in quotes; nil if the value is no object
	needed int              // the number of required fields
	each   *shape           // the shape of an array's values
}

// field is the shape of a field's value.
type field struct {
	*shape
	needed bool // the field is required
}

// shapeOf is the shape of a type, which must not contain itself.
func shapeOf(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if p := reflect.PointerTo(t); p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		if each := shapeOf(t.Elem()); each != nil {
			return &shape{each: each}
		}
		return nil
	case reflect.Struct:
		s := &shape{fields: make(map[string]field)}
		s.add(t)
		return s
	default:
		return nil
	}
}

// add adds the fields of a struct and of the structs that it embeds.
func (s *shape) add(t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.add(f.Type)
		case f.IsExported() && name != "-" && name != "":
			needed := !strings.Contains(options, "omit")
			if s.fields[`"`+name+`"`] = (field{shapeOf(f.Type), needed}); needed {
				s.needed++
			}
		}
	}
}

// lenient makes every field optional.
func (s *shape) lenient() *shape {
	if s == nil {
		return nil
	}
	s.needed = 0
	s.each.lenient()
	for name, f := range s.fields {
		f.lenient()
		s.fields[name] = field{shape: f.shape}
	}
	return s
}

// missing is the first required field that is not among the keys. It is slow, and is called only if
// a field is missing.
func (s *shape) missing(keys [][]byte) string {
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		if s.fields[name].needed && !slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == name }) {
			return strings.Trim(name, `"`)
		}
	}
	return ""
}

// of returns the shape of a field, and whether the object has this field.
func (s *shape) of(key []byte) (field, bool) {
	if s == nil || s.fields == nil {
		return field{}, true
	}
	v, ok := s.fields[string(key)]
	return v, ok
}

// values is the shape of an array's values.
func (s *shape) values() *shape {
	if s == nil {
		return nil
	}
	return s.each
}
