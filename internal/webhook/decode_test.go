package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/definition"
)

// kind returns headers with a Content-Type, and none for an empty text.
func kind(text string) http.Header {
	if text == "" {
		return nil
	}
	return http.Header{"Content-Type": {text}}
}

type object = map[string]any

// The values are compared by package reflect, because package cmp needs time that is exponential in their depth.
func TestDecode(t *testing.T) {
	const js = "application/json"
	for _, c := range []struct {
		kind, body string
		want       any
	}{
		{js, `{"a":[1,"x",null,true,{"b":2}]}`, object{"a": []any{1, "x", nil, true, object{"b": 2}}}},
		{js, ` "text" `, "text"}, {js, "null", nil}, {js, "", nil}, {js, "[]", []any{}}, {js, "{}", object{}},
		{"Application/JSON; charset=utf-8", "1", 1}, {"application/cloudevents+json", "1", 1}, {"text/json", "1", 1},
		{" application/json ;", "1", 1},
		// numbers
		{js, "[0,-0,1.0,1e2,-5,0.5,1e-7]", []any{0, 0, 1, 100, -5, 0.5, 1e-7}},
		{js, "[9007199254740991,-9007199254740991]", []any{9007199254740991, -9007199254740991}},
		{js, "[9007199254740992,-9007199254740992]", []any{"9007199254740992", "-9007199254740992"}},
		{js, "[1700000000000000001,1e300,1e999]", []any{"1700000000000000001", "1e300", "1e999"}},
		// the last of two equal names counts, as in encoding/json
		{js, `{"a":1,"a":2,"A":3}`, object{"a": 2, "A": 3}},
		{js, `"\ud800"`, "\ufffd"},
		{js, strings.Repeat("[", 100) + strings.Repeat("]", 100), nested(100)},
		// forms
		{formType, "a=1&b=x+y%21&c&a=2&=z", object{"a": []any{"1", "2"}, "b": "x y!", "c": "", "": "z"}},
		{formType + ";charset=utf-8", "", object{}},
		{formType, "payload=%7B%22a%22%3A1%7D&x=1", object{"payload": object{"a": 1}, "x": "1"}},
		{formType, "payload=[1]", object{"payload": []any{1}}},
		{formType, "payload=1", object{"payload": "1"}},
		{formType, "payload=null", object{"payload": "null"}},
		{formType, "payload={", object{"payload": "{"}},
		{formType, "payload={}&payload={}", object{"payload": []any{"{}", "{}"}}},
		{formType, "other={}", object{"other": "{}"}},
		// texts
		{"text/plain", `{"a":1}`, `{"a":1}`}, {"text/xml", "<a/>", "<a/>"}, {"nonsense", "x", "x"}, {"text/plain", "", ""},
		{"application/jsonp", "1", "1"},
		// without Content-Type
		{"", `{"a":1}`, object{"a": 1}}, {"", "a=1", "a=1"}, {"", "", ""}, {"", "1 2", "1 2"},
	} {
		got, err := Decode(kind(c.kind), []byte(c.body))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %.100s: %#v, %v, want %#v", c.kind, c.body, got, err, c.want)
		}
	}
}

func nested(depth int) any {
	if depth == 1 {
		return []any{}
	}
	return []any{nested(depth - 1)}
}

func TestDecodeRefuses(t *testing.T) {
	const js = "application/json"
	deep := strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101)
	for _, c := range []struct{ kind, body, says string }{
		{js, "{", "not JSON"}, {js, "a", "not JSON"}, {js, "NaN", "not JSON"}, {js, "01", "more than one"},
		{js, " ", "not JSON"},
		{js, "\ufeff{}", "not JSON"}, {js, "{} {}", "more than one"}, {js, "{}x", "more than one"},
		{js, strings.Repeat("[", 101) + strings.Repeat("]", 101), "deeper than 100"}, {js, deep, "deeper than 100"},
		{"", deep, "deeper than 100"},
		{js, strings.Repeat("[", 1_000_000), "not JSON"},
		{js, "\"\xff\"", "not UTF-8"}, {"text/plain", "\xff", "not UTF-8"}, {"", "\xc3", "not UTF-8"},
		{formType, "a=\xff", "not UTF-8"}, {formType, "a=%ff", "not UTF-8"}, {formType, "%ff=a", "not UTF-8"},
		{formType, "a=%zz", "not a form"}, {formType, "a;b", "not a form"},
		{formType, strings.Repeat("&", 1000), "1001 fields"},
		{formType, "payload=" + deep, "deeper than 100"},
	} {
		v, err := Decode(kind(c.kind), []byte(c.body))
		if v != nil || belay.CodeOf(err) != belay.CodeInvalid || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %.100s: %v, the error is %v, want %q", c.kind, c.body, v, err, c.says)
		}
	}
	_, err := Decode(http.Header{"Content-Type": {js, "text/plain"}}, []byte("{}"))
	if belay.CodeOf(err) != belay.CodeInvalid {
		t.Errorf("a repeated Content-Type: %v", err)
	}
	fields := make([]string, 1000)
	for i := range fields {
		fields[i] = fmt.Sprintf("a%d=%d", i, i)
	}
	if v, err := Decode(kind(formType), []byte(strings.Join(fields, "&"))); err != nil || len(v.(object)) != 1000 {
		t.Errorf("1,000 fields: %v", err)
	}
}

// Rule: Decode never panics, and its values are those of expressions: package definition reads their JSON as the same.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"a":[1,"x",null,true,{"b":2.5}],"a":1e300}`, "a=1&a=2&payload=%7B%7D", "text", "", "-0.0", "123456789012345678901",
		`{"payload":"\ud800\u0000"}`, "payload=[[[1e-300]]]", "1.5e18", "9007199254740992.5", "\xff", strings.Repeat("[", 101),
	} {
		for _, kind := range []string{"application/json", formType, "", "text/plain; charset=utf-8"} {
			f.Add(kind, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		v, err := Decode(http.Header{"Content-Type": {contentType}}, body)
		if err != nil {
			if belay.CodeOf(err) != belay.CodeInvalid || v != nil {
				t.Fatalf("%v, %v", v, err)
			}
			return
		}
		if text, ok := v.(string); ok && !utf8.ValidString(text) {
			t.Fatalf("%q is not UTF-8", text)
		}
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := definition.Decode(data)
		if err != nil || !reflect.DeepEqual(v, again) {
			t.Fatalf("%v, decoded %#v, read again %#v", err, v, again)
		}
	})
}
