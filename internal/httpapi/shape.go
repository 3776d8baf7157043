package httpapi

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// shape is which names the objects of a body may have, letter by letter. The
// decoder of routes that are asked for all the time would take a name in other
// letters for the same, and whoever stands between may not. A nil shape is
// anything: a payload, or what has a form of its own.
type shape struct {
	fields map[string]*shape // by the name in quotes; nil if it is no object
	each   *shape            // of an array's values
}

// shapeOf is the shape of a type whose values do not hold values of their own
// type.
func shapeOf(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if p := reflect.PointerTo(t); p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		if each := shapeOf(t.Elem()); each != nil {
			return &shape{each: each}
		}
		return nil
	case reflect.Struct:
		s := &shape{fields: make(map[string]*shape)}
		s.add(t)
		return s
	default:
		return nil
	}
}

// add adds the fields of a struct, and of those that stand in it.
func (s *shape) add(t reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.add(f.Type)
		case f.IsExported() && name != "-" && name != "":
			s.fields[`"`+name+`"`] = shapeOf(f.Type)
		}
	}
}

// of is the shape of a field's value, and whether there is such a field.
func (s *shape) of(key []byte) (*shape, bool) {
	if s == nil || s.fields == nil {
		return nil, true
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
