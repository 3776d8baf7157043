package machine

import (
	"encoding/hex"
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// JSON texts of the same value have the same canonical form, and texts of different values have
// different forms.
func TestCanonicalJSON(t *testing.T) {
	for want, texts := range map[string][]string{
		`{"a":1,"b":[true,false,null,"x"]}`: {
			"{\"b\":[true,false , null,\"x\"],\n \"a\":1}", ` { "a" : 1.0 , "b" : [ true,false,null , "\u0078" ] } `,
			`{"\u0062":[true,false,null,"x"],"a":1e0}`,
		},
		`12e2`: {"1200", "1200.0", "1.2e3", "0.0012E+6", "12000e-1", "120e1"}, `-12e2`: {"-1200", "-1.2E3"},
		`0`: {"0", "-0", "0.0", "0e99999999999999999999", "-0.000E-5"}, `5e-1`: {"0.5", "5e-1", "0.50"},
		`9007199254740993`: {"9007199254740993", "9007199254740993.0"}, `9007199254740992`: {"9007199254740992"},
		`1e-9000`: {"1e-9000", "0.1e-8999"}, `1E99999999999999999999`: {"1E99999999999999999999"},
		`"/\u0000\b\t\n\f\r\u001f\"\\é😀"`: {
			`"\/\u0000\u0008\u0009\u000a\u000c\u000d\u001F\u0022\u005c\u00e9\ud83d\ude00"`,
			`"/\u0000\b\t\n\f\r\u001f\"\\é😀"`,
		},
		// The order is that of UTF-16, in which the surrogates of 😀 come before ﬁ.
		`{"":0,"a":0,"é":0,"😀":0,"ﬁ":0}`: {`{"ﬁ":0,"😀":0,"é":0,"a":0,"":0}`},
		`{}`:                             {"{}", " { } "}, `[]`: {"[]", "[ ]"}, `[[],{}]`: {"[[ ],{ }]"}, `null`: {" null "},
		`{"a":1,"a":2}`: {`{"a":1,"a":2}`}, `{"a":2,"a":1}`: {`{"a":2,"a":1}`},
		`"\ud800"`: {`"\ud800"`}, `"\ud801"`: {`"\ud801"`},
	} {
		for _, text := range texts {
			if !json.Valid([]byte(text)) {
				t.Fatalf("%s is no JSON", text)
			}
			if got := string(appendCanonical(nil, []byte(text))); got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		}
	}
}

// Rule: the members of all nested objects are sorted, and each byte is copied a fixed number of
// times, however deep the objects are nested.
func TestDeepJSONIsOrderedAtOnce(t *testing.T) {
	nested := func(depth int) []byte {
		text := strings.Repeat(`{"b":[{"d":0,"c":1}],"a":`, depth) + `"` + strings.Repeat("x", 1<<18) + `"`
		return []byte(text + strings.Repeat("}", depth))
	}
	want := strings.Repeat(`{"a":`, 3) + `"` + strings.Repeat("x", 1<<18) + `"` +
		strings.Repeat(`,"b":[{"c":1,"d":0}]}`, 3)
	if got := string(appendCanonical(nil, nested(3))); got != want {
		t.Errorf("nested in three objects it becomes %.200s", got)
	}
	bytes := func(depth int) int64 {
		text := nested(depth)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		appendCanonical(nil, text)
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	if flat, deep := bytes(20), bytes(1000); deep > 4*flat {
		t.Errorf("nested in 20 objects it takes %d bytes, in 1000 it takes %d", flat, deep)
	}
}

// The canonical form of any text is JSON with the same value, and the canonical form of the
// canonical form is the same text.
func FuzzCanonicalJSON(f *testing.F) {
	for _, text := range []string{
		`{"b":[1,2.50,{"a":"\u0041"}],"a":null}`, `"\ud83d\ude00"`, `-1.5e-7`, `[[[[]]]]`, `{"":{"":{}}}`, ` 1 `,
		"\"\xff\"", `{"a":1,"a":1.0}`, `"\u2028"`, `1e999999999999999`, `"\\"`, `"a\\"`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := appendCanonical(nil, []byte(text)) // called for invalid JSON too, because it must not panic
		if !json.Valid([]byte(text)) {
			return
		}
		if again := appendCanonical(nil, got); !json.Valid(got) || string(again) != string(got) {
			t.Fatalf("%s becomes %s and then %s", text, got, again)
		}
		if !sameJSON(t, text, string(got)) {
			t.Fatalf("%s becomes %s", text, got)
		}
	})
}

// sameJSON compares two texts by their values, with exact numbers.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	read := func(text string) any {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	return sameValue(read(a), read(b))
}

func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			w, ok := b[k]
			if !ok || !sameValue(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !sameValue(a[i], b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, ok := b.(json.Number)
		if !ok || a == b {
			return ok
		}
		_, power, _ := strings.Cut(strings.ToLower(string(a)), "e")
		if len(power) > 4 { // the digits of such a number would fill the memory
			return true
		}
		x, ok1 := new(big.Rat).SetString(string(a))
		y, ok2 := new(big.Rat).SetString(string(b))
		return ok1 && ok2 && x.Cmp(y) == 0
	default:
		return a == b
	}
}

// A repeated submission is recognised however its input is written, and refused if a value in the
// input differs. A submission whose hash an older server has computed from the bytes of the input
// is recognised too.
func TestInputsAreComparedByValue(t *testing.T) {
	submission := func(input string) *Submit {
		c := &Submit{Submission: belay.Submission{
			ID: belay.ExecutionID{1}, Workflow: "w", IdempotencyKey: "k", Input: json.RawMessage(input),
			Labels: map[string]string{"a": "b"},
		}}
		if c.Judge(); c.judged.err != nil {
			t.Fatal(c.judged.err)
		}
		return c
	}
	first := submission(`{"b": [1, 2.0], "a": "x"}`)
	if version := first.judged.hash[31]; version != canonicalInput {
		t.Errorf("the hash says version %d", version)
	}
	for input, same := range map[string]bool{
		`{"a":"x","b":[1,2]}`: true, `{"a":"\u0078","b":[1e0,2]}`: true, `{"a":"x","b":[2,1]}`: false,
		`{"a":"x","b":[1,2],"c":null}`: false, `{"a":"X","b":[1,2]}`: false, `{"a":"x","b":[1,"2"]}`: false, ``: false,
	} {
		if got := submission(input).says(first.judged.hash); got != same {
			t.Errorf("%s says the same: %v", input, got)
		}
	}
	old := first.hash(plainInput) // the hash that a server stored before hashes had versions
	const stored = "c2b196982cfc6174b2ce4844cb5a07641319a70c5ed8f1efdb928d06b01d14f8"
	if got := hex.EncodeToString(old[:]); got != stored {
		t.Errorf("the hash of the older version is %s, want %s: keys that were stored would not be known", got, stored)
	}
	if !submission(`{"b":[1,2.0],"a":"x"}`).says(old) || submission(`{"a":"x","b":[1,2]}`).says(old) {
		t.Error("an old hash is not of the same bytes alone")
	}
}

func BenchmarkCanonicalJSON(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	var list []map[string]any
	for i := range 100 {
		list = append(list, map[string]any{
			"id": i, "name": "a name", "price": random.Float64(), "tags": []string{"x", "y"},
		})
	}
	text, err := json.Marshal(list)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		appendCanonical(nil, text)
	}
}
