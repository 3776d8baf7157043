package test

import (
	"os/exec"
	"strings"
	"testing"
)

// Rule: OpenAI's client for Go works with the server: it lists models, gets answers, streams, token
// usage and errors, and two requests with the same idempotency key have one execution.
func TestOpenAIsClient(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")})
	cmd := exec.CommandContext(t.Context(), "go", "run", "-buildvcs=false", ".", a.url)
	cmd.Dir = "openai"
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "ok ") != 6 {
		t.Fatalf("%v\n%s", err, out)
	}
	a.stop()
}

// Rule: OpenAI's client for npm works with the server. The client retries a request by itself if a
// retry helps, and does not retry if a retry would run a failed agent again. If the client aborts a
// request, the server cancels the job.
func TestOpenAIsClientOfNPM(t *testing.T) {
	t.Parallel()
	_, run := npmProject(t, "openai-npm", "package.json", "package-lock.json", "check.js")
	p := newPlace(t)
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")}, "--agent-grace", "100ms")
	if out := run("node", "check.js", a.url); strings.Count(out, "ok ") != 10 {
		t.Errorf("%s", out)
	}
	a.stop()
}
