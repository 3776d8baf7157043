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

// Rule: every test that the Makefile names exists, and make unit runs the tests without the race
// detector in each package that has them. Without this check a renamed test, or the test of another
// package, would silently run only with the race detector, or not at all.
func TestTheMakefileNamesTests(t *testing.T) {
	there, makefile := testsByName(t), read(t, "Makefile")
	words := func(list string) []string {
		line := regexp.MustCompile(`(?m)^` + list + ` +:= (.+)$`).FindStringSubmatch(makefile)
		if line == nil {
			t.Fatalf("the Makefile has no list %s", list)
		}
		return strings.Fields(line[1])
	}
	plain := append(words("PLAIN"), words("SPARED")...)
	for _, list := range []string{"HEAVY", "UNRACED", "SHARING"} {
		for _, name := range words(list) {
			in := there["Test"+name]
			if len(in) == 0 || list == "SHARING" && !slices.Contains(in, "internal/agent/workspace") {
				t.Errorf("%s in the Makefile names Test%s, which does not exist", list, name)
			}
			for _, pkg := range in {
				if list != "SHARING" && !slices.Contains(plain, "./"+pkg) {
					t.Errorf("%s in the Makefile names Test%s, which make unit does not run in %s", list, name, pkg)
				}
			}
		}
	}
}
