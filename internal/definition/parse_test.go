package definition

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Rule: a document that uses every key of the format is valid.
func TestValidDocuments(t *testing.T) {
	files, err := filepath.Glob("testdata/valid/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d, problems := Parse(file, text); d == nil {
			t.Error(problems)
		}
	}
}

// Rule: documents that are made to cost time or memory are refused within milliseconds.
func TestHostileDocuments(t *testing.T) {
	const slowest = 3 * time.Second // milliseconds on an idle machine; this only tells them from a time that explodes
	bomb := "name: n\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10))
	}
	task := func(id, rest string) string { return "  - id: " + id + "\n    uses: x\n" + rest }
	var circle, many, exprs strings.Builder
	for i := range 1000 {
		circle.WriteString(task(fmt.Sprintf("t%d", i), fmt.Sprintf("    needs: [t%d, t%d]\n", (i+1)%1000, (i+7)%1000)))
		many.WriteString(task(fmt.Sprintf("t%d", i), ""))
		exprs.WriteString(task(fmt.Sprintf("t%d", i), "    if: tasks.t0.state == tasks.t1.state\n"))
	}
	for name, text := range map[string]string{
		"aliases that double": bomb,
		"many bytes":          "name: " + strings.Repeat("n", MaxSize),
		"brackets":            "name: " + strings.Repeat("[", 200_000),
		"braces":              strings.Repeat(`{"a":`, 40_000),
		"brackets that close": "a: " + strings.Repeat("[", 900) + strings.Repeat("]", 900),
		"dashes":              strings.Repeat("- ", 120_000),
		"question marks":      strings.Repeat("? ", 120_000),
		"indents":             deepIndent(600),
		"anchors":             "a: " + strings.Repeat("&a ", 80_000),
		"many keys":           manyKeys(30_000),
		"many items":          "name: n\ntasks: [" + strings.Repeat("a,", 100_000) + "]",
		"a long number":       "name: " + strings.Repeat("9", 200_000),
		"a long float":        "name: 0." + strings.Repeat("9", 200_000) + "e9",
		"a huge exponent":     "name: 1e999999999",
		"a long line of json": `{"a": [` + strings.Repeat(`1,`, 100_000) + `1]}`,
		"quotes":              `a: "` + strings.Repeat(`\"`, 100_000),
		"comments":            strings.Repeat("#\n", 120_000),
		"documents":           strings.Repeat("---\n", 60_000),
		"colons":              strings.Repeat("a: ", 80_000),
		"circles":             "name: n\ntasks:\n" + circle.String(),
		"tasks without name":  "tasks:\n" + many.String(),
		"expressions":         "name: n\ntasks:\n" + exprs.String(),
		"open expressions":    "name: n\ntasks:\n" + task("a", "    with: \""+strings.Repeat("${{", 60_000)+"\"\n"),
		"many expressions": "name: n\ntasks:\n" + task("a", "    with: \""+strings.Repeat("${{x}}",
			40_000)+"\"\n"),
		"a long unknown key":    strings.Repeat("k", 200_000) + ": 1",
		"a byte order mark":     "\ufeff\ufeff\ufeff",
		"invalid UTF-8":         "name: \xff\xfe",
		"a large block":         "name: |\n" + strings.Repeat("  x\n", 60_000),
		"schemas in each other": "name: n\ninput: " + strings.Repeat("{not: ", 39) + "true" + strings.Repeat("}", 39),
	} {
		var d *Document
		var problems Problems
		took := time.Hour
		for tries := 0; tries < 3 && took > slowest; tries++ { // another program may have slowed down a try
			start := time.Now()
			d, problems = Parse("doc.yaml", []byte(text))
			took = time.Since(start)
		}
		if d != nil || len(problems) == 0 {
			t.Errorf("%s: no problems", name)
		}
		if len(problems) > maxProblems {
			t.Errorf("%s: %d problems", name, len(problems))
		}
		if took > slowest {
			t.Errorf("%s took %s", name, took)
		}
		t.Logf("%s: %s: %.150s", name, took, problems[0])
	}
}

func deepIndent(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	return b.String()
}

// Rule: the graph of a document names each task with what it needs.
func TestGraph(t *testing.T) {
	text, err := os.ReadFile("testdata/valid/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d, problems := Parse("all.yaml", text)
	if d == nil {
		t.Fatal(problems)
	}
	for name, got := range map[string]string{"all.txt": d.Text(), "all.mmd": d.Mermaid(), "all.svg": d.SVG()} {
		file := filepath.Join("testdata/graph", name)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: %s", file, diff)
		}
	}
}

// Rule: no text of a document can end a label of a drawing or add markup to it.
func TestGraphsOfHostileTexts(t *testing.T) {
	d, problems := Parse("doc.yaml", []byte(`name: n
tasks:
  - id: a
    uses: 'x"]; click a "javascript:alert(1)"'
  - id: b
    uses: '<script>alert(1)</script>'
    if: '"</text><script>" != "`+"`"+`"'
`))
	if d == nil {
		t.Fatal(problems)
	}
	if s := d.SVG(); strings.Contains(s, "<script") {
		t.Error(s)
	}
	for _, line := range strings.Split(d.Mermaid(), "\n") {
		if strings.Count(line, `"`) > 2 || strings.ContainsAny(line, "<`") && !strings.Contains(line, "-->") {
			t.Error(line)
		}
	}
}

// Rule: no text makes the parser panic, and a document that is refused says why, with a position. The parsers of only a
// part of a document agree with the parser of all of it.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		if strings.Contains(file, "graph") {
			continue
		}
		for i, w := range wrongDocuments(f, file) {
			if i%4 == 0 && len(w.document) < 2000 {
				f.Add([]byte(w.document))
			}
		}
	}
	valid, err := os.ReadFile("testdata/valid/all.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Fuzz(func(t *testing.T, text []byte) {
		start := time.Now()
		d, problems := Parse("doc.yaml", text)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %s", took)
		}
		if (d == nil) != (len(problems) > 0) {
			t.Fatalf("document %v, problems %v", d, problems)
		}
		for i := range problems {
			if p := &problems[i]; p.Line < 1 || p.Column < 1 || p.Message == "" {
				t.Errorf("problem without a position: %+v", *p)
			}
		}
		name, triggers, wrong := ParseTriggers("doc.yaml", string(text))
		notify, err := Notifications("doc.yaml", string(text))
		if d == nil {
			return
		}
		_, _, _ = d.Text(), d.Mermaid(), d.SVG()
		if len(wrong) > 0 || err != nil {
			t.Errorf("a part of a valid document is wrong: %v, %v", wrong, err)
		}
		if name != "" && name != d.Name || !cmp.Equal(triggers.Schedules, d.On.Schedules) ||
			!cmp.Equal(triggers.Webhooks, d.On.Webhooks) || !cmp.Equal(notify, d.Notify) {
			t.Errorf("the parts are %q %+v %+v, the document %+v", name, triggers, notify, d)
		}
	})
}

// Rule: no expression makes the evaluation panic or take longer than its budget.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{
		`input.a + 1`, `map(input.list, # * 2)`, `tasks.build.output.x ?? "none"`, `let x = 1; [x, x]`,
		`filter(1..100, # % 2 == 0)`, `input.s matches "^a+$"`, `replace(input.s, "a", input.s)`,
		`count(input.list, count(input.list, # > 1) > 0)`, `{"a": item}.a`, `sortBy(input.list, -#)[1:]`, `toJSON(execution)`,
	} {
		f.Add(s)
	}
	list := make([]any, 2000)
	for i := range list {
		list[i] = i
	}
	env := &Env{
		Input: map[string]any{"a": 1, "list": list, "s": strings.Repeat("a", 10_000),
			"m": map[string]any{"x": nil}},
		Tasks:     map[string]Outcome{"build": {State: "succeeded", Output: map[string]any{"x": 1}}},
		Execution: map[string]any{"id": "ex_1"},
	}
	f.Fuzz(func(t *testing.T, source string) {
		// An expression that never ends must end the test, or its worker would hang without a finding.
		watch := time.AfterFunc(10*time.Second, func() { panic("hangs: " + source) })
		defer watch.Stop()
		p, err := Compile(source)
		if err != nil {
			return
		}
		start := time.Now()
		v, err := p.Eval(env)
		if took := time.Since(start); took > maxTime+2*time.Second {
			t.Errorf("%s took %s", source, took)
		}
		if err == nil {
			if _, err := jsonOf(v); err != nil {
				t.Errorf("%s: the value %v is no JSON: %v", source, v, err)
			}
		}
	})
}
