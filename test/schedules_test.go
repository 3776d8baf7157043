package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/testkit/pgtest"
)

// Rule: every slot of a schedule starts one execution, while servers and the database are killed, and no slot within
// the catch-up window is missed.
func TestEachSlotStartsOnceWhileServersAreKilled(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		g := newGroup(t, "", 1)
		ticking(t, g, 20, func(*rand.Rand) { g.members[0].kill() })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		srv := pgtest.Start(t, pgtest.Options{})
		g := newGroup(t, srv.Database(t), 3)
		ticking(t, g, 200, func(r *rand.Rand) {
			if r.IntN(3) > 0 {
				g.members[r.IntN(len(g.members))].kill()
				return
			}
			must(t, srv.Kill())
			must(t, srv.Restart())
		})
	})
}

// ticking runs n schedules with a slot in every second while something is killed again and again, and checks their
// slots.
func ticking(t *testing.T, g *group, n int, kill func(*rand.Rand)) {
	t.Helper()
	r := dice(t)
	took := 12 * time.Second
	if *long {
		took = time.Minute
	}
	at := func(i int) belay.Backend { return g.members[i%len(g.members)].client }
	first := make([]time.Time, n)
	each(t, n, func(i int) error {
		s, err := at(i).PutSchedule(t.Context(), belay.SchedulePut{Schedule: belay.Schedule{
			Name: tick(i), Every: belay.Duration(time.Second), Overlap: belay.AllowAll,
			Execution: belay.Submission{Workflow: "tick"},
		}})
		if err == nil {
			first[i] = s.NextAt
		}
		return err
	})
	kills := 0
	for began := time.Now(); time.Since(began) < took; kills++ {
		<-time.After(time.Duration(500+r.IntN(1500)) * time.Millisecond)
		kill(r)
	}
	<-time.After(2 * time.Second)
	slots := 0
	var mu sync.Mutex
	each(t, n, func(i int) error {
		var paused belay.ScheduleChanged
		if err := again(func() (err error) {
			paused, err = at(i).ChangeSchedule(t.Context(), belay.ScheduleChange{
				Name: tick(i), Action: belay.SchedulePauseAction,
			})
			return err
		}); err != nil {
			return err
		}
		found, err := slotsOf(t.Context(), at(i), tick(i))
		if err != nil {
			return err
		}
		last := paused.Schedule.Recent[0].Slot
		for slot := first[i]; !slot.After(last); slot = slot.Add(time.Second) {
			if at := slot.UTC().Format(time.RFC3339); found[at] != 1 {
				t.Errorf("%s: the slot %s started %d times", tick(i), at, found[at])
			}
		}
		want := int(last.Sub(first[i])/time.Second) + 1
		counts := paused.Schedule.Slots
		if len(found) != want || counts[belay.SlotStarted] != int64(want) || len(counts) != 1 {
			t.Errorf("%s: %d slots started, want %d; the schedule counts %v", tick(i), len(found), want, counts)
		}
		mu.Lock()
		defer mu.Unlock()
		slots += want
		return nil
	})
	if slots < n*8 {
		t.Errorf("%d slots in all are too few for %d schedules", slots, n)
	}
	t.Logf("%d slots of %d schedules, %d kills", slots, n, kills)
}

func tick(i int) string { return fmt.Sprintf("tick-%03d", i) }

// slotsOf counts the executions of each slot of a schedule.
func slotsOf(ctx context.Context, b belay.Backend, name string) (map[string]int, error) {
	found := make(map[string]int)
	f := belay.Filter{Labels: map[string]string{belay.LabelSchedule: name}, Limit: 1000}
	for {
		var page belay.Page
		if err := again(func() (err error) {
			page, err = b.Executions(ctx, f)
			return err
		}); err != nil {
			return nil, err
		}
		for i := range page.Executions {
			found[strings.TrimPrefix(page.Executions[i].Key, "schedule:"+name+":")]++
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return found, nil
		}
	}
}

// each calls f for 0 to n-1, several at the same time.
func each(t *testing.T, n int, f func(int) error) {
	t.Helper()
	var all sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// again repeats a call while the server is not available, for half a minute at most.
func again(f func() error) error {
	for began := time.Now(); ; <-time.After(100 * time.Millisecond) {
		err := f()
		if belay.CodeOf(err) != belay.CodeUnavailable || err == nil || time.Since(began) > 30*time.Second {
			return err
		}
	}
}

// farSchedules stores n schedules whose slots are far away.
func farSchedules(t *testing.T, b belay.Backend, n int) {
	t.Helper()
	each(t, n, func(i int) error {
		_, err := b.PutSchedule(t.Context(), belay.SchedulePut{Schedule: belay.Schedule{
			Name: fmt.Sprintf("far-%05d", i), Cron: fmt.Sprintf("%d %d 1 %d *", i%60, i%24, 1+time.Now().Month()%12),
			Execution: belay.Submission{Workflow: "far"},
		}})
		return err
	})
}
