package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// LetterFilter is the part of a request that selects dead letters.
type LetterFilter struct {
	Resolution  string    `query:"resolution" enum:"open,resolved,all,retried,requeued,fixed,discarded" doc:"open, unless said otherwise."`
	Reason      string    `query:"reason" enum:"max_retries,permanent_error,timeout,lost,no_worker,circuit_breaker,expired,manual" doc:"Only dead letters with this reason."`
	Workflow    string    `query:"workflow" maxLength:"200" doc:"Only dead letters of this workflow."`
	Class       string    `query:"class" enum:"transient,permanent,timeout,lost,circuit_open" doc:"Only dead letters whose error has this class."`
	Fingerprint string    `query:"fingerprint" maxLength:"200" doc:"Only dead letters with this fingerprint."`
	Text        string    `query:"text" maxLength:"200" doc:"Only dead letters whose message contains this text; upper and lower case are the same."`
	Since       time.Time `query:"since" doc:"Only failures at this time or later, by the store's clock."`
	Until       time.Time `query:"until" doc:"Only failures before this time, by the store's clock."`
}

func (f *LetterFilter) filter() (belay.DeadLetterFilter, error) {
	out := belay.DeadLetterFilter{
		Resolution: f.Resolution, Reason: f.Reason, Workflow: f.Workflow, Fingerprint: f.Fingerprint, Text: f.Text,
		Since: f.Since, Until: f.Until,
	}
	if f.Class == "" {
		return out, nil
	}
	return out, out.Class.UnmarshalText([]byte(f.Class))
}

type lettersRequest struct {
	LetterFilter
	Cursor string `query:"cursor" maxLength:"100" doc:"The field next of the previous page."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"100, unless said otherwise."`
}

type letterAt struct {
	ID         belay.ExecutionID `path:"id" doc:"The execution that failed."`
	Generation int               `query:"generation" minimum:"0" doc:"The generation that failed; without it, the newest dead letter."`
}

// changeLetter is a request that changes a dead letter.
type changeLetter[B any] struct {
	ID   belay.ExecutionID `path:"id" doc:"The execution that failed."`
	Key  string            `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	Body *B
}

type letterReply struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true, if the change was carried out before."`
	Body     belay.DeadLetter
}

type requeuedReply struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true, if the execution was reopened before."`
	Body     wire.Requeued
}

// deadLetters adds the routes of dead letters.
func (a *api) deadLetters() {
	read := []belay.Scope{belay.ScopeRead}
	add(a, route{
		id: "listDeadLetters", method: http.MethodGet, path: "/v1/dead-letters", tag: "dead letters",
		summary: "List dead letters, the newest first",
		doc: "A page may have fewer dead letters than the limit, or none, although further pages have some: the server " +
			"examines 10,000 for one page at most.",
		scopes: read, errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *lettersRequest) (*struct{ Body belay.DeadLetterPage }, error) {
		f, err := in.filter()
		if err != nil {
			return nil, err
		}
		f.Cursor, f.Limit = in.Cursor, in.Limit
		page, err := a.b.DeadLetters(ctx, f)
		return &struct{ Body belay.DeadLetterPage }{page}, err
	})
	add(a, route{
		id: "groupDeadLetters", method: http.MethodGet, path: "/v1/dead-letter-groups", tag: "dead letters",
		summary: "Count dead letters by the fingerprint of their errors, the largest group first",
		doc:     "The server examines the newest 10,000 dead letters of the filter at most; more says that there are older ones.",
		scopes:  read, errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *LetterFilter) (*struct{ Body belay.DeadLetterGroups }, error) {
		f, err := in.filter()
		if err != nil {
			return nil, err
		}
		groups, err := a.b.DeadLetterGroups(ctx, f)
		return &struct{ Body belay.DeadLetterGroups }{groups}, err
	})
	add(a, route{
		id: "getDeadLetter", method: http.MethodGet, path: "/v1/dead-letters/{id}", tag: "dead letters",
		summary: "Read a dead letter with its input, policy, run, error, stack trace and notes", scopes: read,
		errors: []int{http.StatusNotFound},
	}, func(ctx context.Context, in *letterAt) (*struct{ Body belay.DeadLetterDetail }, error) {
		d, err := a.b.DeadLetter(ctx, in.ID, in.Generation)
		return &struct{ Body belay.DeadLetterDetail }{d}, err
	})
	operate := []belay.Scope{belay.ScopeOperate}
	add(a, route{
		id: "requeueDeadLetter", method: http.MethodPost, path: "/v1/dead-letters/{id}/requeue", tag: "dead letters",
		summary: "Run the execution of a dead letter again",
		doc: "With an input or a patch of the input, all steps run again. With neither, this is a retry: finished steps keep " +
			"their results. A dead letter is resolved once; a second resolution is refused and names the first.",
		example: `{"input_patch": {"url": "https://example.org/fixed"}, "notes": "the URL was wrong"}`, scopes: operate,
		body: true, errors: []int{http.StatusConflict, http.StatusNotFound},
	}, a.requeueLetter)
	for _, of := range []struct {
		action       belay.DeadLetterAction
		id, summary  string
		doc, example string
	}{
		{belay.DeadLetterDiscard, "discardDeadLetter", "Resolve a dead letter: the work is not needed",
			"The execution stays failed.", `{"notes": "the customer has left"}`},
		{belay.DeadLetterFix, "fixDeadLetter", "Resolve a dead letter: the consequences were repaired by hand",
			"The execution stays failed.", `{"notes": "sent the invoice by hand"}`},
		{belay.DeadLetterNoted, "noteDeadLetter", "Add a note to a dead letter",
			"A resolved dead letter can get notes, too.", `{"notes": "asked the provider, ticket 4711"}`},
	} {
		add(a, route{
			id: of.id, method: http.MethodPost, path: "/v1/dead-letters/{id}/" + string(of.action), tag: "dead letters",
			summary: of.summary, doc: of.doc, example: of.example, scopes: operate, body: true,
			errors: []int{http.StatusConflict, http.StatusNotFound},
		}, func(ctx context.Context, in *changeLetter[wire.Resolve]) (*letterReply, error) {
			return a.changeLetter(ctx, of.action, in)
		})
	}
}

func (a *api) changeLetter(ctx context.Context, action belay.DeadLetterAction,
	in *changeLetter[wire.Resolve]) (*letterReply, error) {
	var body wire.Resolve
	if in.Body != nil {
		body = *in.Body
	}
	ctx, replayed := belay.WithReplay(ctx)
	d, err := a.b.ChangeDeadLetter(ctx, belay.DeadLetterChange{
		Execution: in.ID, Generation: body.Generation, Action: action, Actor: callerOf(ctx).actor(body.Actor),
		Note: body.Notes, Op: wire.OpOf(in.Key),
	})
	return &letterReply{yes(replayed), d}, err
}

// requeueLetter reopens the execution of a dead letter. The action names the generation that
// failed, so that the engine refuses the action if another caller has already resolved the dead
// letter.
func (a *api) requeueLetter(ctx context.Context, in *changeLetter[wire.Requeue]) (*requeuedReply, error) {
	var body wire.Requeue
	if in.Body != nil {
		body = *in.Body
	}
	c := belay.Control{
		Execution: in.ID, Action: belay.ActionRetry, Actor: callerOf(ctx).actor(body.Actor), Reason: body.Notes,
		Op: wire.OpOf(in.Key), Input: body.Input, InputPatch: body.InputPatch, Generation: body.Generation,
	}
	out := &requeuedReply{Body: wire.Requeued{Resolution: belay.ResolvedRetried}}
	if len(body.Input)+len(body.InputPatch) > 0 {
		c.Action, out.Body.Resolution = belay.ActionRequeue, belay.ResolvedRequeued
	}
	if c.Generation == 0 {
		d, err := a.b.DeadLetter(ctx, in.ID, 0)
		if err != nil {
			return nil, err
		}
		c.Generation = d.Generation
	}
	ctx, replayed := belay.WithReplay(ctx)
	x, err := a.b.Control(ctx, c)
	out.Replayed, out.Body.Execution = yes(replayed), x
	return out, err
}
