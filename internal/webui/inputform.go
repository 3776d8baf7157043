package webui

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// A field has this name, followed by its number, if it is shown as its kind says, or else, because its value does not
// fit its kind, as JSON.
const (
	byKind = "f"
	byJSON = "j"
)

// seconds is the form in which browsers send the fields of times, without a zone. They leave out the seconds if these
// are 0.
const seconds = "2006-01-02T15:04:05"

// otherInput is the name of the field with the properties that the schema does not list, as a JSON object.
const otherInput = "other"

// inputForm is the part of a form with an input, in fields or as JSON.
type inputForm struct {
	schema *Input       // nil if the input has no schema
	fields []inputField // nil if the input can only be written as JSON
	json   field        // for the input as JSON
}

// with gives a form an input, in fields or as JSON.
func (f *inputForm) with(form url.Values, input json.RawMessage, asJSON bool) url.Values {
	form = maps.Clone(form)
	form.Del(f.json.Name)
	maps.DeleteFunc(form, func(name string, _ []string) bool { return isInputField(name) })
	if len(f.fields) > 0 && !asJSON {
		if list, ok := fieldsFor(f.fields, input); ok {
			for i := range list {
				form[list[i].Name] = list[i].sent()
			}
			form.Set("mode", "fields")
			return form
		}
	}
	form.Set("mode", "json")
	if len(input) > 0 {
		form.Set(f.json.Name, inputText(input))
	}
	return form
}

// isInputField reports whether the name of a field is one of those that fieldsFor makes.
func isInputField(name string) bool {
	if name == otherInput {
		return true
	}
	number, ok := strings.CutPrefix(name, byKind)
	if !ok {
		number, ok = strings.CutPrefix(name, byJSON)
	}
	_, err := strconv.Atoi(number)
	return ok && err == nil
}

func (f *inputForm) inFields(form url.Values) bool {
	return form.Get("mode") == "fields" && len(f.fields) > 0
}

// read returns the input that a form has, with problems by the names of fields.
func (f *inputForm) read(form url.Values) (json.RawMessage, map[string]string) {
	if f.inFields(form) {
		return readFields(f.fields, form)
	}
	input, err := jsonOf(form.Get(f.json.Name))
	if err != nil {
		return nil, map[string]string{f.json.Name: sentence(err)}
	}
	return input, nil
}

// mismatches returns the problems that the schema has with an input, by the names of fields.
func (f *inputForm) mismatches(form url.Values, input json.RawMessage) map[string]string {
	problems := make(map[string]string)
	if f.schema == nil || f.schema.Check == nil {
		return problems
	}
	for _, m := range f.schema.Check(input) {
		at, text, path := f.json.Name, m.Message, m.Path
		if f.inFields(form) && len(path) > 0 {
			i := slices.IndexFunc(f.fields, func(x inputField) bool { return x.Name == path[0] })
			if at = otherInput; i >= 0 {
				path = path[1:]
				if at = byKind + strconv.Itoa(i); form.Has(byJSON + strconv.Itoa(i)) {
					at = byJSON + strconv.Itoa(i)
				}
			}
		}
		if len(path) > 0 {
			text = strings.Join(path, ".") + ": " + text
		}
		problems[at] = strings.TrimSpace(problems[at] + " " + excerpt(sentence(&belay.Error{Message: text}), 600))
	}
	return problems
}

// view returns the fields of a form that has an input, the button that shows the input in the other way, if there is
// one, and the value of the hidden field mode.
func (f *inputForm) view(form url.Values, problems map[string]string) (list []field, other *option, mode string) {
	if f.inFields(form) {
		return fieldsAgain(f.fields, form, problems), &option{Value: "json", Label: "Write it as JSON"}, "fields"
	}
	x := f.json
	x.restore(form)
	x.Failed = problems[x.Name]
	if len(f.fields) > 0 {
		other = &option{Value: "fields", Label: "Write it in fields"}
	}
	return []field{x}, other, "json"
}

// fieldsFor shows an input as fields. ok is false if the input is no object, so that only JSON can express it.
func fieldsFor(all []inputField, input json.RawMessage) (list []field, ok bool) {
	values := map[string]json.RawMessage{}
	if len(input) > 0 && (json.Unmarshal(input, &values) != nil || values == nil) {
		return nil, false
	}
	rest := make(map[string]json.RawMessage)
	for name, v := range values {
		rest[name] = v
	}
	for i := range all {
		f := &all[i]
		v := values[f.Name]
		if v == nil {
			v = f.fallback
		}
		delete(rest, f.Name)
		list = append(list, f.show(v))
	}
	if len(rest) > 0 {
		text := escapeSteering(string(compact(rest)))
		list = append(list, field{
			Name: otherInput, Kind: "text", Label: "Other properties", Rows: 4, Value: text, About: "JSON, an object.",
		})
	}
	return list, true
}

// show returns the field of a property with a value; nil stands for an absent property.
func (f *inputField) show(v json.RawMessage) field {
	x := field{
		Name: byKind + strconv.Itoa(f.number), Label: excerpt(f.Name, maxLine), About: f.about(),
		Required: f.Required && !f.nullable, Data: true,
	}
	if v != nil && !f.fits(v) || f.kind == jsonInput {
		x.Name, x.Kind, x.Rows = byJSON+strconv.Itoa(f.number), "text", 4
		if v != nil {
			x.Value = inputText(v)
			x.Rows = min(20, max(4, strings.Count(x.Value, "\n")+1))
		}
		if f.kind != jsonInput {
			x.About = strings.TrimSpace(x.About + " This value can only be written as JSON.")
		}
		return x
	}
	f.fill(&x, v)
	return x
}

// inputText returns JSON for a field of a form, indented if it stays small.
func inputText(v json.RawMessage) string {
	if in := show(v); in != nil && in.Cut == "" {
		return escapeSteering(in.Text)
	}
	return escapeSteering(string(v))
}

// fits reports whether the field can show a value of its kind and give the same value back.
func (f *inputField) fits(v json.RawMessage) bool {
	var form url.Values
	var x field
	if f.holds(v) {
		f.fill(&x, v)
		form = url.Values{byKind + strconv.Itoa(f.number): x.sent()}
	}
	back, problem := f.read(form)
	return form != nil && problem == "" && bytes.Equal(canonical(back), canonical(v))
}

// holds reports whether a value has the type that fill expects.
func (f *inputField) holds(v json.RawMessage) bool {
	switch f.kind {
	case textInput:
		text, ok := plainText(v)
		return ok && !strings.HasPrefix(text, "\n") // which HTML leaves out at the beginning of a textarea
	case dateInput:
		text, ok := plainText(v)
		_, err := time.Parse(time.DateOnly, text)
		return ok && err == nil
	case timeInput:
		text, ok := plainText(v)
		_, err := time.Parse(seconds+"Z", text)
		return ok && err == nil
	case numberInput:
		return isNumber(string(v))
	case boolInput:
		return string(v) == "true" || string(v) == "false"
	case enumInput:
		return f.valueAt(v) >= 0
	case listInput, checkInput:
		var list []json.RawMessage
		return json.Unmarshal(v, &list) == nil && list != nil
	default:
		return false
	}
}

// fill sets the kind and the value of the field. v has the type of the kind, or is nil.
func (f *inputField) fill(x *field, v json.RawMessage) {
	x.Kind = "line"
	switch f.kind {
	case textInput:
		x.Value, _ = plainText(v)
		if s, _ := f.Schema.(map[string]any); strings.Contains(x.Value, "\n") || len(x.Value) > maxLine ||
			large(s["maxLength"]) {
			x.Kind, x.Rows = "text", min(20, max(4, strings.Count(x.Value, "\n")+1))
		}
	case dateInput:
		x.Kind = "date"
		x.Value, _ = plainText(v)
	case timeInput:
		x.Kind = "time"
		x.Value, _ = plainText(v)
		x.Value = strings.TrimSuffix(x.Value, "Z")
	case numberInput:
		x.Value, x.Numeric = string(v), true
	case boolInput:
		if f.Required || f.fallback != nil {
			x.Kind, x.Required = "check", false
			if string(v) == "true" {
				x.Value = "yes"
			}
			return
		}
		x.Kind = "select"
		x.Options = []option{
			{"", "not given", v == nil}, {"yes", "yes", string(v) == "true"}, {"no", "no", string(v) == "false"},
		}
	case enumInput:
		n := -1
		if v != nil {
			n = f.valueAt(v)
		}
		x.Kind = "select"
		if f.fallback == nil || n < 0 {
			x.Options = []option{{"", "not given", n < 0}}
			if x.Required {
				x.Options[0].Label = "choose one"
			}
		}
		x.Options = append(x.Options, f.options(n)...)
	case listInput, checkInput:
		f.fillList(x, v)
	case jsonInput: // a text of JSON, which the caller has written
	}
}

// large reports whether the largest length of a text is beyond a line.
func large(v any) bool {
	n, ok := v.(int)
	return ok && n > maxLine
}

func (f *inputField) fillList(x *field, v json.RawMessage) {
	var list []json.RawMessage
	_ = json.Unmarshal(v, &list) // holds has checked it
	if f.kind == checkInput {
		var chosen []int
		for _, e := range list {
			chosen = append(chosen, f.valueAt(e))
		}
		x.Kind, x.Required, x.Options = "checks", false, f.options(chosen...)
		return
	}
	lines := make([]string, len(list))
	for i, e := range list {
		if lines[i] = string(e); f.item == textInput {
			lines[i], _ = plainText(e)
		}
	}
	x.Kind, x.Value, x.Rows = "text", strings.Join(lines, "\n"), min(20, max(3, len(lines)+1))
	x.Required = false
}

// fieldsAgain shows a form that was sent, with everything that it has, and with its problems.
func fieldsAgain(all []inputField, form url.Values, problems map[string]string) []field {
	var list []field
	for i := range all {
		f := &all[i]
		x, number := f.show(nil), strconv.Itoa(f.number)
		if form.Has(byJSON + number) {
			x.Name, x.Kind, x.Rows = byJSON+number, "text", 4
		}
		x.restore(form)
		x.Failed = problems[x.Name]
		list = append(list, x)
	}
	if form.Has(otherInput) {
		list = append(list, field{
			Name: otherInput, Kind: "text", Label: "Other properties", Rows: 4, Value: form.Get(otherInput),
			About: "JSON, an object.", Failed: problems[otherInput], restored: true,
		})
	}
	return list
}

// restore gives a field the value that a form has for it.
func (x *field) restore(form url.Values) {
	sent := form[x.Name]
	x.restored = true
	x.Value = strings.ReplaceAll(strings.Join(sent, "\n"), "\r\n", "\n")
	for i := range x.Options {
		x.Options[i].On = slices.Contains(sent, x.Options[i].Value)
	}
	if lines := strings.Count(x.Value, "\n") + 1; x.Kind == "line" && lines > 1 || x.Kind == "text" && lines > x.Rows {
		x.Kind, x.Rows = "text", min(20, lines)
	}
}

// sent returns the values that a browser sends for an unchanged field.
func (x *field) sent() []string {
	switch x.Kind {
	case "check":
		if x.Value == "" {
			return nil
		}
	case "select", "checks":
		var all []string
		for _, o := range x.Options {
			if o.On {
				all = append(all, o.Value)
			}
		}
		return all
	}
	return []string{x.Value}
}

// readFields returns the input that a form has, with problems by the names of the fields.
func readFields(all []inputField, form url.Values) (json.RawMessage, map[string]string) {
	problems := make(map[string]string)
	var b bytes.Buffer
	add := func(name string, v json.RawMessage) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.Write(compact(name))
		b.WriteByte(':')
		b.Write(v)
	}
	for i := range all {
		f := &all[i]
		at := byKind + strconv.Itoa(f.number)
		read := f.read
		if form.Has(byJSON + strconv.Itoa(f.number)) {
			at, read = byJSON+strconv.Itoa(f.number), f.readJSON
		}
		v, problem := read(form)
		if problem != "" {
			problems[at] = problem
		} else if v != nil {
			add(f.Name, v)
		}
	}
	if text := strings.TrimSpace(form.Get(otherInput)); text != "" {
		var rest map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &rest); err != nil || rest == nil {
			problems[otherInput] = "Write a JSON object."
		}
		for i := range all {
			if _, twice := rest[all[i].Name]; twice {
				problems[otherInput] = "The property " + excerpt(all[i].Name, 60) + " has a field of its own."
			}
		}
		for _, name := range slices.Sorted(maps.Keys(rest)) {
			add(name, rest[name])
		}
	}
	return json.RawMessage("{" + b.String() + "}"), problems
}

const needed = "This is required."

// readJSON returns the value of a field that is shown as JSON; nil if it is empty.
func (f *inputField) readJSON(form url.Values) (json.RawMessage, string) {
	v, err := jsonOf(form.Get(byJSON + strconv.Itoa(f.number)))
	switch {
	case err != nil:
		return nil, sentence(err)
	case v == nil && f.Required:
		return nil, needed
	}
	return v, ""
}

// read returns the value of a field that is shown as its kind says; nil if the property is absent.
func (f *inputField) read(form url.Values) (json.RawMessage, string) {
	sent := form[byKind+strconv.Itoa(f.number)]
	text := strings.ReplaceAll(strings.Join(sent, "\n"), "\r\n", "\n")
	switch f.kind {
	case boolInput:
		if f.Required || f.fallback != nil {
			return json.RawMessage(strconv.FormatBool(text == "yes")), ""
		}
		switch text {
		case "yes":
			return json.RawMessage("true"), ""
		case "no":
			return json.RawMessage("false"), ""
		}
		return nil, ""
	case listInput, checkInput:
		return f.readList(sent, text)
	case textInput:
		if text != "" || f.fallback != nil && string(f.fallback) != "null" {
			return compact(text), "" // without the default, which the person has deleted
		}
		return f.absent()
	default:
	}
	if text = strings.TrimSpace(text); text == "" {
		return f.absent()
	}
	switch f.kind {
	case dateInput:
		return compact(text), ""
	case timeInput:
		if _, err := time.Parse("2006-01-02T15:04", text); err == nil {
			text += ":00"
		}
		if _, err := time.Parse(seconds, text); err == nil {
			text += "Z"
		}
		return compact(text), ""
	case enumInput:
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n >= len(f.values) {
			return nil, "Choose one of the values."
		}
		return f.values[n], ""
	default:
	}
	if !isNumber(text) {
		return nil, "Write a number, as in 12 or 0.5."
	}
	return json.RawMessage(text), ""
}

// absent returns the value of a field that is empty.
func (f *inputField) absent() (json.RawMessage, string) {
	switch {
	case f.Required && f.nullable:
		return json.RawMessage("null"), ""
	case f.Required:
		return nil, needed
	}
	return nil, ""
}

// readList returns the array that the lines or the choices of a field are.
func (f *inputField) readList(sent []string, text string) (json.RawMessage, string) {
	var list []string
	if f.kind == checkInput {
		for _, s := range sent {
			n, err := strconv.Atoi(s)
			if err != nil || n < 0 || n >= len(f.values) || len(list) > len(f.values) {
				return nil, "Choose some of the values."
			}
			list = append(list, string(f.values[n]))
		}
	} else {
		for _, l := range strings.Split(text, "\n") {
			switch trimmed := strings.TrimSpace(l); {
			case trimmed == "":
			case f.item == textInput:
				list = append(list, string(compact(l)))
			case !isNumber(trimmed):
				return nil, "Write one number in each line."
			default:
				list = append(list, trimmed)
			}
		}
	}
	if len(list) == 0 && !f.Required && f.fallback == nil {
		return nil, ""
	}
	return json.RawMessage("[" + strings.Join(list, ",") + "]"), ""
}
