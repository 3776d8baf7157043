package webui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a form that is made from a schema. An input beyond them is written as JSON.
const (
	mostInputs  = 100 // properties
	mostOptions = 200 // values of an enum
)

// Input describes the input of a document, for a form.
type Input struct {
	// Document is the name of the document, and About its description.
	Document, About string
	// None says that the document has no input.
	None bool
	// Properties are the properties that the schema of the input lists, in the order of the document.
	Properties []Property
	// Check returns the parts of an input that do not match the schema. It never reads anything but its argument, and
	// its time is bounded.
	Check func(input json.RawMessage) []Mismatch
}

// Property is a property of an input. Schema is its JSON Schema as encoding/json decodes it.
type Property struct {
	Name     string
	Required bool
	Schema   any
}

// Mismatch is a part of an input that does not match the schema. Path leads to the part, from the name of a property.
type Mismatch struct {
	Path    []string
	Message string
}

// inputKind says how a form shows a property.
type inputKind int

const (
	jsonInput   inputKind = iota // as JSON, if the schema is none of the others
	textInput                    // a string
	dateInput                    // a string of the format date
	timeInput                    // a string of the format date-time, in UTC
	numberInput                  // a number
	boolInput                    // true or false
	enumInput                    // one of some values
	listInput                    // an array of strings or numbers, one in each line
	checkInput                   // an array of values of an enum
)

// inputField is a property of an input as a form shows it. The names of fields have its number, since the name of a
// property may be any text.
type inputField struct {
	Property
	number   int
	kind     inputKind
	item     inputKind         // of a listInput: textInput or numberInput
	values   []json.RawMessage // of an enum
	fallback json.RawMessage   // the default; nil if there is none
	nullable bool
	whole    bool // a number is an integer
}

// inputFields returns the fields of a form; nil if only JSON can express the input.
func inputFields(in *Input) []inputField {
	if in == nil || in.None || len(in.Properties) == 0 || len(in.Properties) > mostInputs {
		return nil
	}
	all := make([]inputField, len(in.Properties))
	for i, p := range in.Properties {
		all[i] = inputFieldOf(p, i)
	}
	return all
}

func inputFieldOf(p Property, number int) inputField {
	f := inputField{Property: p, number: number}
	s, ok := p.Schema.(map[string]any)
	if !ok {
		return f
	}
	if d, has := s["default"]; has {
		f.fallback = compact(d)
	}
	var word string
	if word, f.nullable = typeOf(s); f.enumerated(s) {
		return f
	}
	switch word {
	case "string":
		f.kind = textInput
		switch s["format"] {
		case "date":
			f.kind = dateInput
		case "date-time":
			f.kind = timeInput
		}
	case "number", "integer":
		f.kind, f.whole = numberInput, word == "integer"
	case "boolean":
		f.kind = boolInput
	case "array":
		f.list(s)
	}
	return f
}

// list finds out whether the entries of an array are values that fit into a line, or values of an enum.
func (f *inputField) list(s map[string]any) {
	items, ok := s["items"].(map[string]any)
	if _, places := s["prefixItems"]; !ok || places {
		return
	}
	word, nullable := typeOf(items)
	switch {
	case nullable:
	case f.enumerated(items):
		f.kind = checkInput
	case word == "string":
		f.kind, f.item = listInput, textInput
	case word == "number" || word == "integer":
		f.kind, f.item = listInput, numberInput
	}
}

// enumerated reports whether a schema lists its values, and keeps them.
func (f *inputField) enumerated(s map[string]any) bool {
	list, ok := s["enum"].([]any)
	if c, constant := s["const"]; constant && !ok {
		list = []any{c}
	}
	if len(list) == 0 || len(list) > mostOptions {
		return false
	}
	f.kind, f.values = enumInput, nil
	for _, v := range list {
		f.values = append(f.values, compact(v))
	}
	return true
}

// typeOf returns the type of a schema; empty if it allows several types, apart from null.
func typeOf(s map[string]any) (word string, nullable bool) {
	switch t := s["type"].(type) {
	case string:
		return t, false
	case []any:
		for _, x := range t {
			switch name, _ := x.(string); {
			case name == "null":
				nullable = true
			case word != "":
				return "", nullable
			default:
				word = name
			}
		}
	}
	return word, nullable
}

// compact returns a value as JSON in one line.
func compact(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// plainText returns the text of a JSON string; ok is false for another value, and for a text with characters that a
// page would not give back as they are.
func plainText(v json.RawMessage) (text string, ok bool) {
	if len(v) == 0 || v[0] != '"' || json.Unmarshal(v, &text) != nil {
		return "", false
	}
	return text, text == escapeSteering(text) && !strings.Contains(text, "\ufffd")
}

// isNumber reports whether a text is a number of JSON.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && json.Valid([]byte(text))
}

// option is one of the values that a person can choose in a form.
type option struct {
	Value, Label string
	On           bool
}

// options returns the values of an enum. chosen has the numbers of those that are chosen.
func (f *inputField) options(chosen ...int) []option {
	all := make([]option, len(f.values))
	for i, v := range f.values {
		label, ok := plainText(v)
		if !ok || label == "" {
			label = string(v)
		}
		switch label {
		case "true":
			label = "yes"
		case "false":
			label = "no"
		}
		all[i] = option{strconv.Itoa(i), excerpt(label, maxLine), slices.Contains(chosen, i)}
	}
	return all
}

// valueAt returns the number of a value of the enum; -1 if it has no such value.
func (f *inputField) valueAt(v json.RawMessage) int {
	return slices.IndexFunc(f.values, func(x json.RawMessage) bool { return bytes.Equal(x, canonical(v)) })
}

// canonical returns JSON in the form that compact writes, apart from the digits of numbers.
func canonical(v json.RawMessage) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	var x any
	if d.Decode(&x) != nil {
		return nil
	}
	return compact(x)
}

// about describes a property: its description, what it may be, and its default.
func (f *inputField) about() string {
	s, _ := f.Schema.(map[string]any)
	var parts []string
	for _, name := range []string{"title", "description"} {
		if text, _ := s[name].(string); text != "" {
			parts = append(parts, excerpt(strings.TrimRight(text, ". \n"), 300))
		}
	}
	add := func(format string, names ...string) {
		values := make([]any, len(names))
		for i, n := range names {
			if values[i] = s[n]; values[i] == nil {
				return
			}
			values[i] = excerpt(string(compact(values[i])), 60)
		}
		parts = append(parts, fmt.Sprintf(format, values...))
	}
	add("At least %s", "minimum")
	add("More than %s", "exclusiveMinimum")
	add("At most %s", "maximum")
	add("Less than %s", "exclusiveMaximum")
	add("At least %s characters", "minLength")
	add("At most %s characters", "maxLength")
	add("At least %s entries", "minItems")
	add("At most %s entries", "maxItems")
	if text, _ := s["pattern"].(string); text != "" {
		parts = append(parts, "It matches "+excerpt(text, 100))
	}
	switch f.kind {
	case timeInput:
		parts = append(parts, "The time is in UTC")
	case listInput:
		parts = append(parts, "Each line is an entry")
	case jsonInput:
		parts = append(parts, "JSON")
	default:
	}
	if f.fallback != nil && f.kind != boolInput {
		parts = append(parts, "The default is "+excerpt(string(f.fallback), 100))
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ". ") + "."
}
