package repo

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// namedTest matches the name of a test on a page.
var namedTest = regexp.MustCompile("`Test[A-Z][A-Za-z0-9]*`")

// testsByName returns, for the name of every test, the packages that have a test of this name.
func testsByName(t *testing.T) map[string][]string {
	t.Helper()
	_, sources := goFiles(t)
	there := make(map[string][]string)
	for _, f := range sources {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
				there[fn.Name.Name] = append(there[fn.Name.Name], f.pkg)
			}
		}
	}
	return there
}

// Rule: every test that a page names exists.
func TestNamedTestsExist(t *testing.T) {
	there := testsByName(t)
	for name := range markdown(t) {
		for _, test := range namedTest.FindAllString(read(t, name), -1) {
			if len(there[strings.Trim(test, "`")]) == 0 {
				t.Errorf("%s names %s, and there is no such test", name, test)
			}
		}
	}
}

// Rule: every test that the Makefile names exists. Without this check a renamed test would silently
// run only with the race detector, or only without it.
func TestTheMakefileNamesTests(t *testing.T) {
	there, makefile := testsByName(t), read(t, "Makefile")
	for list, pkg := range map[string]string{"HEAVY": "", "UNRACED": "", "SHARING": "internal/agent/workspace"} {
		line := regexp.MustCompile(`(?m)^` + list + ` +:= (.+)$`).FindStringSubmatch(makefile)
		if line == nil {
			t.Errorf("the Makefile has no list %s", list)
			continue
		}
		for name := range strings.FieldsSeq(line[1]) {
			if in := there["Test"+name]; len(in) == 0 || pkg != "" && !slices.Contains(in, pkg) {
				t.Errorf("%s in the Makefile names Test%s, which does not exist", list, name)
			}
		}
	}
}
