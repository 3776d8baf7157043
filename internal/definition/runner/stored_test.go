package runner_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
)

// nap is a stored document that takes an hour and returns its version.
func nap(version int) string {
	return fmt.Sprintf("name: nap\ntasks:\n  - {id: a, uses: slow, with: v}\noutput: version %d\n", version)
}

func (l *lab) apply(name, text string) {
	l.t.Helper()
	if _, err := l.kit.Backend.ApplyDocument(l.t.Context(), belay.DocumentApply{Name: name, Text: text}); err != nil {
		l.t.Fatal(err)
	}
}

// Rule: a task starts a stored document, and its child keeps its version. A task that starts later gets the version
// that is newest then, or the one that it names. A document that does not exist fails the task.
func TestTasksStartStoredDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.close()
		l.apply("nap", nap(1))
		h := l.start(`name: tasks
tasks:
  - {id: a, uses: workflow, with: {document: nap}}
  - {id: b, uses: workflow, needs: a, with: {document: nap}}
  - {id: c, uses: workflow, needs: a, with: {document: "${{ 'nap' }}@1"}}
  - {id: d, uses: workflow, on_failure: continue, with: {document: missing}}
  - {id: e, uses: workflow, on_failure: continue, with: {document: "${{ '../x' }}"}}
  - {id: f, uses: workflow, needs: [b, c, d, e], on_failure: continue, with: {document: "${{ 1 }}"}}
output: ["${{ tasks.a.output }}", "${{ tasks.b.output }}", "${{ tasks.c.output }}", "${{ tasks.d.error }}",
  "${{ tasks.e.error }}", "${{ tasks.f.error }}"]
`)
		time.Sleep(10 * time.Minute)
		l.apply("nap", nap(2))
		got, err := l.result(h)
		if err != nil || !strings.HasPrefix(got, `["version 1","version 2","version 1",`) {
			t.Errorf("%s, %v", got, err)
		}
		for _, want := range []string{"no stored document missing", "the name of a document has", "must be a text"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %s", got, want)
			}
		}
	})
}

// Rule: all items of a foreach start the same version, although the document changes while they run, and whenever the
// runner crashes.
func TestItemsStartOneVersion(t *testing.T) {
	for crash := range 7 {
		for _, before := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				defer l.close()
				l.apply("nap", nap(1))
				switch {
				case crash == 0:
				case before:
					l.kit.CrashBefore(crash)
				default:
					l.kit.CrashAfter(crash)
				}
				h := l.start("name: each\ntasks:\n" +
					"  - {id: a, uses: workflow, foreach: 1..6, parallel: 2, with: {document: nap}}\n" +
					"output: ${{ tasks.a.output }}\n")
				synctest.Wait()
				l.apply("nap", nap(2))
				l.kit.Crash() // in case there were fewer checkpoints
				l.kit.Restart()
				got, err := l.result(h)
				want := `["version 1"` + strings.Repeat(`,"version 1"`, 5) + "]"
				if err != nil || got != want {
					t.Errorf("crash %d, before %v: %s, %v; want %s", crash, before, got, err, want)
				}
			})
		}
	}
}
