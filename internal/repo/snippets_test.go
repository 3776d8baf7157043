package repo

import (
	"regexp"
	"strings"
	"testing"
)

var (
	goBlock = regexp.MustCompile("(?m)^(?:<!-- (from|file): (\\S+) -->\n)?```go\n((?s:.*?\n))```$")
	indent  = regexp.MustCompile(`(?m)^[ \t]+`)
)

// Rule: Go code on a page compiles: each block names the file from which it was copied, usually an
// Example, and that file contains the same code. The indentation may differ. The blocks of
// docs/go.md are files of a program that TestTheGoPage builds and runs.
func TestSnippetsAreCompiled(t *testing.T) {
	for _, name := range repoFiles(t) {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		for _, m := range goBlock.FindAllStringSubmatch(read(t, name), -1) {
			kind, from, code := m[1], m[2], m[3]
			if kind == "file" && name == "docs/go.md" {
				continue
			}
			first, _, _ := strings.Cut(code, "\n")
			switch {
			case kind != "from":
				t.Errorf("%s: the block that begins %q does not say which file it was taken from: <!-- from: FILE "+
					"--> on the line before it", name, first)
			case !strings.Contains(flat(read(t, from)), flat(code)):
				t.Errorf("%s: the block that begins %q does not stand in %s: copy it again", name, first, from)
			}
		}
	}
}

func flat(code string) string { return indent.ReplaceAllString(code, "") }
