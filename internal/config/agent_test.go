package config_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay/internal/config"
)

// Rule: the command of an agent is a list of arguments, and an argument may be any text. The list
// is written as a YAML list, as a JSON array, or as words with quotes like in a shell.
func TestTheCommandOfAnAgentIsAListJSONOrWords(t *testing.T) {
	want := []string{"my agent", "-c", "a, \"b\" 'c'\n", "{{prompt}}", "7"}
	for name, s := range map[string]config.Sources{
		"file":  {File: write(t, "agent:\n  command: ['my agent', -c, \"a, \\\"b\\\" 'c'\\n\", \"{{prompt}}\", 7]\n")},
		"json":  {Environ: []string{`BELAY_AGENT_COMMAND=["my agent","-c","a, \"b\" 'c'\n","{{prompt}}","7"]`}},
		"words": {Flags: map[string]string{"agent.command": "'my agent' -c \"a, \\\"b\\\" 'c'\n\" {{prompt}} 7"}},
	} {
		c, err := config.Load(s)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, c.Agent.Command); diff != "" || !c.Agents() {
			t.Errorf("%s: %v\n%s", name, c.Agents(), diff)
		}
	}
	for _, text := range []string{"a 'b", `a "b`, `a\`, "[1]", "[]", " ", "'' a"} {
		if _, err := config.Load(config.Sources{Flags: map[string]string{"agent.command": text}}); err == nil {
			t.Errorf("%q was accepted as a command", text)
		}
	}
}

// Rule: if an agent is configured, Load also reads the environment variables that configured the
// agent service before Belay replaced it, with times in seconds. Without an agent it ignores these
// variables.
func TestTheFormerVariablesOfTheAgentServiceAreRead(t *testing.T) {
	former := []string{
		"MAX_CONCURRENCY=2", "MAX_QUEUE_DEPTH=3", "JOB_TTL_SECONDS=90", "FETCH_DEBOUNCE_SECONDS=5",
		"WORKSPACE_DIR=/workspace", "BELAY_AGENT_MAX_QUEUE_DEPTH=7",
	}
	c, err := config.Load(config.Sources{Environ: append(former, "BELAY_AGENT_PRESET=claude")})
	if err != nil {
		t.Fatal(err)
	}
	a := c.Agent
	if a.Concurrency != 2 || a.QueueDepth != 7 || a.JobTTL != 90*time.Second || a.FetchDebounce != 5*time.Second ||
		a.WorkspaceDir != "/workspace" {
		t.Errorf("got %+v", a)
	}
	if from := c.From("agent.max_concurrency"); from != "MAX_CONCURRENCY" {
		t.Errorf("the source of max_concurrency is %s", from)
	}
	c, err = config.Load(config.Sources{Environ: []string{"MAX_CONCURRENCY=many"}})
	if err != nil || c.Agents() || c.Agent.Concurrency != 10 || c.Agent.QueueDepth != 100 ||
		c.Agent.Timeout != 900*time.Second {
		t.Errorf("without agents: %+v, %v", c, err)
	}
}
