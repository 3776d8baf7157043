package engine_test

import (
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: a list counts executions by state if its filter requests it.
func TestListsCountStates(t *testing.T) {
	e := open(t)
	for range 2 {
		if _, err := e.Submit(t.Context(), belay.Submission{Workflow: "w"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		filter belay.Filter
		want   int
	}{
		{belay.Filter{Count: true, Limit: 1, States: []belay.State{belay.Failed}}, 2},
		{belay.Filter{Count: true, Workflow: "other"}, 0},
	} {
		page, err := e.Executions(t.Context(), c.filter)
		if err != nil || page.Counts == nil || page.Counts.States[belay.Pending] != c.want || page.Counts.More {
			t.Errorf("%+v: %+v, %v", c.filter, page.Counts, err)
		}
	}
	for _, f := range []belay.Filter{{}, {Count: true, Key: "k"}} {
		if page, err := e.Executions(t.Context(), f); err != nil || page.Counts != nil {
			t.Errorf("%+v: %+v, %v", f, page.Counts, err)
		}
	}
}

// Rule: a list refuses a text of the error that a store cannot search for, or that is too long.
func TestListsRefuseTextsThatNoStoreCanFind(t *testing.T) {
	e := open(t)
	for _, text := range []string{"\xff", "a\x00b", strings.Repeat("x", belay.MaxErrorText+1)} {
		if _, err := e.Executions(t.Context(), belay.Filter{Error: text}); belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	text := strings.Repeat("ä", belay.MaxErrorText/2)
	if _, err := e.Executions(t.Context(), belay.Filter{Error: text}); err != nil {
		t.Error(err)
	}
}
