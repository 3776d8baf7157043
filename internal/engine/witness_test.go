package engine_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// The engine logs a warning for each execution that a time limit or the loss of its owner has ended,
// and none for an execution whose owner reported a failure or that will be retried. If many
// executions end at once, the engine logs twenty of them and the number of the others.
func TestAnExecutionThatTimeOrALossEndedIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := engine.New(memory.New(time.Now), engine.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
		start := belay.Policy{StartTimeout: belay.Duration(time.Minute)}
		slow := belay.Submission{Workflow: "late", Policy: start}
		late := must[[]belay.Submitted](t)(e.Submit(t.Context(), slow))[0].ID
		time.Sleep(61 * time.Second)
		synctest.Wait()
		x := must[belay.Execution](t)(e.Execution(t.Context(), late))
		if x.Error == nil || x.Error.FailedBy != belay.FailedByMonitor ||
			!strings.HasPrefix(x.Error.Message, "Execution timeout: worker did not pick up task within timeout") {
			t.Errorf("its error is %+v", x.Error)
		}

		s := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: "w", Workflows: noop, Capacity: 3,
		}))
		must[[]belay.Submitted](t)(e.Submit(t.Context(),
			belay.Submission{Workflow: "w", Policy: belay.Policy{OnLost: belay.Fail}},
			belay.Submission{Workflow: "w"}, belay.Submission{Workflow: "w", Policy: belay.Policy{MaxAttempts: 1}}))
		r := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{Worker: s.ID, Number: 1, Slots: 3}))
		if len(r.Assignments) != 3 {
			t.Fatalf("claimed %d", len(r.Assignments))
		}
		if err := e.Settle(t.Context(), belay.Settlement{
			Lease: r.Assignments[2].Lease, Outcome: belay.OutcomeFailed,
			Failure: &belay.Failure{Class: belay.ClassTransient, Message: "no", FailedBy: belay.FailedByMonitor},
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // the session is lost
		synctest.Wait()
		lost := must[belay.Execution](t)(e.Execution(t.Context(), r.Assignments[0].Lease.Execution))
		if lost.Error == nil || lost.Error.FailedBy != belay.FailedByReaper {
			t.Errorf("the error of the lost one is %+v", lost.Error)
		}
		said := must[belay.Execution](t)(e.Execution(t.Context(), r.Assignments[2].Lease.Execution))
		if said.Error == nil || said.Error.FailedBy != 0 {
			t.Errorf("the error that the owner reported is %+v", said.Error)
		}

		many := make([]belay.Submission, 30)
		for i := range many {
			many[i] = belay.Submission{Workflow: "late", Policy: start}
		}
		must[[]belay.Submitted](t)(e.Submit(t.Context(), many...))
		time.Sleep(62 * time.Second)
		synctest.Wait()
		submitLate := belay.Submission{Workflow: "late", Policy: start}
		must[[]belay.Submitted](t)(e.Submit(t.Context(), submitLate))
		time.Sleep(62 * time.Second)
		synctest.Wait()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		text := log.String()
		if n := strings.Count(text, "an execution was ended"); n != 23 {
			t.Errorf("%d lines, want 1 late, 1 lost, 20 of 30, and 1 late:\n%s", n, text)
		}
		for _, want := range []string{
			"execution=" + late.String(), "failed_by=execution_timeout_monitor", "execution=" + lost.ID.String(),
			"failed_by=reaper", "not_logged=10",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the log has no %q", want)
			}
		}
		if strings.Contains(text, said.ID.String()) {
			t.Error("the log names an execution whose owner reported its failure")
		}
	})
}
