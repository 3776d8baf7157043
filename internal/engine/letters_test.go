package engine_test

import (
	"fmt"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: a search of dead letters that takes several steps finds each dead letter once, in pages of any size, and its
// groups count all of them.
func TestSearchesOfDeadLettersTakeSeveralSteps(t *testing.T) {
	e := open(t)
	const all, each = 2300, 23
	for i := range all {
		out, err := e.Submit(t.Context(), belay.Submission{Workflow: []string{"rare", "plain"}[min(1, i%each)]})
		if err != nil {
			t.Fatal(err)
		}
		c := belay.Control{Execution: out[0].ID, Action: belay.ActionQuarantine, Reason: fmt.Sprint("given up ", i)}
		if _, err := e.Control(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for _, limit := range []int{7, 100, 1000} {
		found, pages := make(map[belay.ExecutionID]bool), 0
		f := belay.DeadLetterFilter{Workflow: "rare", Limit: limit}
		for pages == 0 || f.Cursor != "" {
			page, err := e.DeadLetters(t.Context(), f)
			if err != nil || len(page.DeadLetters) > limit {
				t.Fatalf("%d dead letters in a page of %d: %v", len(page.DeadLetters), limit, err)
			}
			for _, l := range page.DeadLetters {
				if l.Workflow != "rare" || found[l.Execution] {
					t.Errorf("limit %d: %s of %s is listed", limit, l.Execution, l.Workflow)
				}
				found[l.Execution] = true
			}
			f.Cursor = page.Next
			pages++
		}
		if want := all / each; len(found) != want || pages > want/limit+2 {
			t.Errorf("limit %d: %d dead letters in %d pages, want %d", limit, len(found), pages, want)
		}
	}
	for workflow, want := range map[string]int{"": all, "rare": all / each} {
		groups, err := e.DeadLetterGroups(t.Context(), belay.DeadLetterFilter{Workflow: workflow})
		count := 0
		for i := range groups.Groups {
			count += groups.Groups[i].Count
		}
		if err != nil || count != want || groups.Examined != all || groups.More {
			t.Errorf("%q: %d of %d dead letters are counted, want %d; more: %t; %v", workflow, count, groups.Examined,
				want, groups.More, err)
		}
	}
}
