package agent

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// A conversation is named by the run that began it: a UUID of version 8, another for
// each run, the same whenever it is asked for.
func TestConversationsHaveNames(t *testing.T) {
	one := belay.RunID{Execution: belay.ExecutionID{1}, Token: 1}
	two := belay.RunID{Execution: belay.ExecutionID{1}, Token: 2}
	got := sessionOf(one)
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("%q is no UUID of version 8", got)
	}
	if got != sessionOf(one) || got == sessionOf(two) {
		t.Errorf("%q and %q", got, sessionOf(two))
	}
}

// The work of a run has the conversation that is noted with it; without a note the one
// that the run began.
func TestTheConversationOfKeptWork(t *testing.T) {
	id := belay.ExecutionID{1}
	own := sessionOf(belay.RunID{Execution: id, Token: 5})
	for _, c := range []struct {
		kept interrupted
		all  []string
		one  string
	}{
		{interrupted{Run: 5}, []string{own}, own},
		{interrupted{Run: 5, Session: own}, []string{own}, own},
		{interrupted{Run: 5, Session: "earlier"}, []string{own, "earlier"}, "earlier"},
	} {
		if diff := cmp.Diff(c.all, c.kept.sessions(id)); diff != "" || c.kept.session(id) != c.one {
			t.Errorf("%+v: %s %s", c.kept, c.kept.session(id), diff)
		}
	}
}
