package repo

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// These bounds are far above the usual lengths in this repository: most files have fewer than 300
// lines, and nine in ten functions fewer than 45. A longer file or function usually mixes two
// ideas. A test function may be longer, because it may contain a table.
const (
	maxFileLines         = 600
	maxFunctionLines     = 120
	maxTestFunctionLines = 200
)

// longData lists files and functions that are long because each consists of one list, with the
// reason.
var longData = map[string]string{}

// Rule: files and functions stay short enough for a reader to keep them in mind.
func TestFilesAndFunctionsAreShort(t *testing.T) {
	fset, sources := goFiles(t)
	var fileLines, functionLines []int
	for _, f := range sources {
		lines := strings.Count(f.text, "\n")
		if !f.test {
			fileLines = append(fileLines, lines)
		}
		if lines > maxFileLines && longData[f.path] == "" {
			t.Errorf("%s has %d lines, more than %d: split it by story, or enter it in longData with a reason if "+
				"it is one list", f.path, lines, maxFileLines)
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			length := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			bound := maxFunctionLines
			if f.test {
				bound = maxTestFunctionLines
			} else {
				functionLines = append(functionLines, length)
			}
			if name := f.path + " " + fn.Name.Name; length > bound && longData[name] == "" {
				t.Errorf("%s: %s has %d lines, more than %d: it is usually two ideas", fset.Position(fn.Pos()),
					fn.Name.Name, length, bound)
			}
		}
	}
	t.Logf("files without tests: %d, half up to %d lines, nine in ten up to %d", len(fileLines),
		quantile(fileLines, 50), quantile(fileLines, 90))
	t.Logf("functions without tests: %d, half up to %d lines, nine in ten up to %d", len(functionLines),
		quantile(functionLines, 50), quantile(functionLines, 90))
}

func quantile(values []int, percent int) int {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)*percent/100]
}
