package engine_test

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// A server starts the slots of a schedule that another server has stored before it ended, in time.
func TestAnotherServerStartsTheNextSlot(t *testing.T) {
	a, b := two(t)
	w := watch(t, b, belay.StatusQuery{Labels: map[string]string{belay.LabelSchedule: "hourly"}}).begun()
	slot := time.Now().Add(2 * time.Second)
	s := must[belay.SchedulePutResult](t)(a.PutSchedule(t.Context(), belay.SchedulePut{Schedule: belay.Schedule{
		Name: "hourly", Every: belay.Duration(time.Hour), Execution: belay.Submission{Workflow: "w"},
		Offset: belay.Duration(slot.Sub(slot.Truncate(time.Hour)).Truncate(time.Millisecond)),
	}}))
	if until := time.Until(s.NextAt); until < time.Second || until > 2*time.Second {
		t.Fatalf("the next slot is in %s", until)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	w.until("the slot is started", func() bool { return len(w.Known) == 1 })
}
