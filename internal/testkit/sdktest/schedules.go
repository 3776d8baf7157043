package sdktest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// putSchedule sets a schedule of workflow w, by default for every minute.
func (e *env) putSchedule(name string, with ...func(*belay.SchedulePut)) belay.SchedulePutResult {
	e.Helper()
	p := belay.SchedulePut{Schedule: belay.Schedule{
		Name: name, Every: belay.Duration(time.Minute), Execution: belay.Submission{Workflow: "w"},
	}, Actor: "me"}
	for _, f := range with {
		f(&p)
	}
	r, err := e.b.PutSchedule(e.ctx, p)
	if err != nil {
		e.Fatalf("put schedule %s: %v", name, err)
	}
	return r
}

// changeSchedule carries out an action on a schedule.
func (e *env) changeSchedule(name string, a belay.ScheduleAction,
	with ...func(*belay.ScheduleChange)) belay.ScheduleChanged {
	e.Helper()
	c := belay.ScheduleChange{Name: name, Action: a, Actor: "me"}
	for _, f := range with {
		f(&c)
	}
	r, err := e.b.ChangeSchedule(e.ctx, c)
	if err != nil {
		e.Fatalf("%s schedule %s: %v", a, name, err)
	}
	return r
}

// scheduled lists the slots of the executions that a schedule has started, as minutes and seconds, in order.
func (e *env) scheduled(name string) string {
	e.Helper()
	page, err := e.b.Executions(e.ctx, belay.Filter{Labels: map[string]string{belay.LabelSchedule: name}, Limit: 1000})
	e.must(err)
	var all []string
	for i := range page.Executions {
		x := &page.Executions[i]
		d := e.detail(x.ID)
		var p belay.SchedulePayload
		err := json.Unmarshal(d.TriggerPayload, &p)
		if err != nil || p.Schedule != name || d.Trigger != belay.TriggerCron {
			e.Errorf("%s: trigger %s with %s", x.ID, d.Trigger, d.TriggerPayload)
		}
		all = append(all, p.Slot.UTC().Format("04:05")+p.By)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// slotsAre compares the counts of a schedule by outcome.
func (e *env) slotsAre(name, want string) belay.ScheduleInfo {
	e.Helper()
	s, err := e.b.Schedule(e.ctx, name)
	e.must(err)
	if got := strings.TrimPrefix(fmt.Sprint(s.Slots), "map"); got != want {
		e.Errorf("the slots of %s are %s, want %s", name, got, want)
	}
	return s
}

// overlap is an option of putSchedule.
func overlap(o belay.ScheduleOverlap) func(*belay.SchedulePut) {
	return func(p *belay.SchedulePut) { p.Overlap = o }
}

// aligned lets time pass until half a minute after the start of a minute.
func (e *env) aligned() {
	e.sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + 30*time.Second)))
}

var schedules = []testCase{
	{"a schedule starts each slot once", func(e *env) {
		e.aligned()
		first := e.putSchedule("tick", overlap(belay.AllowAll))
		if !first.Created || !first.Changed || first.Version != 1 || len(first.Next) != 10 || first.UpdatedBy != "me" ||
			!first.NextAt.Equal(first.Next[0]) || first.CatchUp != belay.DefaultCatchUp {
			e.Errorf("%+v", first)
		}
		again := e.putSchedule("tick", overlap(belay.AllowAll))
		if again.Created || again.Changed || again.Version != 1 {
			e.Errorf("%+v", again)
		}
		e.sleep(3 * time.Minute)
		if got := e.scheduled("tick"); got != "01:00 02:00 03:00" {
			e.Errorf("started %s", got)
		}
		s := e.slotsAre("tick", "[started:3]")
		if len(s.Recent) != 3 || s.Recent[0].Execution.IsZero() || s.Recent[0].Slot.Minute() != 3 {
			e.Errorf("%+v", s.Recent)
		}
		x := e.get(s.Recent[0].Execution)
		if x.CreatedBy != "schedule tick" || x.Key != "schedule:tick:"+s.Recent[0].Slot.UTC().Format(time.RFC3339) {
			e.Errorf("created by %q with the key %q", x.CreatedBy, x.Key)
		}
		page, err := e.b.Schedules(e.ctx, belay.ScheduleFilter{})
		if err != nil || len(page.Schedules) != 1 || page.Schedules[0].Name != "tick" || page.Schedules[0].Next != nil {
			e.Errorf("%+v, %v", page, err)
		}
	}},
	{"an edit, a pause and a removal count from now", func(e *env) {
		e.aligned()
		e.putSchedule("tick", overlap(belay.AllowAll))
		e.sleep(time.Minute)
		second := e.putSchedule("tick", overlap(belay.AllowAll), func(p *belay.SchedulePut) {
			p.Every, p.Offset = belay.Duration(time.Minute), belay.Duration(45*time.Second)
			p.IfVersion = 1
		})
		if second.Version != 2 || second.Created || !second.Changed {
			e.Errorf("%+v", second)
		}
		e.sleep(time.Minute)
		paused := e.changeSchedule("tick", belay.SchedulePauseAction, func(c *belay.ScheduleChange) {
			c.Reason = "why"
		})
		p := paused.Schedule.Paused
		if p == nil || p.Reason != "why" || p.By != "me" || !paused.Schedule.NextAt.IsZero() {
			e.Errorf("%+v", paused)
		}
		e.sleep(3 * time.Minute)
		e.changeSchedule("tick", belay.ScheduleResume)
		e.sleep(time.Minute)
		if got := e.scheduled("tick"); got != "01:00 01:45 05:45" {
			e.Errorf("started %s", got)
		}
		e.changeSchedule("tick", belay.ScheduleRemove)
		e.sleep(3 * time.Minute)
		if got := e.scheduled("tick"); got != "01:00 01:45 05:45" {
			e.Errorf("started %s", got)
		}
		_, err := e.b.Schedule(e.ctx, "tick")
		e.refused("read a removed schedule", err, belay.CodeNotFound, "")
	}},
	{"overlap decides about a slot while an execution runs", func(e *env) {
		e.aligned()
		for _, o := range []belay.ScheduleOverlap{
			belay.SkipOverlap, belay.BufferOne, belay.BufferAll, belay.CancelOther, belay.AllowAll,
		} {
			e.putSchedule(strings.ReplaceAll(string(o), "_", "-"), overlap(o))
		}
		e.sleep(4 * time.Minute) // no worker runs them
		e.slotsAre("skip", "[skipped:3 started:1]")
		e.slotsAre("buffer-one", "[skipped:2 started:2]")
		e.slotsAre("buffer-all", "[started:4]")
		e.slotsAre("allow-all", "[started:4]")
		e.slotsAre("cancel-other", "[started:4]")
		page, err := e.b.Executions(e.ctx, belay.Filter{
			Labels: map[string]string{belay.LabelSchedule: "cancel-other"}, States: []belay.State{belay.Cancelled},
		})
		if err != nil || len(page.Executions) != 3 {
			e.Errorf("%d are cancelled, %v; want 3", len(page.Executions), err)
		}
		h := e.hire(register("w", func(context.Context, struct{}) (int, error) { return 1, nil }))
		e.sleep(20 * time.Second)
		if err := h.end(); err != nil {
			e.Error(err)
		}
		e.sleep(time.Minute)
		e.slotsAre("skip", "[skipped:3 started:2]")
	}},
	{"a backfill starts the slots that were not started, and a run one more", func(e *env) {
		e.aligned()
		began := time.Now()
		e.putSchedule("tick")
		e.sleep(time.Minute) // 01:00 is started, and keeps the others from starting
		e.sleep(3 * time.Minute)
		e.slotsAre("tick", "[skipped:3 started:1]")
		e.changeSchedule("tick", belay.SchedulePauseAction)
		fill := func() belay.ScheduleChanged {
			return e.changeSchedule("tick", belay.ScheduleBackfill, func(c *belay.ScheduleChange) {
				c.From, c.To = began.Add(30*time.Second), began.Add(3*time.Minute)
			})
		}
		outcomes := func(c belay.ScheduleChanged) (all []belay.ScheduleOutcome) {
			for _, s := range c.Slots {
				all = append(all, s.Outcome)
			}
			return all
		}
		if got := outcomes(fill()); !slices.Equal(got, []belay.ScheduleOutcome{
			belay.SlotDone, belay.SlotStarted, belay.SlotStarted,
		}) {
			e.Errorf("%v", got)
		}
		if got := outcomes(fill()); !slices.Equal(got, []belay.ScheduleOutcome{
			belay.SlotDone, belay.SlotDone, belay.SlotDone,
		}) {
			e.Errorf("%v", got)
		}
		op := e.op()
		for _, want := range []belay.ScheduleOutcome{belay.SlotStarted, belay.SlotDone} {
			run := e.changeSchedule("tick", belay.ScheduleRun, func(c *belay.ScheduleChange) { c.Op = op })
			if len(run.Slots) != 1 || run.Slots[0].Outcome != want || run.Slots[0].By != "run" {
				e.Errorf("%+v", run.Slots)
			}
		}
		if got := e.scheduled("tick"); got != "01:00 02:00backfill 03:00backfill 04:30run" {
			e.Errorf("started %s", got)
		}
		for what, f := range map[string]func(*belay.ScheduleChange){
			"without times": func(*belay.ScheduleChange) {},
			"backwards": func(c *belay.ScheduleChange) {
				c.From, c.To = began, began.Add(-time.Hour)
			},
			"of the future": func(c *belay.ScheduleChange) { c.From, c.To = began, began.Add(time.Hour) },
			"of too many":   func(c *belay.ScheduleChange) { c.From, c.To = began.Add(-24*time.Hour), began },
			"of no slot":    func(c *belay.ScheduleChange) { c.From, c.To = began, began.Add(time.Second) },
		} {
			c := belay.ScheduleChange{Name: "tick", Action: belay.ScheduleBackfill}
			f(&c)
			_, err := e.b.ChangeSchedule(e.ctx, c)
			e.refused("a backfill "+what, err, belay.CodeInvalid, "")
		}
	}},
	{"wrong schedules are refused", func(e *env) {
		for what, f := range map[string]func(*belay.SchedulePut){
			"name":     func(p *belay.SchedulePut) { p.Name = "a/b" },
			"times":    func(p *belay.SchedulePut) { p.Every = 0 },
			"both":     func(p *belay.SchedulePut) { p.Cron = "@daily" },
			"overlap":  func(p *belay.SchedulePut) { p.Overlap = "odd" },
			"catch-up": func(p *belay.SchedulePut) { p.CatchUp = 1 },
			"workflow": func(p *belay.SchedulePut) { p.Execution.Workflow = "" },
			"key":      func(p *belay.SchedulePut) { p.Execution.IdempotencyKey = "k" },
			"trigger":  func(p *belay.SchedulePut) { p.Execution.Trigger = belay.TriggerCron },
			"due":      func(p *belay.SchedulePut) { p.Execution.DueAt = time.Now() },
			"limit": func(p *belay.SchedulePut) {
				p.Execution.Concurrency = &belay.Concurrency{Name: "l", Max: 1}
			},
			"label":    func(p *belay.SchedulePut) { p.Execution.Labels = map[string]string{"schedule": "other"} },
			"priority": func(p *belay.SchedulePut) { p.Execution.Priority = 1000 },
		} {
			p := belay.SchedulePut{Schedule: belay.Schedule{
				Name: "x", Every: belay.Duration(time.Minute), Execution: belay.Submission{Workflow: "w"},
			}}
			f(&p)
			if _, err := e.b.PutSchedule(e.ctx, p); belay.CodeOf(err) != belay.CodeInvalid {
				e.Errorf("%s: %v", what, err)
			}
		}
		put := belay.SchedulePut{Schedule: belay.Schedule{
			Name: "x", Every: belay.Duration(time.Minute), Execution: belay.Submission{Document: "none"},
		}}
		_, err := e.b.PutSchedule(e.ctx, put)
		e.refused("an unknown document", err, belay.CodeNotFound, "")
		put.Execution = belay.Submission{Workflow: "w", Input: []byte(`"` + strings.Repeat("x", 70<<10) + `"`)}
		_, err = e.b.PutSchedule(e.ctx, put)
		e.refused("a large input", err, belay.CodePayloadTooLarge, "")
		e.putSchedule("x")
		put.Execution = belay.Submission{Workflow: "other"}
		put.IfNew = true
		_, err = e.b.PutSchedule(e.ctx, put)
		e.refused("a new schedule that exists", err, belay.CodeConflict, "")
		put.IfNew, put.IfVersion = false, 7
		_, err = e.b.PutSchedule(e.ctx, put)
		e.refused("another version", err, belay.CodeConflict, "")
		_, err = e.b.ChangeSchedule(e.ctx, belay.ScheduleChange{Name: "none", Action: belay.SchedulePauseAction})
		e.refused("pause no schedule", err, belay.CodeNotFound, "")
	}},
	{"clients cannot take the names and the triggers of schedules", func(e *env) {
		for _, s := range []belay.Submission{
			{Workflow: "w", Trigger: belay.TriggerCron}, {Workflow: "w", Trigger: belay.TriggerParent},
			{Workflow: "w", IdempotencyKey: "schedule:tick:2026-11-26T00:00:00Z"},
			{Workflow: "w", Gates: belay.Gates{Concurrency: &belay.Concurrency{Name: "schedule:tick", Max: 1}}},
		} {
			out, err := e.b.Submit(e.ctx, s)
			e.must(err)
			e.refused("a reserved name or trigger", out[0].Err, belay.CodeInvalid, "")
		}
	}},
	{"a schedule runs a stored document, and says what fails", func(e *env) {
		e.aligned()
		_, err := e.apply("nightly", "one")
		e.must(err)
		e.putSchedule("tick", overlap(belay.AllowAll), func(p *belay.SchedulePut) {
			p.Execution = belay.Submission{Document: "nightly", Input: []byte(`{"n":1}`)}
		})
		e.sleep(time.Minute)
		_, err = e.apply("nightly", "two")
		e.must(err)
		e.sleep(time.Minute)
		_, err = e.b.ChangeDocument(e.ctx, belay.DocumentChange{Name: "nightly", Action: belay.DocumentRemove})
		e.must(err)
		e.sleep(time.Minute)
		s := e.slotsAre("tick", "[failed:1 started:2]")
		if !strings.Contains(s.Recent[0].Text, "nightly") {
			e.Errorf("%+v", s.Recent[0])
		}
		for i, want := range []string{"2", "1"} {
			x := e.get(s.Recent[i+1].Execution)
			if x.Labels[belay.LabelDocumentVersion] != want || x.Labels[belay.LabelSchedule] != "tick" {
				e.Errorf("%v", x.Labels)
			}
		}
	}},
	{"a repeated change of a schedule changes nothing", func(e *env) {
		op := e.op()
		put := func(p *belay.SchedulePut) { p.Op = op }
		e.putSchedule("tick", put)
		e.putSchedule("tick", func(p *belay.SchedulePut) { p.Jitter = belay.Duration(time.Second) })
		if again := e.putSchedule("tick", put); again.Version != 2 || again.Jitter == 0 || again.Changed {
			e.Errorf("%+v", again)
		}
		_, err := e.b.ChangeSchedule(e.ctx, belay.ScheduleChange{
			Name: "tick", Action: belay.SchedulePauseAction, Op: op,
		})
		e.refused("another change with the operation", err, belay.CodeIdempotencyMismatch, "")
	}},
}
