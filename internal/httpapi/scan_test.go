package httpapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// Text that checkJSON passes is valid JSON in UTF-8. Valid JSON that checkJSON refuses has one of
// the faults in the comment of checkJSON.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `null`, `true`, `0`, `-0.5e+7`, `"a\u00e9\n"`, ` { "a" : [ 1 , { "b" : null } ] } `,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `"\u0000"`, `01`, `1.`,
		`[1,]`, `{"a":}`, `"\x"`, "\"\x00\"", "\"\xff\"", `{"a":1}x`, ``, ` `, `"`, `"\`, `"\u`, `"\u12`, `-`, `1e`,
		`tru`, `nulll`, `[[`, `{"a"`, `{"a":1,`, `"\ud800"`, `"\uD83D\uDE00"`, `"\uDE00\uD83D"`,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := checkJSON(b, nil)
		switch valid := json.Valid(b); {
		case err == nil && (!valid || !utf8.Valid(b)):
			t.Errorf("%q passes and is no JSON", b)
		case err != nil && valid && utf8.Valid(b) && !strange(b):
			t.Errorf("%q is refused: %v", b, err)
		}
	})
}

// strange reports whether valid JSON has one of the faults that checkJSON refuses: a NUL, half of a
// surrogate pair, a field that is named twice, or too deep nesting.
func strange(b []byte) bool {
	if bytes.Contains(b, []byte(`\u0000`)) {
		return true
	}
	d := json.NewDecoder(bytes.NewReader(b))
	var keys []map[string]bool // the keys of each open object; nil for an array
	var named []bool           // whether the object's last token was a key
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if text, ok := token.(string); ok && strings.ContainsRune(text, utf8.RuneError) &&
			bytes.Contains(bytes.ToLower(b), []byte(`\ud`)) {
			return true // half of a surrogate pair, most likely
		}
		top := len(keys) - 1
		if key, ok := token.(string); ok && top >= 0 && keys[top] != nil && !named[top] {
			if keys[top][key] {
				return true
			}
			keys[top][key], named[top] = true, true
			continue
		}
		switch token {
		case json.Delim('{'):
			keys, named = append(keys, map[string]bool{}), append(named, false)
		case json.Delim('['):
			keys, named = append(keys, nil), append(named, false)
		case json.Delim('}'), json.Delim(']'):
			keys, named = keys[:top], named[:top]
		}
		if len(keys) > maxDepth-1 {
			return true
		}
		if top = len(keys) - 1; top >= 0 && token != json.Delim('{') && token != json.Delim('[') {
			named[top] = false
		}
	}
}
