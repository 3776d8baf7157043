package httpapi

import (
	"encoding"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// shape is which names the objects of a body may have, letter by letter. The
// decoder of routes that are asked for all the time would take a name in other
// letters for the same, and whoever stands between may not. A nil shape is
// anything: a payload, or what has a form of its own. It also says which names there
// must be.
type shape struct {
	fields map[string]field // by the name in quotes; nil if it is no object
	needed int              // of the fields
	each   *shape           // of an array's values
}

// field is what is said of a field.
type field struct {
	*shape
	needed bool // there must be one
}

// shapeOf is the shape of a type whose values do not hold values of their own
// type.
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

// add adds the fields of a struct, and of those that stand in it.
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

// lenient lets every field be left out.
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

// missing is the first field that must be there and is not among those that are. Only
// who misses one asks.
func (s *shape) missing(keys [][]byte) string {
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		if s.fields[name].needed && !slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == name }) {
			return strings.Trim(name, `"`)
		}
	}
	return ""
}

// of is what is said of a field, and whether there is such a field.
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
