package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store/memory"
)

// If an execution waits at a gate, its row names the gate, and explain says that the execution
// waits for the gate. This is also true of executions that only external owners may own.
func TestExplainNamesTheGate(t *testing.T) {
	s := memory.New(time.Now)
	e := engine.New(s, engine.Options{})
	defer e.Close()
	ctx := t.Context()
	for _, sub := range []belay.Submission{{Workflow: "w"}, {Workflow: "w", External: true}} {
		id := must[[]belay.Submitted](t)(e.Submit(ctx, sub))[0].ID
		err := s.Commit(ctx, machine.Need{Executions: []belay.ExecutionID{id}},
			func(rows *machine.Rows) *machine.Changes {
				rows.Executions[0].Gate = "limit:crawler"
				return &machine.Changes{Executions: rows.Executions}
			})
		if err != nil {
			t.Fatal(err)
		}
		x := must[belay.Execution](t)(e.Execution(ctx, id))
		if x.Gate != "limit:crawler" || x.External != sub.External || x.Reason == nil || x.Reason.Code != "gate" {
			t.Errorf("parked, it is %+v because of %+v", x, x.Reason)
		}
		why := must[belay.Explanation](t)(e.Explain(ctx, id))
		summary := `It waits, since limit "crawler", which is open, lets executions through in the order of its line.`
		facts := "its place in the line is 1 of 1"
		if sub.External { // the execution of the first round still waits at the gate
			facts = "its place in the line is 2 of 2"
		}
		if got := strings.Join(why.Facts, "\n"); why.Summary != summary || !strings.Contains(got, facts) {
			t.Errorf("explained as %s\n%s\nwant %s\n%s", why.Summary, got, summary, facts)
		}
	}
}
