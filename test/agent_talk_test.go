package test

import (
	"encoding/json"
	"strings"
	"testing"
)

// Rule: when a job's conversation continues in a new run, its stream continues too: the output of
// the new run follows the output of the old run, and nothing is repeated. A chat that joins later
// gets the whole output.
func TestAStreamContinuesWithItsConversation(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	repo := p.repository()
	script := func(text string) string {
		argv, err := json.Marshal([]string{"sh", "-c", text, "sh", "{{session}}", "{{prompt}}"})
		if err != nil {
			t.Fatal(err)
		}
		return string(argv)
	}
	s := p.assisted(nil, append(noLocalAgents, "--agent-repo", repo)...)
	env := []string{
		"BELAY_GRACE=1s", "BELAY_AGENT_GRACE=100ms",
		"BELAY_AGENT_COMMAND=" + script(`echo "$1" > session; printf "I begin"; exec sleep 600`),
		"BELAY_AGENT_RESUME_COMMAND=" + script(`test "$1" = "$(cat session)" && echo "and go on"`),
	}
	one := s.startWorker("one", env...)
	ask := func() <-chan frame { return s.stream(chatOf("words", `"stream":true`), "Idempotency-Key", "k") }
	events := ask()
	for e := range events {
		if strings.Contains(e.data, "I begin") {
			break
		}
	}
	one.stopWorker()
	two := s.startWorker("two", env...)
	const all = "I begin\n\nand go on\n"
	if rest := contentOf(t, events); rest != strings.TrimPrefix(all, "I begin") {
		t.Errorf("the rest of the stream is %q", rest)
	}
	if again := contentOf(t, ask()); again != all {
		t.Errorf("a chat that joined got %q", again)
	}
	two.stopWorker()
	s.stop()
}
