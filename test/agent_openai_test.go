package test

import (
	"os/exec"
	"strings"
	"testing"
)

// Rule: OpenAI's client for Go works with the server: it lists models, gets answers, streams, token
// usage and errors, in chats and in responses, and two requests with the same idempotency key have one execution.
func TestOpenAIsClient(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")})
	cmd := exec.CommandContext(t.Context(), "go", "run", "-buildvcs=false", ".", a.url)
	cmd.Dir = "openai"
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "ok ") != 12 {
		t.Fatalf("%v\n%s", err, out)
	}
	a.stop()
}

// Rule: OpenAI's client for npm and the AI SDK work with the server. The client retries a request by itself if a
// retry helps, and does not retry if a retry would run a failed agent again. If the client aborts a
// request, the server cancels the job.
func TestOpenAIsClientOfNPM(t *testing.T) {
	t.Parallel()
	_, run := npmProject(t, "openai-npm", "package.json", "package-lock.json", "run.js", "check.js",
		"responses.js", "aisdk.js")
	p := newPlace(t)
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")}, "--agent-grace", "100ms")
	for script, checks := range map[string]int{"check.js": 10, "responses.js": 10, "aisdk.js": 8} {
		if out := run("node", script, a.url); strings.Count(out, "ok ") != checks {
			t.Errorf("%s: %s", script, out)
		}
	}
	a.stop()
}
