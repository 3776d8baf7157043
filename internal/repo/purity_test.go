package repo

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// pureImports is what the rules may use from the standard library: arithmetic, text and data.
// Nothing in it can wait, read
// a clock, draw a random number or reach the world.
var pureImports = []string{
	"bytes", "cmp", "crypto/sha256", "encoding/base64", "encoding/binary", "encoding/hex", "encoding/json", "errors",
	"fmt",
	"iter", "maps", "math", "math/bits", "slices", "sort", "strconv", "strings", "time", "unicode", "unicode/utf16",
	"unicode/utf8",
}

// pureTime is what they may call in package time: the types and their arithmetic, not the clock.
var pureTime = []string{"Date", "Duration", "ParseDuration", "Time", "Unix", "UnixMicro", "UnixMilli"}

// The rules live in one pure place: internal/machine decides from its arguments alone, so that every decision can be
// repeated, simulated and compared between stores.
func TestMachineIsPure(t *testing.T) {
	fset, sources := goFiles(t)
	for _, f := range sources {
		if f.test || (f.pkg != "internal/machine" && !strings.HasPrefix(f.pkg, "internal/machine/")) {
			continue
		}
		for _, spec := range f.ast.Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			if !strings.HasPrefix(imported, module) && !slices.Contains(pureImports, imported) {
				t.Errorf("%s imports %s: the rules are pure; what they need from outside comes in as an argument",
					f.path, imported)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
				t.Errorf("%s: concurrency in the rules: they are a function of their arguments", fset.Position(n.Pos()))
			case *ast.CallExpr:
				if name, ok := callTo(f.ast, n, "time"); ok && !slices.Contains(pureTime, name) {
					t.Errorf("%s: time.%s in the rules: the time is an argument", fset.Position(n.Pos()), name)
				}
			}
			return true
		})
	}
}
