package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Schedules lists schedules without their next slots.
func (c *Client) Schedules(ctx context.Context, f belay.ScheduleFilter) (belay.SchedulePage, error) {
	q := url.Values{}
	set(q, "cursor", f.Cursor)
	number(q, "limit", int64(min(max(f.Limit, 0), 1000)))
	page, err := get[wire.Schedules](ctx, c, "list schedules", "/v1/schedules", q)
	out := belay.SchedulePage{Schedules: make([]belay.ScheduleInfo, len(page.Schedules)), Next: page.Next}
	for i := range page.Schedules {
		if err == nil {
			out.Schedules[i], err = page.Schedules[i].Info()
		}
	}
	return out, err
}

// Schedule reads one schedule with its next slots.
func (c *Client) Schedule(ctx context.Context, name string) (belay.ScheduleInfo, error) {
	op := "read schedule " + name
	if err := belay.CheckScheduleName(op, name); err != nil {
		return belay.ScheduleInfo{}, err
	}
	s, err := get[wire.Schedule](ctx, c, op, wire.SchedulePath(name), nil)
	if err != nil {
		return belay.ScheduleInfo{}, err
	}
	return s.Info()
}

// PutSchedule creates a schedule or changes its terms. It makes an operation id if the request has none.
func (c *Client) PutSchedule(ctx context.Context, p belay.SchedulePut) (belay.SchedulePutResult, error) {
	var out belay.SchedulePutResult
	op := "put schedule " + p.Name
	if err := belay.CheckScheduleName(op, p.Name); err != nil {
		return out, err
	}
	var reply wire.Schedule
	replayed, err := c.put(ctx, &request{op: op, path: wire.SchedulePath(p.Name), reply: &reply}, edition{
		p.Op, p.IfVersion, p.IfNew,
	}, wire.PutSchedule{
		ScheduleTerms: wire.ScheduleTermsOf(&p.Schedule), By: wire.By{Reason: p.Reason, Actor: p.Actor},
	})
	if err != nil {
		return out, err
	}
	out.ScheduleInfo, err = reply.Info()
	out.Changed = !replayed
	out.Created = out.Changed && out.Version == 1
	return out, err
}

// ChangeSchedule carries out an action on a schedule. It makes an operation id if the change has none.
func (c *Client) ChangeSchedule(ctx context.Context, d belay.ScheduleChange) (belay.ScheduleChanged, error) {
	var out belay.ScheduleChanged
	op := fmt.Sprintf("%s schedule %s", d.Action, d.Name)
	if err := belay.CheckScheduleName(op, d.Name); err != nil {
		return out, err
	}
	if d.Op.IsZero() {
		d.Op = belay.OpID(c.set.ids())
	}
	var schedule wire.Schedule
	var slots wire.ScheduleSlots
	var payload any
	r := &request{op: op, method: http.MethodPost, path: wire.SchedulePath(d.Name), header: idempotent(d.Op)}
	ifNewest(r.header, d.IfVersion)
	by := wire.By{Reason: d.Reason, Actor: d.Actor}
	run := wire.RunSchedule{Overlap: d.Overlap, By: by}
	switch d.Action {
	case belay.ScheduleRemove:
		r.method, r.query = http.MethodDelete, url.Values{}
		set(r.query, "reason", d.Reason)
		set(r.query, "actor", d.Actor)
	case belay.SchedulePauseAction, belay.ScheduleResume:
		payload, r.reply = wire.ChangeSchedule{By: by}, &schedule
	case belay.ScheduleRun:
		payload, r.reply = run, &slots
	case belay.ScheduleBackfill:
		payload, r.reply = wire.BackfillSchedule{From: d.From, To: d.To, RunSchedule: run}, &slots
	default:
		return out, &belay.Error{
			Code: belay.CodeInvalid, Op: op, Message: "there is no action " + string(d.Action) + " on a schedule",
		}
	}
	var err error
	if payload != nil {
		r.path += "/" + string(d.Action)
		if r.body, err = body(op, payload); err != nil {
			return out, err
		}
	}
	if err = c.retry(ctx, r); err != nil {
		return out, err
	}
	switch {
	case r.reply == any(&schedule):
		out.Schedule, err = schedule.Info()
	case r.reply == any(&slots):
		out.Slots = slots.Slots
		out.Schedule, err = slots.Schedule.Info()
	default:
		out.Schedule.Name = d.Name
	}
	return out, err
}
