package repo

import (
	"go/ast"
	"go/doc"
	"maps"
	"slices"
	"strings"
	"testing"
)

// shown are the packages whose exported functions all need an example.
var shown = []string{"workflow", "worker", "embedded", "client", "belaytest", "registry"}

// unshown lists functions of the packages in shown that have no example, with the reason.
var unshown = map[string]string{
	"embedded.Observe":  "it is for Belay's own server: the type of its argument is in an internal package",
	"embedded.Courier":  "likewise",
	"embedded.RunTrace": "likewise",
}

// unrun lists examples that are only compiled, with the reason.
var unrun = map[string]string{
	"embedded.SubmitTx": "it needs a PostgreSQL; examples/web-orders does the same, and is run",
}

// Rule: every exported function F of the packages that users import has an ExampleF in that
// package, and go test runs the example. For the methods of an exported type T, one example is
// enough: of T, of any of its methods, or of a function that returns a T.
func TestExportedFunctionsHaveExamples(t *testing.T) {
	_, sources := goFiles(t)
	for _, pkg := range shown {
		examples := map[string]bool{} // whether go test runs an example, by its name
		var code []*ast.FuncDecl
		for _, f := range sources {
			if f.pkg != pkg {
				continue
			}
			if f.test {
				for _, e := range doc.Examples(f.ast) {
					examples[e.Name] = e.Output != "" || e.EmptyOutput
				}
				continue
			}
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.IsExported() {
					code = append(code, fn)
				}
			}
		}
		for _, fn := range code {
			checkExample(t, pkg, fn, code, examples)
		}
	}
}

func checkExample(t *testing.T, pkg string, fn *ast.FuncDecl, code []*ast.FuncDecl, examples map[string]bool) {
	t.Helper()
	name := fn.Name.Name
	if fn.Recv == nil {
		run, there := examples[name]
		full := pkg + "." + name
		switch {
		case !there && unshown[full] == "":
			t.Errorf("%s has no Example%s in package %s: add one with its output", full, name, pkg)
		case there && !run && unrun[full] == "":
			t.Errorf("Example%s of package %s has no output comment, so it is not run", name, pkg)
		}
		return
	}
	typ := receiverName(fn.Recv.List[0].Type)
	if !ast.IsExported(typ) || isStandardMethod(name) || covered(typ, code, examples) {
		return
	}
	t.Errorf("%s.%s.%s has no example: none is of %s, nor of a function that returns one; there are %s",
		pkg, typ, name, typ, strings.Join(slices.Sorted(maps.Keys(examples)), ", "))
}

// covered reports whether an example shows how to use the type typ: an example of the type or of a
// method, or an example of a function that returns it.
func covered(typ string, code []*ast.FuncDecl, examples map[string]bool) bool {
	for name := range examples {
		if name == typ || strings.HasPrefix(name, typ+"_") {
			return true
		}
	}
	return slices.ContainsFunc(code, func(fn *ast.FuncDecl) bool {
		if _, shown := examples[fn.Name.Name]; !shown || fn.Recv != nil || fn.Type.Results == nil {
			return false
		}
		return slices.ContainsFunc(fn.Type.Results.List, func(r *ast.Field) bool { return receiverName(r.Type) == typ })
	})
}
