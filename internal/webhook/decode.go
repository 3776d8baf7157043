package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxDepth is how deep lists and objects in JSON may be nested.
	maxDepth = 100
	// maxFields is the largest number of fields of a form.
	maxFields = 1000
	// maxInt is the largest integer that every reader of JSON keeps exactly.
	maxInt = 1<<53 - 1
	// formType is the media type of forms.
	formType = "application/x-www-form-urlencoded"
)

// Decode returns the body as a value for expressions. The header Content-Type decides how it reads the body:
//
//   - JSON is as encoding/json decodes it, except that an integer is an int. A number outside of ±(2⁵³-1) is a text as
//     the body has it, because other readers of JSON would change it. An empty body is nil.
//   - A form is a map of texts. A field that is repeated is a list of texts. The field payload is decoded if it is a
//     JSON object or list, as GitHub and Slack send it.
//   - Everything else is a text.
//
// A body without Content-Type is JSON if it can be read as such, and otherwise a text. Decode returns CodeInvalid
// for a body that is not UTF-8, that its Content-Type describes wrongly, or that is nested too deep or has too many
// fields.
func Decode(header http.Header, body []byte) (any, error) {
	if len(header.Values("Content-Type")) > 1 {
		return nil, invalid("the header Content-Type is repeated")
	}
	if !utf8.Valid(body) {
		return nil, invalid("the body is not UTF-8")
	}
	switch kind := mediaType(header); {
	case isJSON(kind):
		return decodeJSON(body)
	case kind == formType:
		form, err := decodeForm(body)
		if err != nil {
			return nil, err
		}
		return form, nil
	case kind == "" && json.Valid(body):
		return decodeJSON(body)
	}
	return string(body), nil
}

// Data returns the body of a delivery as JSON: JSON as the sender has written it, and otherwise the value of
// Decode. Its errors are those of Decode.
func Data(header http.Header, body []byte) (json.RawMessage, error) {
	v, err := Decode(header, body)
	if err != nil {
		return nil, err
	}
	if kind := mediaType(header); len(body) > 0 && (isJSON(kind) || kind == "" && json.Valid(body)) {
		var b bytes.Buffer
		err := json.Compact(&b, body)
		return b.Bytes(), err
	}
	return json.Marshal(v)
}

// isJSON reports whether a media type is one of JSON.
func isJSON(kind string) bool {
	return kind == "application/json" || kind == "text/json" || strings.HasSuffix(kind, "+json")
}

// mediaType returns the media type in Content-Type, in lower case and without parameters.
func mediaType(header http.Header) string {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

func decodeJSON(body []byte) (any, error) {
	if len(body) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, invalid("the body is not JSON: %s", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, invalid("the body has more than one JSON value")
	}
	return convert(v, 0)
}

// convert replaces the numbers of package json in a value that depth lists and objects contain.
func convert(v any, depth int) (_ any, err error) {
	switch x := v.(type) {
	case json.Number:
		return number(x.String()), nil
	case []any:
		if depth == maxDepth {
			return nil, tooDeep()
		}
		for i := range x {
			if x[i], err = convert(x[i], depth+1); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		if depth == maxDepth {
			return nil, tooDeep()
		}
		for k := range x {
			if x[k], err = convert(x[k], depth+1); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func tooDeep() error { return invalid("the JSON is nested deeper than %d levels", maxDepth) }

// number returns a number in JSON as an int or a float64, and as a text if it is too large.
func number(text string) any {
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || math.Abs(f) > maxInt:
		return text
	case f == math.Trunc(f):
		return int(f)
	}
	return f
}

func decodeForm(body []byte) (map[string]any, error) {
	if n := bytes.Count(body, []byte("&")) + 1; n > maxFields {
		return nil, invalid("the form has %d fields; the limit is %d", n, maxFields)
	}
	all, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, invalid("the body is not a form: %s", err)
	}
	form := make(map[string]any, len(all))
	for name, values := range all {
		list := make([]any, len(values))
		for i, value := range values {
			if !utf8.ValidString(name) || !utf8.ValidString(value) {
				return nil, invalid("a field of the form is not UTF-8")
			}
			list[i] = value
		}
		form[name] = list
		if len(list) == 1 {
			form[name] = list[0]
		}
	}
	return form, decodePayload(form)
}

// decodePayload decodes the field payload of a form if it is a JSON object or list. Other values stay texts, so
// that a text such as 1 is not a number.
func decodePayload(form map[string]any) error {
	const field = "payload"
	text, ok := form[field].(string)
	if !ok || !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") || !json.Valid([]byte(text)) {
		return nil
	}
	v, err := decodeJSON([]byte(text))
	form[field] = v
	return err
}
