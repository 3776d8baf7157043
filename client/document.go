package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/wire"
)

// Documents lists the stored documents without their texts.
func (c *Client) Documents(ctx context.Context, f belay.DocumentFilter) (belay.DocumentPage, error) {
	q := url.Values{}
	set(q, "cursor", f.Cursor)
	number(q, "limit", int64(min(max(f.Limit, 0), 1000)))
	return get[belay.DocumentPage](ctx, c, "list documents", "/v1/workflows", q)
}

// DocumentVersions lists the versions of a document, the newest first.
func (c *Client) DocumentVersions(ctx context.Context, name string) (belay.DocumentVersions, error) {
	op := "read document " + name
	if err := belay.CheckDocumentName(op, name); err != nil {
		return belay.DocumentVersions{}, err
	}
	return get[belay.DocumentVersions](ctx, c, op, wire.DocumentPath(name)+"/versions", nil)
}

// Document reads a version of a document. For version 0 it asks first which version is the default.
func (c *Client) Document(ctx context.Context, name string, version int) (belay.Document, error) {
	op := "read document " + name
	if version == 0 {
		all, err := c.DocumentVersions(ctx, name)
		if err != nil {
			return belay.Document{}, err
		}
		if version = all.Default; version == 0 && len(all.Versions) > 0 {
			return belay.Document{}, &belay.Error{Code: belay.CodeConflict, Op: op, Message: fmt.Sprintf(
				"all versions of %s are deprecated; name one, as in %s", name, all.Versions[0])}
		}
	}
	if err := checkVersion(op, name, version); err != nil {
		return belay.Document{}, err
	}
	return get[belay.Document](ctx, c, op, wire.DocumentVersionPath(name, version), nil)
}

// checkVersion refuses the name or version of a document that no document can have.
func checkVersion(op, name string, version int) error {
	if err := belay.CheckDocumentName(op, name); err != nil {
		return err
	}
	if version < 1 {
		return &belay.Error{Code: belay.CodeInvalid, Op: op, Message: "the version must be a number from 1"}
	}
	return nil
}

// ApplyDocument makes a text the newest version of a document. It makes an operation id if the
// request has none.
func (c *Client) ApplyDocument(ctx context.Context, a belay.DocumentApply) (belay.DocumentApplied, error) {
	var out belay.DocumentApplied
	op := "apply document " + a.Name
	if err := belay.CheckDocumentName(op, a.Name); err != nil {
		return out, err
	}
	if a.IfVersion < 0 || a.IfVersion > 0 && a.IfNew {
		return out, &belay.Error{Code: belay.CodeInvalid, Op: op,
			Message: "if_version must be the number of a version, and excludes if_new"}
	}
	if a.Op.IsZero() {
		a.Op = belay.OpID(c.set.ids())
	}
	r := &request{op: op, method: http.MethodPut, path: wire.DocumentPath(a.Name), reply: &out}
	r.header = idempotent(a.Op)
	ifNewest(r.header, a.IfVersion)
	if a.IfNew {
		r.header.Set("If-None-Match", "*")
	}
	var err error
	r.body, err = body(op, wire.ApplyDocument{Text: a.Text, By: wire.By{Reason: a.Reason, Actor: a.Actor}})
	if err == nil {
		err = c.retry(ctx, r)
	}
	return out, err
}

// ifNewest adds the condition that a version is the newest; 0 means no condition.
func ifNewest(h http.Header, version int) {
	if version > 0 {
		h.Set("If-Match", wire.DocumentTag(version))
	}
}

// ChangeDocument deprecates, restores or removes versions of a document. It makes an operation id if
// the change has none.
func (c *Client) ChangeDocument(ctx context.Context, d belay.DocumentChange) (belay.DocumentVersion, error) {
	out := belay.DocumentVersion{Name: d.Name, Version: d.Version}
	op := fmt.Sprintf("%s document %s", d.Action, d.Name)
	whole := d.Action == belay.DocumentRemove && d.Version == 0
	version := d.Version
	if whole {
		version = 1 // only the name is checked
	}
	if err := checkVersion(op, d.Name, version); err != nil {
		return out, err
	}
	if d.Op.IsZero() {
		d.Op = belay.OpID(c.set.ids())
	}
	r := &request{op: op, method: http.MethodPost, path: wire.DocumentVersionPath(d.Name, d.Version),
		header: idempotent(d.Op)}
	if whole {
		r.path = wire.DocumentPath(d.Name)
	}
	ifNewest(r.header, d.IfVersion)
	switch d.Action {
	case belay.DocumentRemove:
		r.method, r.query = http.MethodDelete, url.Values{}
		set(r.query, "reason", d.Reason)
		set(r.query, "actor", d.Actor)
	case belay.DocumentDeprecate, belay.DocumentRestore:
		var err error
		r.path, r.reply = r.path+"/"+string(d.Action), &out
		by := wire.By{Reason: d.Reason, Actor: d.Actor}
		if r.body, err = body(op, wire.ChangeDocument{By: by}); err != nil {
			return out, err
		}
	default:
		return out, &belay.Error{
			Code: belay.CodeInvalid, Op: op, Message: "there is no action " + string(d.Action) + " on a document",
		}
	}
	err := c.retry(ctx, r)
	return out, err
}
