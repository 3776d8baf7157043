package repo

import (
	"go/ast"
	"testing"
)

// sleepers lists files and packages that may call time.Sleep, with the reason.
var sleepers = map[string]string{
	"internal/agent/runner_test.go": "another process shows by a file that it is ready; with a deadline",
	"internal/agent/process/cgroup_linux.go": "the kernel does not report when a cgroup is empty or frozen; a " +
		"millisecond at a time, with a deadline",
	"internal/agent/process/freezer_linux.go": "the kernel does not report when a process has stopped; a " +
		"millisecond at a time, with a deadline",
	"internal/simulation":      "runs completely in a synctest bubble: sleeping moves its virtual clock",
	"internal/testkit/sdktest": "runs completely in a synctest bubble: sleeping moves its virtual clock",
	"test/attacker":            "keeps the memory and disk space that it has taken until the limits are checked",
	"bench":                    "measures for a fixed time, and generates load at a fixed rate",
}

// Rule: no code sleeps to wait for an event. A test that sleeps is slow or flaky, and mostly both;
// it must instead wait for the event with a deadline, or run in a testing/synctest bubble, in which
// sleeping takes no time (files that import synctest may sleep). Other code must not sleep either,
// because it would not notice the end of its context; it must instead select on a timer and the
// context.
func TestNothingSleeps(t *testing.T) {
	fset, sources := goFiles(t)
	for _, f := range sources {
		if sleepers[f.path] != "" || sleepers[f.pkg] != "" || importedAs(f.ast, "testing/synctest") != "" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name, ok := callTo(f.ast, call, "time"); ok && name == "Sleep" {
				t.Errorf("%s: time.Sleep: wait for the event with a deadline, use testing/synctest, or enter the "+
					"file in sleepers with a reason", fset.Position(call.Pos()))
			}
			return true
		})
	}
}
