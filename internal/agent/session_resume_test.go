package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
	"github.com/belaydev/belay/workflow"
)

// Rule: if an agent is interrupted twice, its conversation is begun once and then continued twice,
// with the same id and with the command Resume.
func TestAnInterruptedConversationIsContinued(t *testing.T) {
	d := newTestBed(t)
	const work = `echo "$0 $1 $2" >> said; cat said; if [ "$(wc -l < said)" -lt 3 ]; then exec sleep 600; fi`
	setup, err := agent.NewSetup("", agent.Setup{
		Command: agent.Template{"sh", "-c", work, "begin", "{{session}}", "{{prompt}}"},
		Resume:  agent.Template{"sh", "-c", work, "continue", "{{session}}"},
		Repo:    d.repo, Timeout: time.Minute, Grace: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	h, err := workflow.Start[agent.Answer](t.Context(), d, agent.Prompted, agent.Prompt{Text: "work", Repo: d.repo},
		once)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		stop := d.assist(t, &agent.Assistant{Setup: setup})
		last := []string{"begin ", "continue "}[n]
		d.until(t, h.ID(), func(*belay.Execution) bool {
			out := chunks(t, d, h.ID(), agent.OutputLog)
			return strings.Contains(out, last) && strings.HasSuffix(out, "\n")
		})
		stop()
	}
	d.assist(t, &agent.Assistant{Setup: setup})
	got, err := h.Result(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := "begin S work\ncontinue S \ncontinue S \n"; strings.ReplaceAll(got.Text, got.Session, "S") != want ||
		len(got.Session) != 36 {
		t.Errorf("in the conversation %s the agent was started so: %s", got.Session, got.Text)
	}
	if !got.Resumed || !got.Continued {
		t.Errorf("%+v", got)
	}
	if phases := chunks(t, d, h.ID(), agent.PhaseLog); strings.Count(phases, got.Session) != 3 ||
		strings.Count(phases, `"continued":true`) != 2 {
		t.Errorf("its phases are %s", phases)
	}
}
