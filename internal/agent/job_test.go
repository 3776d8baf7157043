package agent

import (
	"strings"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: Check refuses a job that could not run, and the error contains the reason.
func TestAJobThatCouldNotRunIsRefused(t *testing.T) {
	step := func(name string, argv ...string) Step { return Step{Name: name, Argv: argv} }
	for _, c := range []struct {
		name string
		job  Job
		code belay.Code
		says string
	}{
		{"no command", Job{}, belay.CodeInvalid, "no command given"},
		{"empty command", Job{Steps: []Step{step("a", "")}}, belay.CodeInvalid, "empty command"},
		{"blank command", Job{Steps: []Step{step("a", " \t")}}, belay.CodeInvalid, "empty command"},
		{"nameless step", Job{Steps: []Step{step("", "true")}}, belay.CodeInvalid, "name"},
		{"control character in a name", Job{Steps: []Step{step("a\x1b[2J", "true")}}, belay.CodeInvalid, "name"},
		{"two steps of one name", Job{
			Steps: []Step{step("a", "true"), step("a", "true")},
		}, belay.CodeInvalid, "two steps"},
		{"NUL in an argument", Job{Steps: []Step{step("a", "echo", "x\x00y")}}, belay.CodeInvalid, "NUL"},
		{"argument not UTF-8", Job{Steps: []Step{step("a", "echo", "\xff")}}, belay.CodeInvalid, "UTF-8"},
		{"negative timeout", Job{Steps: []Step{step("a", "true")}, Timeout: -1}, belay.CodeInvalid, "negative"},
		{"bad environment name", Job{
			Steps: []Step{step("a", "true")}, Env: []string{"A=B"},
		}, belay.CodeInvalid, "environment"},
		{"too large", Job{
			Steps: []Step{step("a", "echo", strings.Repeat("x", belay.MaxPayload))},
		}, belay.CodePayloadTooLarge, "limit"},
		{"too many steps", Job{Steps: make([]Step, maxSteps+1)}, belay.CodeInvalid, "limit"},
	} {
		err := c.job.Check()
		if belay.CodeOf(err) != c.code || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	fine := Job{Repo: "/r", Steps: []Step{step("a b", "sh", "-c", "echo 'ü\n'")}, Env: []string{"HOME"}}
	if err := fine.Check(); err != nil {
		t.Error(err)
	}
}
