package repo

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// pureImports are the packages of the standard library that the rules may use: packages for
// arithmetic, text and data. None of them can wait, draw a random number, or reach a disk or
// network; pureTime limits the use of package time.
var pureImports = []string{
	"bytes", "cmp", "crypto/sha256", "encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "errors",
	"fmt", "iter", "maps", "math", "math/bits", "regexp", "slices", "sort", "strconv", "strings", "time",
	"unicode", "unicode/utf16", "unicode/utf8",
}

// pureTime lists the functions of package time that the rules may call: types and arithmetic, but
// not the clock.
var pureTime = []string{"Date", "Duration", "ParseDuration", "Time", "Unix", "UnixMicro", "UnixMilli"}

// Rule: internal/machine, which contains all rules, decides only by its arguments, so that a test
// can repeat and simulate every decision and compare the stores.
func TestMachineIsPure(t *testing.T) {
	fset, sources := goFiles(t)
	for _, f := range sources {
		if f.test || (f.pkg != "internal/machine" && !strings.HasPrefix(f.pkg, "internal/machine/")) {
			continue
		}
		for _, spec := range f.ast.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			if !strings.HasPrefix(imported, module) && !slices.Contains(pureImports, imported) {
				t.Errorf("%s imports %s: the rules are pure; pass facts from outside in as arguments",
					f.path, imported)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				t.Errorf("%s: concurrency in the rules, which must be a function of their arguments",
					fset.Position(n.Pos()))
			case *ast.CallExpr:
				if name, ok := callTo(f.ast, n, "time"); ok && !slices.Contains(pureTime, name) {
					t.Errorf("%s: time.%s in the rules: the time is an argument", fset.Position(n.Pos()), name)
				}
			}
			return true
		})
	}
}
