package httpapi

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type scheduleAt struct {
	Name string `path:"name" maxLength:"100" doc:"The name of the schedule."`
}

type schedulesRequest struct {
	Cursor string `query:"cursor" maxLength:"300" doc:"The field next of the previous page."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"100, unless said otherwise."`
}

type putScheduleRequest struct {
	Name        string `path:"name" maxLength:"100" doc:"The name of the schedule."`
	Key         string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch     string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that the schedule must have; otherwise 412."`
	IfNoneMatch string `header:"If-None-Match" maxLength:"100" doc:"An asterisk: there must be no such schedule; otherwise 412."`
	Body        wire.PutSchedule
}

type putScheduleReply struct {
	Status   int
	ETag     string `header:"ETag" doc:"Names the version, for If-Match."`
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed" doc:"true, if nothing was changed."`
	Body     wire.Schedule
}

type scheduleReply struct {
	ETag string `header:"ETag" doc:"Names the version, for If-Match."`
	Body wire.Schedule
}

type changeScheduleRequest struct {
	Name    string `path:"name" maxLength:"100" doc:"The name of the schedule."`
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that the schedule must have; otherwise 412."`
	Body    *wire.ChangeSchedule
}

// RemoveSchedule has the parameters of a removal.
type RemoveSchedule struct {
	Name    string `path:"name" maxLength:"100" doc:"The name of the schedule."`
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that the schedule must have; otherwise 412."`
	Reason  string `query:"reason" maxLength:"200" doc:"The reason, which the audit keeps."`
	Actor   string `query:"actor" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

type runScheduleRequest struct {
	Name string `path:"name" maxLength:"100" doc:"The name of the schedule."`
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"Names the run: a repeat with the same key starts nothing more."`
	Body *wire.RunSchedule
}

type backfillRequest struct {
	Name string `path:"name" maxLength:"100" doc:"The name of the schedule."`
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"Names the backfill. A slot that was started is never started again, with any key."`
	Body wire.BackfillSchedule
}

type slotsReply struct {
	Body wire.ScheduleSlots
}

// schedules adds the routes of schedules.
func (a *api) schedules() {
	read, operate := []belay.Scope{belay.ScopeRead}, []belay.Scope{belay.ScopeOperate}
	add(a, route{
		id: "listSchedules", method: http.MethodGet, path: "/v1/schedules", tag: "schedules",
		summary: "List the schedules", scopes: read,
	}, a.listSchedules)
	add(a, route{
		id: "putSchedule", method: http.MethodPut, path: "/v1/schedules/{name}", tag: "schedules",
		summary: "Create a schedule, or change its times and executions",
		doc: "201: the schedule is new. 200: it was changed, or had these terms already. The next slot is the first one " +
			"after now. Each slot starts once, however many servers run. The key needs the scopes operate and submit. " +
			"412: the schedule has another version.",
		example: `{"cron": "0 2 * * *", "time_zone": "Europe/Berlin", "execution": {"document": "nightly"}}`,
		scopes:  operate, status: http.StatusCreated, also: []int{http.StatusOK}, body: true,
		limit: belay.MaxScheduleBytes * 2, errors: []int{http.StatusConflict, http.StatusPreconditionFailed},
	}, a.putSchedule)
	add(a, route{
		id: "getSchedule", method: http.MethodGet, path: "/v1/schedules/{name}", tag: "schedules",
		summary: "Read a schedule, with its next ten slots and its newest ones", scopes: read,
		errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *scheduleAt) (*scheduleReply, error) {
		s, err := a.b.Schedule(ctx, in.Name)
		return &scheduleReply{wire.DocumentTag(s.Version), wire.ScheduleOf(&s)}, err
	})
	add(a, route{
		id: "removeSchedule", method: http.MethodDelete, path: "/v1/schedules/{name}", tag: "schedules",
		summary: "Remove a schedule",
		doc: "Executions that it has started go on. 409: a document defines the schedule; change the document. 412: " +
			"the schedule has another version.",
		scopes: operate, status: http.StatusNoContent,
		errors: []int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *RemoveSchedule) (*struct{}, error) {
		_, err := a.changeSchedule(ctx, belay.ScheduleChange{
			Name: in.Name, Action: belay.ScheduleRemove, Actor: in.Actor, Reason: in.Reason,
		}, in.Key, in.IfMatch)
		return nil, err
	})
	a.scheduleActions(operate)
}

func (a *api) listSchedules(ctx context.Context, in *schedulesRequest) (*struct{ Body wire.Schedules }, error) {
	page, err := a.b.Schedules(ctx, belay.ScheduleFilter{Cursor: in.Cursor, Limit: in.Limit})
	out := wire.Schedules{Schedules: make([]wire.Schedule, len(page.Schedules)), Next: page.Next}
	for i := range page.Schedules {
		out.Schedules[i] = wire.ScheduleOf(&page.Schedules[i])
	}
	return &struct{ Body wire.Schedules }{out}, err
}

func (a *api) putSchedule(ctx context.Context, in *putScheduleRequest) (*putScheduleReply, error) {
	if err := callerOf(ctx).need(belay.ScopeSubmit); err != nil {
		return nil, err
	}
	if in.IfNoneMatch != "" && in.IfNoneMatch != "*" {
		return nil, malformed("If-None-Match of this request can only be *")
	}
	version, err := wire.ParseDocumentTag(in.IfMatch)
	if err != nil {
		return nil, err
	}
	s, err := in.Body.Schedule(in.Name)
	if err != nil {
		return nil, err
	}
	ctx, replayed := belay.WithReplay(ctx)
	r, err := a.b.PutSchedule(ctx, belay.SchedulePut{
		Schedule: s, IfVersion: version, IfNew: in.IfNoneMatch != "", Actor: callerOf(ctx).actor(in.Body.Actor),
		Reason: in.Body.Reason, Op: wire.OpOf(in.Key),
	})
	if err != nil {
		return nil, unmet(err, in.IfMatch+in.IfNoneMatch != "")
	}
	out := &putScheduleReply{
		Status: http.StatusOK, ETag: wire.DocumentTag(r.Version), Location: wire.SchedulePath(r.Name),
		Replayed: yes(replayed), Body: wire.ScheduleOf(&r.ScheduleInfo),
	}
	if r.Created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

func (a *api) changeSchedule(
	ctx context.Context, c belay.ScheduleChange, key, ifMatch string,
) (belay.ScheduleChanged, error) {
	version, err := wire.ParseDocumentTag(ifMatch)
	if err != nil {
		return belay.ScheduleChanged{}, err
	}
	c.IfVersion, c.Actor, c.Op = version, callerOf(ctx).actor(c.Actor), wire.OpOf(key)
	r, err := a.b.ChangeSchedule(ctx, c)
	return r, unmet(err, ifMatch != "")
}

// scheduleActions adds the routes that pause and resume a schedule, and that start slots.
func (a *api) scheduleActions(operate []belay.Scope) {
	for _, x := range []struct {
		action           belay.ScheduleAction
		id, summary, doc string
	}{
		{belay.SchedulePauseAction, "pauseSchedule", "Pause a schedule",
			"Slots whose times come while it is paused are not started, also not later; a backfill can start them."},
		{belay.ScheduleResume, "resumeSchedule", "Resume a schedule", "Its next slot is the first one after now."},
	} {
		add(a, route{
			id: x.id, method: http.MethodPost, tag: "schedules", summary: x.summary, doc: x.doc,
			path: "/v1/schedules/{name}/" + string(x.action), scopes: operate, body: true,
			example: `{"reason": "the database moves"}`,
			errors:  []int{http.StatusConflict, http.StatusPreconditionFailed},
		}, func(ctx context.Context, in *changeScheduleRequest) (*scheduleReply, error) {
			var by wire.By
			if in.Body != nil {
				by = in.Body.By
			}
			r, err := a.changeSchedule(ctx, belay.ScheduleChange{
				Name: in.Name, Action: x.action, Actor: by.Actor, Reason: by.Reason,
			}, in.Key, in.IfMatch)
			return &scheduleReply{wire.DocumentTag(r.Schedule.Version), wire.ScheduleOf(&r.Schedule)}, err
		})
	}
	add(a, route{
		id: "runSchedule", method: http.MethodPost, path: "/v1/schedules/{name}/run", tag: "schedules",
		summary: "Start an execution of a schedule now", doc: "Whether or not the schedule is paused.",
		example: `{"reason": "the data came late"}`, scopes: operate, body: true, errors: []int{http.StatusConflict},
	}, func(ctx context.Context, in *runScheduleRequest) (*slotsReply, error) {
		var body wire.RunSchedule
		if in.Body != nil {
			body = *in.Body
		}
		return a.startSlots(ctx, belay.ScheduleChange{Name: in.Name, Action: belay.ScheduleRun}, &body, in.Key)
	})
	add(a, route{
		id: "backfillSchedule", method: http.MethodPost, path: "/v1/schedules/{name}/backfill", tag: "schedules",
		summary: "Start the slots of the past that were not started",
		doc: "At most 1,000 slots. The outcome of a slot is done if it was started before. The executions start at once; " +
			"with overlap buffer_all they run one after the other.",
		example: `{"from": "2026-11-20T00:00:00Z", "to": "2026-11-24T00:00:00Z", "overlap": "buffer_all"}`,
		scopes:  operate, body: true, errors: []int{http.StatusConflict},
	}, func(ctx context.Context, in *backfillRequest) (*slotsReply, error) {
		return a.startSlots(ctx, belay.ScheduleChange{
			Name: in.Name, Action: belay.ScheduleBackfill, From: in.Body.From, To: in.Body.To,
		}, &in.Body.RunSchedule, in.Key)
	})
}

func (a *api) startSlots(
	ctx context.Context, c belay.ScheduleChange, body *wire.RunSchedule, key string,
) (*slotsReply, error) {
	c.Overlap, c.Actor, c.Reason = body.Overlap, body.Actor, body.Reason
	r, err := a.changeSchedule(ctx, c, key, "")
	return &slotsReply{wire.ScheduleSlots{Schedule: wire.ScheduleOf(&r.Schedule), Slots: r.Slots}}, err
}
