package webui

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// hostile are texts that attack the reader of a page.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`,
	`</title><script>alert(1)</script>`,
	`</pre></textarea></style><svg onload=alert(1)>`,
	`<!--<script>`, `]]><x>`, `<?php x ?>`, `{{.ID}}{{template "main"}}`,
	`javascript:alert(1)`, `data:text/html,<script>alert(1)</script>`,
	`&lt;script&gt;`, `&#60;script&#62;`, `<a href="javascript:alert(1)">click</a>`,
	"\x1b]0;owned\x07\x1b[2J\x1b[31mred", "a\x00b", "bell\a back\b\b", "\u202egnp.exe", "\u2066iso\u2069", "\u200fmark",
	"\ufeffbom",
	"line\u2028separator", "\xff\xfe broken \xc3", "\x9b31m", "\U000e0001tag", "\ufffe",
	"מלל بالعربية", "👩‍👩‍👧 family", strings.Repeat("nobreak", 3000), strings.Repeat("\n", 3000),
}

// poisoned makes a Backend with an execution that has the text s in every field that clients fill.
func poisoned(s string) *fake {
	f := running()
	raw, err := json.Marshal(map[string]string{s: s})
	if err != nil {
		raw = []byte(`"` + s + `"`)
	}
	e := f.one
	e.Workflow, e.Version, e.Queue, e.Key, e.ParentKey, e.Trigger = s, s, s, s, s, belay.Trigger(s)
	e.Parent, e.OpenChildren = id(7), 2
	e.Labels, e.WorkerLabels = map[string]string{s: s, "command": s}, map[string]string{s: s}
	e.Input, e.Output = raw, json.RawMessage(`"`+s+`"`)
	e.Error = &belay.Failure{Class: belay.ClassPermanent, Message: s, Stack: s}
	e.Reason = &belay.Reason{Code: s, Text: s}
	f.why = belay.Explanation{Summary: s, Facts: []string{s, "`" + s + "`", s}, Remedies: []belay.Remedy{
		{Do: belay.RemedySignal, Of: belay.RemedyExecution, ID: s, Signal: s, Title: s, Text: s},
		{Do: "resume", Of: belay.RemedyGate, ID: s, Title: s, Text: s},
		{Do: belay.RemedyLook, Of: belay.RemedyGate, ID: s, Title: s, Text: s},
	}}
	w := &f.workers[0]
	w.Name, w.Process.Host = s, s
	for i := range f.events {
		ev := &f.events[i]
		ev.Name, ev.Text, ev.Actor, ev.Error = s, s, s, e.Error
		ev.DurationMS, ev.Steps = 3, []belay.StepRecord{
			{Kind: belay.KindStep, Name: s, Attempt: 2, BeganAt: noon, Over: true, Error: s},
			{Kind: belay.KindWait, Name: s, BeganAt: noon},
		}
	}
	e.Current = f.events[0].Steps
	f.events = append(f.events, belay.Event{Seq: 7, Kind: s, At: noon, Name: s},
		belay.Event{Seq: 8, Kind: "child", At: noon, Name: s, Text: s})
	f.chunks = []belay.StoredChunk{{Data: []byte(s), At: f.events[5].At}}
	f.list = func(belay.Filter) (belay.Page, error) {
		return belay.Page{Executions: []belay.Execution{*e}, Next: s}, nil
	}
	return f
}

// checkTame fails the test if a page contains an element, an attribute or a character that only a
// hostile text can have put into the page.
func checkTame(t *testing.T, a *answer) {
	t.Helper()
	for _, r := range a.body {
		if r != '\n' && r != '\t' && steers(r) {
			t.Fatalf("the page holds the character %U", r)
		}
	}
	var walk func(n *node)
	walk = func(n *node) {
		if n.name == "script" && (!strings.HasPrefix(n.attr["src"], "/assets/live.js?v=") || n.words() != "") ||
			n.name == "a" && !strings.HasPrefix(n.attr["href"], "/") &&
				!strings.HasPrefix(n.attr["href"], "#") {
			t.Errorf("the page holds <%s %v>", n.name, n.attr)
		}
		if n.name == "img" && !strings.HasPrefix(n.attr["src"], "/assets/") {
			t.Errorf("the page loads %v", n.attr)
		}
		for name := range n.attr {
			if strings.HasPrefix(name, "on") || name == "style" {
				t.Errorf("<%s> has the attribute %s", n.name, name)
			}
		}
		for _, k := range n.kids {
			walk(k)
		}
	}
	walk(a.root)
	if n := len(a.root.all("script")); n > 1 {
		t.Errorf("the page holds %d scripts", n)
	}
}

// A text from a client is shown as text, and never works as markup.
func TestHostileTextIsText(t *testing.T) {
	plain := len(get(t, poisoned("x"), here+id(1).String()).root.all("rect"))
	for _, s := range hostile {
		t.Run(fmt.Sprintf("%.20q", s), func(t *testing.T) {
			f := poisoned(s)
			one := get(t, f, here+id(1).String())
			checkTame(t, one)
			if got := len(one.root.all("rect")); got != plain {
				t.Errorf("the pictures have %d parts, want %d as with plain text", got, plain)
			}
			if len(one.body) > 512<<10 {
				t.Errorf("the page has %d bytes", len(one.body))
			}
			checkTame(t, get(t, f, "/executions"))
			checkTame(t, get(t, f, "/executions?workflow="+percent(s)+"&parent="+id(1).String()))
			checkTame(t, get(t, f, here+percent(s)))
			checkTame(t, get(t, f, "/executions?state="+percent(s)))
		})
	}
}

// percent returns the text with every byte percent-encoded, for use in an address.
func percent(s string) string {
	var b strings.Builder
	for _, c := range []byte(s[:min(len(s), 500)]) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// Control characters and marks of text direction are replaced by visible characters. Other text
// stays as it is, including the joiners in scripts and emoji.
func TestInvisibleCharactersAreMadeVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ntext":   "plain\ntext",
		"a\x00b\x1b[2J": "a␀b␛[2J",
		"\u202egnp":     "⟨U+202E⟩gnp",
		"\xffx":         "�x",
		"👩‍👧 مرحبا":     "👩‍👧 مرحبا",
		"\x7f\u2028":    "␡⟨U+2028⟩",
	} {
		if got := string(visible([]byte(in))); got != want {
			t.Errorf("visible(%q) is %q, want %q", in, got, want)
		}
	}
}

// With any text in its fields, a page is well-formed and passes checkTame.
func FuzzPages(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := poisoned(s)
		checkTame(t, get(t, b, here+id(1).String()))
		checkTame(t, get(t, b, "/executions"))
	})
}

// The page shows JSON indented, and with the characters instead of their escapes for HTML: >
// instead of \u003e. The text \\u003e stays, because its backslash is escaped.
func TestPayloadIsReadable(t *testing.T) {
	got := show([]byte(`{"a":"x \u003e y \\u003e \u0026"}`)).Text
	if want := "{\n  \"a\": \"x > y \\\\u003e &\"\n}"; got != want {
		t.Errorf("shown as %s, want %s", got, want)
	}
}
