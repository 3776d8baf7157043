package agent

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/workspace"
)

// Rule: the id of a conversation is computed from the run that began the conversation. It is a UUID
// of version 8, the same for the same run and different for different runs.
func TestConversationIdIsDerivedFromTheRun(t *testing.T) {
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

// Rule: sessions returns the conversations that stored changes may contain: the conversation of the
// run that made the changes and, if Session names another conversation, also Session. oldestSession
// returns the last of them.
func TestStoredWorkNamesItsConversation(t *testing.T) {
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
		if diff := cmp.Diff(c.all, c.kept.sessions(id)); diff != "" || c.kept.oldestSession(id) != c.one {
			t.Errorf("%+v: %s %s", c.kept, c.kept.oldestSession(id), diff)
		}
	}
}

// Rule: if a conversation was continued by several runs that died, the next run continues the same
// conversation.
func TestConversationSurvivesRepeatedCrashes(t *testing.T) {
	id := belay.ExecutionID{1}
	var kept interrupted
	for run := range belay.Token(4) {
		kept = kept.next(id, &Changes{}, 1+run)
		if want := sessionOf(belay.RunID{Execution: id, Token: 1}); kept.oldestSession(id) != want {
			t.Errorf("after run %d it is %s, want %s", 1+run, kept.oldestSession(id), want)
		}
	}
}

// Rule: the search finds a conversation of Claude Code only if its file contains the prompt,
// because Claude Code refuses to resume a session without a prompt.
func TestClaudeConversationIsFoundByItsPrompt(t *testing.T) {
	m, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Prepare(t.Context(), workspace.Spec{ID: "run_1"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Remove(t.Context())
	b := &bench{runner: &Runner{Workspaces: m}}
	sessions := filepath.Join(w.Home, ".claude/projects/-work-tree")
	if err := os.MkdirAll(sessions, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"begun": `{"type":"queue-operation","operation":"enqueue","sessionId":"begun"}` + "\n", "empty": "",
		"asked": `{"type":"queue-operation"}` + "\n" +
			`{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":"do it"}}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(sessions, name+".jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for session, want := range map[string]bool{"asked": true, "begun": false, "empty": false, "none": false} {
		if got, err := b.finds(t.Context(), w, presets["claude"].conversation, session); got != want || err != nil {
			t.Errorf("%s: %v, %v", session, got, err)
		}
	}
}

// Rule: an agent that has forgotten its conversation gets the prompt with all answers, as far as its command can take
// them.
func TestAnswersFitIntoTheCommand(t *testing.T) {
	most := Template{"agent", placeholder}.MaxPrompt()
	for _, c := range []struct {
		prompt, answer int
		want           string
	}{{10, 10, "The answer was: aaa"}, {10, most, "if you ask again: Which?"}, {most - 5, 10, "ppp"}} {
		now := turn{2, []Replied{{Question{1, "Which?"}, strings.Repeat("a", c.answer)}}}
		got := now.whole(&Prompt{Text: strings.Repeat("p", c.prompt)}, most)
		if len(got) > most || !strings.Contains(got, c.want) || !strings.HasPrefix(got, strings.Repeat("p", c.prompt)) {
			t.Errorf("a message of %d bytes, without %q", len(got), c.want)
		}
	}
}

// Rule: the answer to a question is no answer to another question with the same number.
func TestAnAnswerBelongsToOneQuestion(t *testing.T) {
	one := Question{1, "May I delete the tests?"}
	for _, q := range []Question{{1, "May the work be pushed?"}, {2, one.Text}} {
		if q.Signal() == one.Signal() {
			t.Errorf("%+v and %+v have the signal %s", one, q, q.Signal())
		}
	}
	if again := one; again.Signal() != one.Signal() {
		t.Error("a question that is asked again has another signal")
	}
}

// Rule: an agent that starts again and asks the same questions gets each answer once, in their order.
func TestAnAnswerIsGivenOnce(t *testing.T) {
	k := &clerk{turn: turn{4, []Replied{
		{Question{1, "Which step now?"}, "build"}, {Question{2, "Sure?"}, "yes"},
		{Question{3, "Which step now?"}, "test"},
	}}}
	for _, want := range []string{"build", "test", ""} {
		if got, ok := k.known("Which step now?"); got != want || ok != (want != "") {
			t.Errorf("the answer is %q, want %q", got, want)
		}
	}
	if got, _ := k.known("Sure?"); got != "yes" {
		t.Errorf("the answer is %q", got)
	}
}

// Rule: if a run is killed after it has stored its question, the next run waits for the answer and does not start the
// agent again, although it takes over the workspace of the dead run.
func TestAStoredQuestionSurvivesAKill(t *testing.T) {
	i := interrupted{Run: 3, Turn: 2, Asked: &Question{2, "Sure?"}}
	if n := i.next(belay.ExecutionID{1}, &Changes{}, 3); n.Asked == nil || !n.within(2) {
		t.Errorf("the next run begins with %+v", n)
	}
	if n := i.next(belay.ExecutionID{1}, &Changes{}, 4); n.Asked != nil {
		t.Errorf("a run that has not asked has the question %+v", n.Asked)
	}
}
