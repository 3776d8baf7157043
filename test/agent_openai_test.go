package test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Rule: OpenAI's own client finds what it expects: models, answers, streams, usage,
// errors, and one execution for one key.
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

// Rule: so does OpenAI's client for npm, which besides asks again by itself where
// that helps and not where it would run a failed agent again, and whose aborts cancel
// the job.
func TestOpenAIsClientOfNPM(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is needed: %v (scripts/need.sh node:nodejs npm)", tool, err)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "check.js"} {
		copyInto(t, filepath.Join("openai-npm", name), filepath.Join(dir, name))
	}
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, clip(string(out)))
		}
		return string(out)
	}
	run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	p := newPlace(t)
	a := p.assisted([]string{"BELAY_AGENT_COMMAND=" + smallAgent(t, "--stream-json")}, "--agent-grace", "100ms")
	if out := run("node", "check.js", a.url); strings.Count(out, "ok ") != 10 {
		t.Errorf("%s", out)
	}
	a.stop()
}
