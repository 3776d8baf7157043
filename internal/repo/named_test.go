package repo

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// namedTest is a test as pages write its name.
var namedTest = regexp.MustCompile("`Test[A-Z][A-Za-z0-9]*`")

// A page that says which test shows something names one that is there.
func TestNamedTestsExist(t *testing.T) {
	_, sources := goFiles(t)
	there := map[string]bool{}
	for _, f := range sources {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
				there[fn.Name.Name] = true
			}
		}
	}
	for name := range markdown(t) {
		for _, test := range namedTest.FindAllString(read(t, name), -1) {
			if !there[strings.Trim(test, "`")] {
				t.Errorf("%s names %s, and there is no such test", name, test)
			}
		}
	}
}
