package definition

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the messages of the documents in testdata again")

// wrong is a document with problems and its messages.
type wrong struct{ name, document, problems string }

// wrongDocuments reads a file of documents with problems. Each begins with a line "=== name", and its messages with a
// line "--- problems".
func wrongDocuments(t testing.TB, file string) []wrong {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []wrong
	for _, s := range strings.Split("\n"+string(data), "\n=== ")[1:] {
		name, rest, _ := strings.Cut(s, "\n")
		doc, problems, found := strings.Cut("\n"+rest+"\n", "\n--- problems\n")
		if !found {
			t.Fatalf("%s: %s has no line with --- problems", file, name)
		}
		all = append(all, wrong{name, strings.TrimPrefix(doc+"\n", "\n"), strings.TrimSpace(problems)})
	}
	return all
}

// Rule: each wrong document gets messages that name the line and the column and say what to do; no document costs much
// time.
func TestWrongDocuments(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	count := 0
	for _, file := range files {
		var out bytes.Buffer
		for _, w := range wrongDocuments(t, file) {
			count++
			start := time.Now()
			d, problems := Parse("doc.yaml", []byte(w.document))
			if took := time.Since(start); took > time.Second {
				t.Errorf("%s: %s took %s", file, w.name, took)
			}
			if len(problems) == 0 || d != nil {
				t.Errorf("%s: %s has no problems", file, w.name)
			}
			if got := problems.Error(); got != w.problems && !*update {
				t.Errorf("%s: %s:\n%s\ngives\n%s\nnot\n%s", file, w.name, w.document, got, w.problems)
			}
			out.WriteString("=== " + w.name + "\n" + w.document + "--- problems\n" + problems.Error() + "\n")
		}
		if *update {
			if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if count < 200 {
		t.Errorf("%d wrong documents; at least 200 are expected", count)
	}
}
