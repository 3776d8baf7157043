package definition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// published compiles the published schema.
func published(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(Published())))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("https://belay.example/workflow.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("https://belay.example/workflow.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Rule: the published schema agrees with the validation: it accepts every valid document, and refuses every document
// whose problems are only unknown keys, absent keys and wrong types.
func TestPublishedSchema(t *testing.T) {
	s := published(t)
	files, err := filepath.Glob("testdata/valid/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(parse(text, &report{}).plain()); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, w := range wrongDocuments(t, "testdata/wrong/keys.txt") {
		r := &report{}
		if err := s.Validate(parse([]byte(w.document), r).plain()); err == nil {
			t.Errorf("the schema accepts the document %q:\n%s%s", w.name, w.document, w.problems)
		}
	}
}

// Rule: the reference in docs/documents.md is made from the table of the format.
func TestReference(t *testing.T) {
	const file, begin, end = "../../docs/documents.md", "<!-- reference:", "<!-- /reference -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), begin)
	head, rest, _ := strings.Cut(rest, "-->\n")
	old, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no lines %q and %q", file, begin, end)
	}
	want := "\n" + Reference() + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+head+"-->\n"+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != want {
		t.Errorf("the reference in %s is out of date: go test ./internal/definition -run TestReference -update", file)
	}
}

// Rule: the guide names every function of expressions.
func TestGuideNamesFunctions(t *testing.T) {
	text, err := os.ReadFile("../../docs/documents.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range callable() {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/documents.md does not name the function %s", name)
		}
	}
}
