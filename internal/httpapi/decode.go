package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// decode decodes JSON into v. checkJSON must have accepted the JSON before. decode refuses a field
// that v does not have. The messages of its errors do not show names of Go types.
func decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	d.UseNumber() // a number in a value of type any keeps all its digits
	if err := d.Decode(v); err != nil {
		return undecoded(err)
	}
	return nil
}

// encode writes v as JSON.
func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

func undecoded(err error) error {
	var (
		wrong  *json.UnmarshalTypeError
		broken *belay.Error
		date   *time.ParseError
		base   base64.CorruptInputError
	)
	field, unknown := strings.CutPrefix(err.Error(), "json: unknown field ")
	switch {
	case errors.As(err, &broken):
		return invalid("body", broken.Message)
	case unknown:
		return invalid("body."+strings.Trim(field, `"`), "there is no such field")
	case errors.As(err, &wrong):
		return invalid(strings.TrimSuffix("body."+wrong.Field, "."), "must be "+kind(wrong.Type)+", not "+
			value(wrong.Value))
	case errors.As(err, &date):
		return invalid("body", "a time must have the form of RFC 3339")
	case errors.As(err, &base):
		return invalid("body", "data must be base64")
	}
	return invalid("body", "a value does not have the form that its field needs")
}

// kind says which values a field accepts.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer that fits"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	case reflect.Map, reflect.Struct:
		return "an object"
	default:
		return "a string"
	}
}

// value says what kind of value the field had, without the value itself.
func value(v string) string {
	word, _, _ := strings.Cut(v, " ")
	switch word {
	case "array", "object":
		return "an " + word
	default:
		return "a " + word
	}
}
