package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// planner sets, changes, pauses and removes schedules, and starts slots by hand, as a person does.
type planner struct{ *client }

func newPlanner(w *world) *planner {
	c := &client{
		w: w, name: "planner", rng: w.random("planner"), costs: w.random("planner costs"), done: make(chan struct{}),
	}
	c.link = w.newLink(c.name, c.rng.IntN(len(w.nodes)))
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	p := &planner{c}
	go func() {
		defer close(c.done)
		for c.pause(ctx, between(c.rng, 100*time.Millisecond, 3*time.Second)) {
			p.act(ctx)
		}
	}()
	return p
}

// scheduleNames are the schedules of a simulation.
var scheduleNames = []string{"s0", "s1"}

func (p *planner) act(ctx context.Context) {
	r := p.rng
	name := scheduleNames[r.IntN(len(scheduleNames))]
	if n := r.IntN(10); n < 4 {
		put := belay.SchedulePut{Schedule: p.schedule(name), Actor: p.name, Op: belay.OpID(p.id())}
		p.persist(ctx, func(ctx context.Context) error { _, err := p.link.PutSchedule(ctx, put); return err })
		return
	}
	actions := []belay.ScheduleAction{
		belay.SchedulePauseAction, belay.ScheduleResume, belay.ScheduleResume, belay.ScheduleRemove, belay.ScheduleRun,
		belay.ScheduleBackfill, belay.ScheduleBackfill,
	}
	c := belay.ScheduleChange{
		Name: name, Action: actions[r.IntN(len(actions))], Actor: p.name, Op: belay.OpID(p.id()),
	}
	if c.Action == belay.ScheduleBackfill {
		now := p.w.store.Now().Time()
		c.To = now.Add(-between(r, 0, 2*time.Second))
		c.From = c.To.Add(-between(r, 0, 4*time.Second))
	}
	p.persist(ctx, func(ctx context.Context) error { _, err := p.link.ChangeSchedule(ctx, c); return err })
}

func (p *planner) schedule(name string) belay.Schedule {
	r := p.rng
	s := belay.Schedule{
		Name: name, Every: belay.Duration(time.Duration(1000+r.IntN(4)*700) * time.Millisecond),
		CatchUp:   belay.Duration(time.Duration(1+r.IntN(4)) * time.Second),
		Execution: belay.Submission{Workflow: "play", Input: p.input("play"), Policy: writePolicy(r)},
	}
	s.Offset = belay.Duration(r.IntN(3)*300) * belay.Duration(time.Millisecond)
	if r.IntN(2) == 0 {
		s.Jitter = belay.Duration(100+r.IntN(800)) * belay.Duration(time.Millisecond)
	}
	s.Overlap = []belay.ScheduleOverlap{
		belay.SkipOverlap, belay.BufferOne, belay.BufferAll, belay.CancelOther, belay.AllowAll, belay.AllowAll,
	}[r.IntN(6)]
	if p.w.plan.bare > 0 && p.w.plan.workers == 0 {
		s.Execution.Workflow = "bare"
		s.Execution.Input = p.input("bare")
	}
	return s
}

// schedulesGoOn is how long after the last fault the schedules of a simulation are removed, so that it ends.
const schedulesGoOn = 4 * time.Second

// endSchedules removes the schedules.
func (w *world) endSchedules(ctx context.Context, l *link, n *uint64) {
	if !w.plan.schedules || w.gate.now() < w.healed+schedulesGoOn {
		return
	}
	for _, name := range scheduleNames {
		*n++
		op := belay.OpID(w.id(fmt.Sprint("healer ", name), *n))
		_, _ = l.ChangeSchedule(ctx, belay.ScheduleChange{
			Name: name, Action: belay.ScheduleRemove, Actor: "healer", Op: op,
		})
	}
}

// scheduled reports whether there is a schedule.
func (w *world) scheduled() bool {
	found, err := w.store.Query(context.Background(), store.Query{
		Of: store.Objects, Kind: machine.ScheduleObject, Limit: 1,
	})
	return err != nil || len(found.Objects) > 0
}
