package screen

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// Rule: escape sequences are removed, invisible characters are replaced, and harmless text stays.
func TestTextIsMadeSafeForATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain äöü 世界 🙂\n\ttab":                                       "plain äöü 世界 🙂\n\ttab",
		"\x1b[31mred\x1b[0m \x1b[1;38;5;196mmore\x1b[K":               "red more",
		"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\":   "alink",
		"\x1bPdcs\x1b\\a\x1b_apc\x1b\\b\x1b^pm\x1b\\c\x1bXsos\x1b\\d": "abcd",
		"\x1b(Ba\x1b#8b\x1bcc\x1b7d\x1b=e":                            "abcde",
		"\u009b31mred\u009d0;title\u009ca\u0090x\u009cb\u0085":        "redab",
		"a\x07b\bc\x00d\x7fe\x0bf\x0c":                                "abcdef",
		"one\r\ntwo\rthree\r":                                         "one\ntwo\nthree\n",
		"\x1b":                                                        "", "\x1b[": "", "\x1b[31": "",
		"\x1b]never ends": "", "\x1b]never ends\nafter": "\nafter",
		"\x1b\x1b[31ma": "a", "\x1b[31\x1b[32ma": "a", "\x1b[3\nafter": "\nafter", "\x1b\nafter": "\nafter",
		"\x1b]a\x1b[31mb": "b",
		"a\u202eb\u202cc\u2066d\u2069\u200e\u200f\u061c":   "a\uFFFDb\uFFFDc\uFFFDd\uFFFD\uFFFD\uFFFD\uFFFD",
		"a\u200bb\u200c\u200d\ufeff\u2060\u00ad\U000e0041": "a\uFFFDb\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD",
		"a\u2028b\u2029": "a\uFFFDb\uFFFD", "a\xff\xfeb\xe4": "a\uFFFD\uFFFDb\uFFFD", "\x9b31m": "\uFFFD31m",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
		if got := Line(in); strings.ContainsAny(got, "\n\t") || got != strings.NewReplacer("\n", " ", "\t",
			" ").Replace(want) {
			t.Errorf("%q in one line: %q", in, got)
		}
	}
	long := "\x1b]" + strings.Repeat("x", 2*maxSequence) + "end"
	if got := Text(long); !strings.HasSuffix(got, "end") {
		t.Errorf("a sequence without an end hides all further text: %q", got)
	}
}

// Rule: a Writer writes the same text however its input is divided into pieces, and the text has no
// hostile character.
func FuzzWriter(f *testing.F) {
	f.Add("a\x1b[31mb\u202e\xe4\xb8", 3)
	f.Add("\x1b]0;t\x1b\\\r\n\r\x9b", 1)
	f.Fuzz(func(t *testing.T, in string, cut int) {
		want := Text(in)
		for _, r := range want {
			if Hostile(r) && r != '\n' && r != '\t' {
				t.Fatalf("%q: %U reaches the screen", in, r)
			}
		}
		if !utf8.ValidString(want) || Text(want) != want {
			t.Fatalf("%q: %q changes when it is made safe again", in, want)
		}
		var out bytes.Buffer
		w := NewWriter(&out)
		for at := 0; at < len(in); {
			n := min(len(in)-at, 1+max(0, cut)%7)
			if _, err := w.Write([]byte(in[at : at+n])); err != nil {
				t.Fatal(err)
			}
			at += n
		}
		if err := w.Flush(); err != nil || out.String() != want {
			t.Errorf("%q in pieces: %q, want %q", in, out.String(), want)
		}
	})
}

// Rule: escaped JSON has the same value and no hostile character.
func TestEscapedJSONHasTheSameValue(t *testing.T) {
	in := map[string]string{"a\u202eb": "\x1b[31m\x7f\u009b\u200b\u2028\U000e0041 <&> 世界\n"}
	var out bytes.Buffer
	e := json.NewEncoder(JSON(&out))
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	if err := e.Encode(in); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.String() {
		if Hostile(r) && r != '\n' && r != '\t' {
			t.Errorf("%U in %s", r, out.String())
		}
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["a\u202eb"] != in["a\u202eb"] {
		t.Errorf("%q, %v", back, err)
	}
	if !strings.Contains(out.String(), `<&> 世界`) || !strings.Contains(out.String(), `\udb40\udc41`) {
		t.Errorf("%s", out.String())
	}
}
