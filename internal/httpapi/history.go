package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// maxEvents is the maximum number of events in one answer.
const maxEvents = 1000

type historyRequest struct {
	ID    belay.ExecutionID `path:"id"`
	After int64             `query:"after" minimum:"0" doc:"Only events with a higher seq."`
	Limit int               `query:"limit" minimum:"1" maximum:"1000" doc:"1000, unless said otherwise."`
	Data  bool              `query:"data" doc:"With the data of checkpoints and signals. An answer has some megabytes at most; read the rest with after set to its last seq."`
	Wait  wait              `query:"wait"`
}

type historyReply struct {
	Status int
	Body   *wire.Events
}

type eventsRequest struct {
	ID    belay.ExecutionID `path:"id"`
	After int64             `query:"after" minimum:"0" doc:"Only events with a higher seq."`
	Last  string            `header:"Last-Event-ID" maxLength:"20" doc:"The id of the last event that the client has; it is used instead of after."`
	Data  bool              `query:"data" doc:"With the data of checkpoints and signals."`
}

func (a *api) history() {
	read := []belay.Scope{belay.ScopeRead}
	add(a, route{
		id: "history", method: http.MethodGet, path: "/v1/executions/{id}/history", tag: "executions",
		summary: "Read events in order of seq",
		doc:     "With wait the request is a long poll: 204 if the wait is over and there is no new event.",
		scopes:  read, also: []int{http.StatusNoContent}, errors: []int{http.StatusGone}, wait: true,
	}, a.past)
	add(a, route{
		id: "events", method: http.MethodGet, path: "/v1/executions/{id}/events", tag: "executions",
		summary: "Follow events as a stream",
		doc: "Server-sent events: `snapshot` with the execution, one `event` for each event with its seq as the " +
			"id, from the first event or after " +
			"Last-Event-ID, and `end` when the execution has ended. A comment every 15 s shows that the stream is " +
			"alive.",
		scopes: read, errors: []int{http.StatusGone}, stream: true, token: true,
	}, a.follow, func(d *document, op *huma.Operation) {
		op.Responses["200"].Content = map[string]*huma.MediaType{"text/event-stream": d.eventStream(
			Event{Schema: "SnapshotEvent", Name: "snapshot", Data: reflect.TypeFor[belay.Execution]()},
			Event{Schema: "HistoryEvent", Name: "event", ID: "^[0-9]+$", Data: reflect.TypeFor[belay.Event]()},
			Event{Schema: "EndEvent", Name: "end", ID: "^[0-9]+$", Data: reflect.TypeFor[wire.End]()},
		)}
		op.Responses["204"] = noContent("The execution has ended, and Last-Event-ID is the id of its last event: " +
			"there is nothing more to request.")
	})
}

func (a *api) past(ctx context.Context, in *historyRequest) (*historyReply, error) {
	q := belay.EventQuery{Execution: in.ID, After: in.After, Limit: in.Limit, Data: in.Data}
	events, err := a.some(ctx, q)
	if err == nil && len(events) == 0 {
		q.Wait = in.Wait.Duration
		events, err = a.next(ctx, q)
	}
	switch {
	case err != nil:
		return nil, err
	case len(events) == 0 && q.Wait > 0:
		return &historyReply{Status: http.StatusNoContent}, nil
	case events == nil:
		events = []belay.Event{}
	}
	return &historyReply{http.StatusOK, &wire.Events{Events: events}}, nil
}

// someBytes limits the data in one answer: once an answer has that many bytes, no more events are
// added.
const someBytes = 8 << 20

// some reads events that are stored already. If the request includes the data of events, which may
// be a megabyte for each event, some reads a few events at a time and stops when their data has
// someBytes.
func (a *api) some(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	if !q.Data {
		return a.b.Events(ctx, q)
	}
	limit, size := q.Limit, 0
	if limit == 0 {
		limit = maxEvents
	}
	var all []belay.Event
	for size < someBytes && len(all) < limit {
		q.Limit = min(dataEvents, limit-len(all))
		events, err := a.b.Events(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range events {
			size += len(events[i].Data)
		}
		if all = append(all, events...); len(events) < q.Limit {
			break
		}
		q.After = all[len(all)-1].Seq
	}
	return all, nil
}

// next waits for events that are newer than the newest stored event.
func (a *api) next(ctx context.Context, q belay.EventQuery) ([]belay.Event, error) {
	x, err := a.b.Execution(ctx, q.Execution)
	if err == nil {
		err = checkCursor(&x, q.After)
	}
	if err != nil || q.Wait == 0 {
		return nil, err
	}
	waiting, done := a.waiting(ctx)
	defer done()
	if q.Data {
		q.Limit = min(cmp.Or(q.Limit, dataEvents), dataEvents)
	}
	events, err := a.b.Events(waiting, q)
	if err != nil && stopped(waiting) {
		return nil, nil
	}
	return events, err
}

// checkCursor refuses a seq that the execution has not reached: the client has the seq from another
// store, or from before the store was restored from a backup.
func checkCursor(x *belay.Execution, after int64) error {
	if after <= x.Seq {
		return nil
	}
	return &belay.Error{
		Code:    belay.CodeCursorExpired,
		Message: "the execution has not reached this seq: begin again from a fresh snapshot",
	}
}
