package definition

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// function is a function that expressions can call in addition to plainBuiltins.
type function struct {
	name  string
	call  func(args ...any) (any, error)
	types []any
}

// functions replace builtins of package expr: their result depends on nothing but the arguments, and their size is
// checked before it is made.
var functions = []function{
	{"string", func(a ...any) (any, error) { return textOf(a[0]) }, []any{new(func(any) string)}},
	{"toJSON", func(a ...any) (any, error) { return jsonOf(a[0]) }, []any{new(func(any) string)}},
	{"fromJSON", func(a ...any) (any, error) { return Decode([]byte(str(a[0]))) }, []any{new(func(string) any)}},
	{"keys", func(a ...any) (any, error) { return keysOf(a[0]) }, []any{new(func(any) []any)}},
	{"values", func(a ...any) (any, error) { return valuesOf(a[0]) }, []any{new(func(any) []any)}},
	{"join", func(a ...any) (any, error) { return joined(a...) },
		[]any{new(func(any) string), new(func(any, string) string)}},
	{"replace", func(a ...any) (any, error) { return replaced(str(a[0]), str(a[1]), str(a[2])) },
		[]any{new(func(string, string, string) string)}},
	{"concat", func(a ...any) (any, error) { return concat(a...) }, []any{new(func(...any) []any)}},
	{"flatten", func(a ...any) (any, error) { return flatten(a[0]) }, []any{new(func(any) []any)}},
	{"uniq", func(a ...any) (any, error) { return uniq(a[0]) }, []any{new(func(any) []any)}},
}

// str returns an argument that the compiler has found to be a text.
func str(v any) string {
	s, _ := v.(string)
	return s
}

// textOf returns a value as a text: a text as it is, any other value as JSON.
func textOf(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	return jsonOf(v)
}

func jsonOf(v any) (string, error) {
	s := size{}
	if err := s.add(v, 0); err != nil {
		return "", err
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func listOf(v any) ([]any, error) {
	list, ok := normal(v).([]any)
	if !ok {
		return nil, fmt.Errorf("a list is needed, not %s", typeName(v))
	}
	return list, nil
}

func keysOf(v any) ([]any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("keys needs a map, not %s", typeName(v))
	}
	list := make([]any, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, k)
	}
	return list, nil
}

func valuesOf(v any) ([]any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("values needs a map, not %s", typeName(v))
	}
	list := make([]any, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[k])
	}
	return list, nil
}

func joined(args ...any) (string, error) {
	list, err := listOf(args[0])
	if err != nil {
		return "", err
	}
	sep := ""
	if len(args) > 1 {
		sep = str(args[1])
	}
	texts := make([]string, len(list))
	total := 0
	for i := range list {
		if texts[i], err = textOf(list[i]); err != nil {
			return "", err
		}
		if total += len(texts[i]) + len(sep); total > maxValue+len(sep) {
			return "", errLarge
		}
	}
	return strings.Join(texts, sep), nil
}

func replaced(s, old, with string) (string, error) {
	if n := strings.Count(s, old); len(s)+n*(len(with)-len(old)) > maxValue {
		return "", errLarge
	}
	return strings.ReplaceAll(s, old, with), nil
}

func concat(args ...any) ([]any, error) {
	var all []any
	for _, a := range args {
		list, err := listOf(a)
		if err != nil {
			return nil, err
		}
		if all = append(all, list...); len(all) > maxParts {
			return nil, errLarge
		}
	}
	return all, nil
}

// flatten replaces each list within a list by its entries.
func flatten(v any) ([]any, error) {
	list, err := listOf(v)
	if err != nil {
		return nil, err
	}
	all := []any{}
	for _, x := range list {
		if inner, ok := x.([]any); ok {
			all = append(all, inner...)
		} else {
			all = append(all, x)
		}
		if len(all) > maxParts {
			return nil, errLarge
		}
	}
	return all, nil
}

func uniq(v any) ([]any, error) {
	list, err := listOf(v)
	if err != nil {
		return nil, err
	}
	seen, all := map[string]bool{}, []any{}
	for _, x := range list {
		k, err := jsonOf(x)
		if err != nil {
			return nil, err
		}
		if !seen[k] {
			seen[k] = true
			all = append(all, x)
		}
	}
	return all, nil
}
