package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/store/memory"
)

// A worker of two queues serves both queues: even if one queue has a long backlog, an execution
// that is submitted to the other queue starts within the next two claims.
func TestABacklogDoesNotKeepAnotherQueueWaiting(t *testing.T) {
	e := engine.New(memory.New(time.Now), engine.Options{})
	defer e.Close()
	const backlog = 1000
	all := make([]belay.Submission, backlog)
	for i := range all {
		all[i] = belay.Submission{Workflow: "w", Queue: "large"}
	}
	must[[]belay.Submitted](t)(e.Submit(t.Context(), all...))
	for _, slots := range []int{1, 2, 5} {
		w := must[belay.Session](t)(e.OpenWorker(t.Context(), belay.WorkerSpec{
			Name: fmt.Sprint("w", slots), Queues: []string{"large", "small"},
			Workflows: []belay.Registration{{Workflow: "w"}}, Capacity: 1000, TTL: belay.Duration(time.Hour),
		})).ID
		number := int64(0)
		claim := func() (small, large int) {
			number++
			r := must[belay.ClaimReply](t)(e.Claim(t.Context(), belay.ClaimRequest{
				Worker: w, Number: number, Slots: slots,
			}))
			for _, a := range r.Assignments {
				if a.Queue == "small" {
					small++
				} else {
					large++
				}
			}
			return small, large
		}
		claim()
		for range 10 {
			must[[]belay.Submitted](t)(e.Submit(t.Context(), belay.Submission{Workflow: "w", Queue: "small"}))
			small := 0
			for range 2 {
				s, l := claim()
				if small += s; s+l != slots {
					t.Fatalf("%d slots won %d and %d", slots, s, l)
				}
			}
			if small != 1 {
				t.Fatalf("with %d slots two claims won %d of the other queue", slots, small)
			}
		}
	}
}
