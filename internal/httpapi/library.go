package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/diff"
	"github.com/belaydev/belay/internal/wire"
)

// Language knows the language of documents.
type Language interface {
	// Check returns an error if the text is not a valid document of this name. The details are the
	// problems with their positions.
	Check(name, text string) (details []wire.Detail, err error)
	// Graph draws the tasks of a valid document. The format is text, mermaid or svg.
	Graph(text, format string) (string, error)
}

type documentAt struct {
	Name string `path:"name" maxLength:"100" doc:"The name of the document."`
}

// VersionAt is the path of a version.
type VersionAt struct {
	Name    string `path:"name" maxLength:"100" doc:"The name of the document."`
	Version int    `path:"version" minimum:"1" doc:"The number of the version."`
}

type documentsRequest struct {
	Cursor string `query:"cursor" maxLength:"300" doc:"The field next of the previous page."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" doc:"100, unless said otherwise."`
}

type applyRequest struct {
	Name        string `path:"name" maxLength:"100" doc:"The name of the document; the text must have the same name."`
	Key         string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch     string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that must be the newest; otherwise 412."`
	IfNoneMatch string `header:"If-None-Match" maxLength:"100" doc:"An asterisk: there must be no such document; otherwise 412."`
	Body        wire.ApplyDocument
}

type documentReply struct {
	Status   int
	ETag     string `header:"ETag" doc:"Names the version, for If-Match."`
	Location string `header:"Location"`
	Replayed string `header:"Idempotency-Replayed" doc:"true, if nothing was changed."`
	Body     belay.DocumentApplied
}

type textReply struct {
	ETag string `header:"ETag" doc:"Names the version, for If-Match."`
	Body belay.Document
}

type versionReply struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true, if nothing was changed."`
	Body     belay.DocumentVersion
}

type changeVersion struct {
	Name    string `path:"name" maxLength:"100" doc:"The name of the document."`
	Version int    `path:"version" minimum:"1" doc:"The number of the version."`
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	Body    *wire.ChangeDocument
}

// RemoveDocument has the parameters of a removal.
type RemoveDocument struct {
	Name    string `path:"name" maxLength:"100" doc:"The name of the document."`
	Key     string `header:"Idempotency-Key" maxLength:"200" doc:"Names the change: a repeat with the same key does nothing more."`
	IfMatch string `header:"If-Match" maxLength:"100" doc:"The ETag of the version that must be the newest; otherwise 412."`
	Reason  string `query:"reason" maxLength:"200" doc:"The reason, which the audit keeps."`
	Actor   string `query:"actor" maxLength:"200" doc:"The name of the actor, if the request needs no key."`
}

type removeVersion struct {
	RemoveDocument
	Version int `path:"version" minimum:"1" doc:"The number of the version."`
}

// library adds the routes of stored documents.
func (a *api) library() {
	read, operate := []belay.Scope{belay.ScopeRead}, []belay.Scope{belay.ScopeOperate}
	add(a, route{
		id: "listDocuments", method: http.MethodGet, path: "/v1/workflows", tag: "documents",
		summary: "List the stored documents, without their texts", scopes: read,
		doc: "A page may have fewer documents than limit although there is another page.",
	}, func(ctx context.Context, in *documentsRequest) (*struct{ Body belay.DocumentPage }, error) {
		page, err := a.b.Documents(ctx, belay.DocumentFilter{Cursor: in.Cursor, Limit: in.Limit})
		if page.Documents == nil {
			page.Documents = []belay.DocumentInfo{}
		}
		return &struct{ Body belay.DocumentPage }{page}, err
	})
	add(a, route{
		id: "applyDocument", method: http.MethodPut, path: "/v1/workflows/{name}", tag: "documents",
		summary: "Make a text the newest version of a document",
		doc: "201: there is a new version. 200: the newest version has this text already. Executions that were submitted " +
			"before keep their version. If the text defines schedules or webhooks, the key also needs the scope submit; " +
			"triggers names those that were created, changed or removed. 409: there is a schedule or webhook of such a " +
			"name that the document does not define. 412: another version is the newest. 422: the text is not a valid " +
			"document; errors names its problems with lines and columns.",
		example: `{"text": "name: nightly\ntasks:\n  - id: hello\n    uses: command\n    with: {run: echo hello}\n"}`,
		scopes:  operate, status: http.StatusCreated, also: []int{http.StatusOK}, body: true,
		limit: wire.MaxApplyBody, errors: []int{http.StatusConflict, http.StatusPreconditionFailed},
	}, a.applyDocument)
	add(a, route{
		id: "getDocument", method: http.MethodGet, path: "/v1/workflows/{name}", tag: "documents",
		summary: "Read the newest version of a document", scopes: read, errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *documentAt) (*textReply, error) {
		all, err := a.b.DocumentVersions(ctx, in.Name)
		if err != nil {
			return nil, err
		}
		return a.versionText(ctx, in.Name, all.Versions[0].Version)
	})
	add(a, route{
		id: "listDocumentVersions", method: http.MethodGet, path: "/v1/workflows/{name}/versions", tag: "documents",
		summary: "List the versions of a document, the newest first, without their texts", scopes: read,
		errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *documentAt) (*struct{ Body belay.DocumentVersions }, error) {
		all, err := a.b.DocumentVersions(ctx, in.Name)
		return &struct{ Body belay.DocumentVersions }{all}, err
	})
	add(a, route{
		id: "getDocumentVersion", method: http.MethodGet, path: "/v1/workflows/{name}/versions/{version}",
		tag: "documents", summary: "Read a version of a document", scopes: read,
		errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *VersionAt) (*textReply, error) {
		return a.versionText(ctx, in.Name, in.Version)
	})
	a.documentChanges(operate)
	a.documentViews(read)
}

func (a *api) versionText(ctx context.Context, name string, version int) (*textReply, error) {
	d, err := a.b.Document(ctx, name, version)
	return &textReply{wire.DocumentTag(d.Version), d}, err
}

func (a *api) applyDocument(ctx context.Context, in *applyRequest) (*documentReply, error) {
	if in.IfNoneMatch != "" && in.IfNoneMatch != "*" {
		return nil, malformed("If-None-Match of this request can only be *")
	}
	version, err := wire.ParseDocumentTag(in.IfMatch)
	if err != nil {
		return nil, err
	}
	if err := belay.CheckDocumentName("apply document", in.Name); err != nil {
		return nil, err
	}
	if err := a.checkDocument(in.Name, in.Body.Text); err != nil {
		return nil, err
	}
	triggers, err := catalog.Triggers("apply document", in.Name, in.Body.Text)
	if err != nil {
		return nil, err
	}
	if len(triggers.Schedules)+len(triggers.Webhooks) > 0 {
		if err := callerOf(ctx).need(belay.ScopeSubmit); err != nil {
			return nil, err
		}
	}
	ctx, replayed := belay.WithReplay(ctx)
	d, err := a.b.ApplyDocument(ctx, belay.DocumentApply{
		Name: in.Name, Text: in.Body.Text, IfVersion: version, IfNew: in.IfNoneMatch != "",
		Actor: callerOf(ctx).actor(in.Body.Actor), Reason: in.Body.Reason, Op: wire.OpOf(in.Key),
	})
	if err != nil {
		return nil, unmet(err, in.IfMatch+in.IfNoneMatch != "")
	}
	for _, t := range d.Triggers {
		if t.Kind == belay.WebhookKind {
			a.hooks.forget(t.Name)
		}
	}
	out := &documentReply{
		Status: http.StatusOK, ETag: wire.DocumentTag(d.Version),
		Location: wire.DocumentVersionPath(d.Name, d.Version), Replayed: yes(replayed), Body: d,
	}
	if d.Created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

// unmet gives the refusal of a conditional request the status 412 if the condition does not hold.
func unmet(err error, conditional bool) error {
	if conditional && belay.CodeOf(err) == belay.CodeConflict {
		f := refuse(err).as(http.StatusPreconditionFailed)
		f.header.Del("Retry-After") // waiting does not help
		return f
	}
	return err
}

// checkDocument refuses a text that is not a valid document of the name.
func (a *api) checkDocument(name, text string) error {
	if len(text) > belay.MaxDocument {
		return &belay.Error{Code: belay.CodePayloadTooLarge, Op: "apply document", Message: fmt.Sprintf(
			"the document has %d bytes; the limit is %d", len(text), belay.MaxDocument)}
	}
	if a.o.Language == nil {
		return nil
	}
	details, err := a.o.Language.Check(name, text)
	if err == nil {
		return nil
	}
	f := refuse(err)
	f.problem.Errors = details
	return f
}

// documentChanges adds the routes that deprecate, restore and remove versions.
func (a *api) documentChanges(operate []belay.Scope) {
	for _, x := range []struct {
		action       belay.DocumentAction
		id, summary  string
		doc, example string
	}{
		{belay.DocumentDeprecate, "deprecateDocumentVersion", "Deprecate a version of a document",
			"Submissions that name no version get the newest version that is not deprecated. A deprecated version " +
				"still runs if a submission names it; the answer warns.", `{"reason": "it deletes too much"}`},
		{belay.DocumentRestore, "restoreDocumentVersion", "End the deprecation of a version of a document", "",
			`{"reason": "it was not the cause"}`},
	} {
		add(a, route{
			id: x.id, method: http.MethodPost, tag: "documents", summary: x.summary, doc: x.doc, example: x.example,
			path: "/v1/workflows/{name}/versions/{version}/" + string(x.action), scopes: operate, body: true,
		}, func(ctx context.Context, in *changeVersion) (*versionReply, error) {
			var by wire.By
			if in.Body != nil {
				by = in.Body.By
			}
			ctx, replayed := belay.WithReplay(ctx)
			v, err := a.b.ChangeDocument(ctx, belay.DocumentChange{
				Name: in.Name, Version: in.Version, Action: x.action, Actor: callerOf(ctx).actor(by.Actor),
				Reason: by.Reason, Op: wire.OpOf(in.Key),
			})
			return &versionReply{yes(replayed), v}, err
		})
	}
	const doc = "Executions that run keep their text. The number of a removed version is not used again. The " +
		"schedules and webhooks of a document are removed with its last version. 412: another version is the newest."
	gone := []int{http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity}
	add(a, route{
		id: "removeDocument", method: http.MethodDelete, path: "/v1/workflows/{name}", tag: "documents",
		summary: "Remove all versions of a document", doc: doc, scopes: operate, errors: gone,
		status: http.StatusNoContent,
	}, func(ctx context.Context, in *RemoveDocument) (*struct{}, error) { return nil, a.remove(ctx, in, 0) })
	add(a, route{
		id: "removeDocumentVersion", method: http.MethodDelete, path: "/v1/workflows/{name}/versions/{version}",
		tag: "documents", summary: "Remove a version of a document", doc: doc, scopes: operate, errors: gone,
		status: http.StatusNoContent,
	}, func(ctx context.Context, in *removeVersion) (*struct{}, error) {
		return nil, a.remove(ctx, &in.RemoveDocument, in.Version)
	})
}

func (a *api) remove(ctx context.Context, in *RemoveDocument, version int) error {
	newest, err := wire.ParseDocumentTag(in.IfMatch)
	if err != nil {
		return err
	}
	_, err = a.b.ChangeDocument(ctx, belay.DocumentChange{
		Name: in.Name, Version: version, Action: belay.DocumentRemove, IfVersion: newest,
		Actor: callerOf(ctx).actor(in.Actor), Reason: in.Reason, Op: wire.OpOf(in.Key),
	})
	return unmet(err, in.IfMatch != "")
}

type diffRequest struct {
	Name string `path:"name" maxLength:"100" doc:"The name of the document."`
	From int    `query:"from" minimum:"1" doc:"The older version; without it, the version before to."`
	To   int    `query:"to" minimum:"1" doc:"The newer version; without it, the newest version."`
}

type graphRequest struct {
	VersionAt
	Format string `query:"format" enum:"text,mermaid,svg" doc:"Without it, text."`
}

// documentViews adds the routes that show the difference between versions, and a graph.
func (a *api) documentViews(read []belay.Scope) {
	add(a, route{
		id: "diffDocument", method: http.MethodGet, path: "/v1/workflows/{name}/diff", tag: "documents",
		summary: "Compare two versions of a document", scopes: read, errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *diffRequest) (*struct{ Body wire.DocumentDiff }, error) {
		d, err := a.diff(ctx, in)
		return &struct{ Body wire.DocumentDiff }{d}, err
	})
	add(a, route{
		id: "drawDocument", method: http.MethodGet, path: "/v1/workflows/{name}/versions/{version}/graph",
		tag: "documents", summary: "Draw the tasks of a version of a document",
		doc:    "As text, in the language of Mermaid, or as an SVG image.",
		scopes: read, errors: []int{http.StatusUnprocessableEntity},
	}, func(ctx context.Context, in *graphRequest) (*struct{ Body wire.DocumentGraph }, error) {
		d, err := a.b.Document(ctx, in.Name, in.Version)
		if err != nil {
			return nil, err
		}
		if a.o.Language == nil {
			return nil, &belay.Error{Code: belay.CodeInvalid, Op: "draw", Message: "this server cannot draw documents"}
		}
		format := in.Format
		if format == "" {
			format = "text"
		}
		graph, err := a.o.Language.Graph(d.Text, format)
		return &struct{ Body wire.DocumentGraph }{wire.DocumentGraph{Format: format, Graph: graph}}, err
	})
}

func (a *api) diff(ctx context.Context, in *diffRequest) (out wire.DocumentDiff, err error) {
	all, err := a.b.DocumentVersions(ctx, in.Name)
	if err != nil {
		return out, err
	}
	out = wire.DocumentDiff{Name: in.Name, From: in.From, To: in.To}
	if out.To == 0 {
		out.To = all.Versions[0].Version
	}
	for _, v := range all.Versions {
		if out.From == 0 && v.Version < out.To {
			out.From = v.Version
		}
	}
	if out.From == 0 {
		return out, &belay.Error{Code: belay.CodeInvalid, Op: "diff", Message: fmt.Sprintf(
			"there is no version before %s@%d", in.Name, out.To)}
	}
	from, err := a.b.Document(ctx, in.Name, out.From)
	if err != nil {
		return out, err
	}
	to, err := a.b.Document(ctx, in.Name, out.To)
	if err == nil {
		out.Diff = diff.Unified(from.String(), to.String(), from.Text, to.Text)
	}
	return out, err
}
