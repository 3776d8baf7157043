package httpapi

import (
	"context"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

type targetAt struct {
	Name string `path:"name" maxLength:"100" doc:"The name of the target."`
}

type putTargetRequest struct {
	Name        string `path:"name" maxLength:"100" doc:"The name of the target."`
	Key         string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch     string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that the target must have; otherwise 412."`
	IfNoneMatch string `header:"If-None-Match" maxLength:"100" doc:"An asterisk: there must be no such target; otherwise 412."`
	Body        wire.PutTarget
}

type putTargetReply struct {
	Status   int
	ETag     string `header:"ETag" doc:"Names the version, for If-Match."`
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed" doc:"true, if nothing was changed."`
	Body     wire.Target
}

type targetReply struct {
	ETag string `header:"ETag" doc:"Names the version, for If-Match."`
	Body wire.Target
}

type changeTargetRequest struct {
	Name    string `path:"name" maxLength:"100" doc:"The name of the target."`
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that the target must have; otherwise 412."`
	Body    *wire.ChangeTarget
}

// RemoveTarget has the parameters of a removal.
type RemoveTarget struct {
	Name    string `path:"name" maxLength:"100" doc:"The name of the target."`
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that the target must have; otherwise 412."`
	Reason  string `query:"reason" maxLength:"200" doc:"The reason, which the audit keeps."`
	Actor   string `query:"actor" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

type testTargetRequest struct {
	Name string `path:"name" maxLength:"100" doc:"The name of the target."`
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"Names the test: a repeat with the same key sends nothing more."`
	Body *wire.TestTarget
}

// targets adds the routes of the targets of notifications.
func (a *api) targets() {
	read, operate := []belay.Scope{belay.ScopeRead}, []belay.Scope{belay.ScopeOperate}
	add(a, route{
		id: "listNotificationTargets", method: http.MethodGet, path: "/v1/notification-targets", tag: "notifications",
		summary: "List the targets of notifications", scopes: read,
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body wire.Targets }, error) {
		all, err := a.b.NotificationTargets(ctx)
		out := wire.Targets{Targets: make([]wire.Target, len(all))}
		for i := range all {
			out.Targets[i] = wire.TargetOf(&all[i])
		}
		return &struct{ Body wire.Targets }{out}, err
	})
	add(a, route{
		id: "putNotificationTarget", method: http.MethodPut, path: "/v1/notification-targets/{name}",
		tag: "notifications", summary: "Create a target of notifications, or change it",
		doc: "201: the target is new. 200: it was changed, or had these terms already. Executions that end a second after " +
			"the answer, or later, are reported. The key needs the scopes operate and submit. 412: the target has " +
			"another version.",
		example: `{"url": "https://ops.example.org/belay", "workflows": ["billing-*"], "alerts": ["dead_letter"], ` +
			`"secret": "${{ secrets.OPS_HOOK }}"}`,
		scopes: operate, status: http.StatusCreated, also: []int{http.StatusOK}, body: true,
		limit: belay.MaxTargetBytes * 2, errors: []int{http.StatusConflict, http.StatusPreconditionFailed},
	}, a.putTarget)
	add(a, route{
		id: "getNotificationTarget", method: http.MethodGet, path: "/v1/notification-targets/{name}",
		tag: "notifications", summary: "Read a target of notifications", scopes: read,
		doc:    "Its deliveries are the executions with the label notification_target.",
		errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *targetAt) (*targetReply, error) {
		t, err := a.b.NotificationTarget(ctx, in.Name)
		return &targetReply{wire.DocumentTag(t.Version), wire.TargetOf(&t)}, err
	})
	add(a, route{
		id: "removeNotificationTarget", method: http.MethodDelete, path: "/v1/notification-targets/{name}",
		tag: "notifications", summary: "Remove a target of notifications",
		doc:    "Deliveries that were created are still sent. 412: the target has another version.",
		scopes: operate, status: http.StatusNoContent,
		errors: []int{http.StatusPreconditionFailed, http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *RemoveTarget) (*struct{}, error) {
		_, err := a.changeTarget(ctx, belay.NotificationTargetChange{
			Name: in.Name, Action: belay.NotificationTargetRemove, Actor: in.Actor, Reason: in.Reason,
		}, in.Key, in.IfMatch)
		return nil, err
	})
	a.targetActions(operate)
}

func (a *api) putTarget(ctx context.Context, in *putTargetRequest) (*putTargetReply, error) {
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
	t, err := in.Body.Target(in.Name)
	if err != nil {
		return nil, err
	}
	ctx, replayed := belay.WithReplay(ctx)
	r, err := a.b.PutNotificationTarget(ctx, belay.NotificationTargetPut{
		NotificationTarget: t, IfVersion: version, IfNew: in.IfNoneMatch != "",
		Actor: callerOf(ctx).actor(in.Body.Actor), Reason: in.Body.Reason, Op: wire.OpOf(in.Key),
	})
	if err != nil {
		return nil, unmet(err, in.IfMatch+in.IfNoneMatch != "")
	}
	out := &putTargetReply{
		Status: http.StatusOK, ETag: wire.DocumentTag(r.Version), Location: wire.TargetPath(r.Name),
		Replayed: yes(replayed), Body: wire.TargetOf(&r.NotificationTargetInfo),
	}
	if r.Created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

func (a *api) changeTarget(
	ctx context.Context, c belay.NotificationTargetChange, key, ifMatch string,
) (belay.NotificationTargetInfo, error) {
	version, err := wire.ParseDocumentTag(ifMatch)
	if err != nil {
		return belay.NotificationTargetInfo{}, err
	}
	c.IfVersion, c.Actor, c.Op = version, callerOf(ctx).actor(c.Actor), wire.OpOf(key)
	r, err := a.b.ChangeNotificationTarget(ctx, c)
	return r, unmet(err, ifMatch != "")
}

// targetActions adds the routes that pause, resume and test a target of notifications.
func (a *api) targetActions(operate []belay.Scope) {
	for _, x := range []struct {
		action           belay.NotificationTargetAction
		id, summary, doc string
	}{
		{belay.NotificationTargetPause, "pauseNotificationTarget", "Pause a target of notifications",
			"The target gets nothing until it is resumed. Nothing of this time is sent later."},
		{belay.NotificationTargetResume, "resumeNotificationTarget", "Resume a target of notifications", ""},
	} {
		add(a, route{
			id: x.id, method: http.MethodPost, tag: "notifications", summary: x.summary, doc: x.doc,
			path: "/v1/notification-targets/{name}/" + string(x.action), scopes: operate, body: true,
			example: `{"reason": "the receiver moves"}`,
			errors:  []int{http.StatusConflict, http.StatusPreconditionFailed},
		}, func(ctx context.Context, in *changeTargetRequest) (*targetReply, error) {
			var by wire.By
			if in.Body != nil {
				by = in.Body.By
			}
			r, err := a.changeTarget(ctx, belay.NotificationTargetChange{
				Name: in.Name, Action: x.action, Actor: by.Actor, Reason: by.Reason,
			}, in.Key, in.IfMatch)
			return &targetReply{wire.DocumentTag(r.Version), wire.TargetOf(&r)}, err
		})
	}
	add(a, route{
		id: "testNotificationTarget", method: http.MethodPost, path: "/v1/notification-targets/{name}/test",
		tag: "notifications", summary: "Send a test to a target of notifications",
		doc:     "The answer names the delivery, an execution, whose state says whether the target has received it.",
		example: `{}`, scopes: operate, body: true, errors: []int{http.StatusConflict},
	}, func(ctx context.Context, in *testTargetRequest) (*struct{ Body wire.TargetTested }, error) {
		var body wire.TestTarget
		if in.Body != nil {
			body = *in.Body
		}
		id, err := a.b.TestNotificationTarget(ctx, belay.NotificationTargetTest{
			Name: in.Name, Actor: callerOf(ctx).actor(body.Actor), Op: wire.OpOf(in.Key),
		})
		return &struct{ Body wire.TargetTested }{wire.TargetTested{Execution: id}}, err
	})
}
