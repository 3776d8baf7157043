package telemetry_test

import (
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/engine"
	"github.com/belaydev/belay/internal/telemetry"
)

// Rule: the plots have the last sixty minutes, each with what the server did in it, and forget older ones.
func TestRecentMinutes(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 30, 0, time.UTC)
	began := now
	r := telemetry.NewRecent(func() time.Time { return now })
	ended := func(states ...belay.State) *engine.Observation {
		o := &engine.Observation{}
		for _, s := range states {
			o.Finished = append(o.Finished, engine.FinishedOne{State: s})
		}
		return o
	}
	r.Observe(ended(belay.Succeeded, belay.Succeeded, belay.Failed))
	r.Observe(&engine.Observation{})
	now = now.Add(time.Minute)
	o := ended(belay.Cancelled)
	for i := range 100 {
		o.Started = append(o.Started, engine.StartedOne{Wait: time.Duration(i+1) * 10 * time.Millisecond})
	}
	o.Late = []time.Duration{0, 40 * time.Millisecond, 2 * time.Hour}
	r.Observe(o)
	all, since := r.Minutes()
	if len(all) != telemetry.Minutes || !since.Equal(began) {
		t.Fatalf("%d minutes since %s", len(all), since)
	}
	first, second := all[58], all[59]
	if !second.At.Equal(began.Add(30*time.Second)) || !first.At.Equal(began.Add(-30*time.Second)) {
		t.Errorf("the last minutes are %s and %s", first.At, second.At)
	}
	if first.Succeeded != 2 || first.Failed != 1 || first.Cancelled != 0 || first.Starts != 0 || first.StartMost != 0 {
		t.Errorf("%+v", first)
	}
	if second.Cancelled != 1 || second.Starts != 100 || second.Takeovers != 3 || second.TakeoverMost != 2*time.Hour {
		t.Errorf("%+v", second)
	}
	for _, x := range []struct{ got, want time.Duration }{
		{second.StartHalf, 500 * time.Millisecond}, {second.StartMost, 950 * time.Millisecond},
		{second.TakeoverHalf, 40 * time.Millisecond},
	} {
		if x.got < x.want || x.got > x.want*11/10 {
			t.Errorf("%s, want %s to a tenth more", x.got, x.want)
		}
	}
	for _, m := range all[:58] {
		if m.Succeeded+m.Failed+m.Cancelled+m.Starts+m.Takeovers != 0 {
			t.Errorf("before the start: %+v", m)
		}
	}
	now = now.Add(59 * time.Minute)
	if all, _ = r.Minutes(); all[0].Starts != 100 || all[59].Starts != 0 {
		t.Errorf("after 59 minutes: %+v and %+v", all[0], all[59])
	}
	r.Observe(ended(belay.Failed)) // takes the place of the first minute
	now = now.Add(time.Minute)
	if all, _ = r.Minutes(); all[0].Starts != 0 || all[58].Failed != 1 || all[58].Succeeded != 0 {
		t.Errorf("after 60 minutes: %+v and %+v", all[0], all[58])
	}
}
