package engine

import (
	"context"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Submit accepts or refuses submissions independently of each other. Submissions may name stored documents.
func (e *Engine) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	return catalog.Submit(ctx, e, e.submit, s)
}

// ApplyDocument makes a text the newest version of a document. It does not check the text.
func (e *Engine) ApplyDocument(ctx context.Context, a belay.DocumentApply) (belay.DocumentApplied, error) {
	c := &machine.ApplyDocument{DocumentApply: a}
	e.committer.payloadChecks.precheck(c)
	r, err := e.do(ctx, c)
	return belay.DocumentApplied{DocumentVersion: r.Document, Created: r.Fresh, Triggers: r.Triggers}, err
}

// ChangeDocument deprecates, restores or removes versions of a document.
func (e *Engine) ChangeDocument(ctx context.Context, c belay.DocumentChange) (belay.DocumentVersion, error) {
	r, err := e.do(ctx, &machine.ChangeDocument{DocumentChange: c})
	return r.Document, err
}

// Documents lists the stored documents without their texts.
func (r *Reader) Documents(ctx context.Context, f belay.DocumentFilter) (belay.DocumentPage, error) {
	page := belay.DocumentPage{Documents: []belay.DocumentInfo{}}
	found, err := r.store.Query(ctx, store.Query{
		Of: store.Objects, Kind: machine.DocumentObject, After: f.Cursor, Limit: f.Limit,
	})
	if err != nil {
		return page, err
	}
	page.Next = found.Next
	for _, o := range found.Objects {
		v, err := machine.DocumentView(o)
		if err != nil {
			return page, err
		}
		if len(v.Versions) == 0 { // all versions were removed
			continue
		}
		page.Documents = append(page.Documents, belay.DocumentInfo{
			Name: v.Name, Newest: v.Versions[0], Default: v.Default, Count: len(v.Versions),
		})
	}
	return page, nil
}

// DocumentVersions lists the versions of a document, the newest first.
func (r *Reader) DocumentVersions(ctx context.Context, name string) (belay.DocumentVersions, error) {
	op := "read document " + name
	if err := belay.CheckDocumentName(op, name); err != nil {
		return belay.DocumentVersions{}, err
	}
	o, err := r.object(ctx, machine.DocumentRef(name))
	if err != nil {
		return belay.DocumentVersions{}, err
	}
	var v belay.DocumentVersions
	if o != nil {
		if v, err = machine.DocumentView(o); err != nil {
			return v, err
		}
	}
	if len(v.Versions) == 0 {
		return v, &belay.Error{
			Code: belay.CodeNotFound, Op: op,
			Message: fmt.Sprintf("there is no stored document %s; `belay workflows ls` lists them", name),
		}
	}
	return v, nil
}

// Document reads a version with its text. The version may be removed between the two reads; then the second try finds
// another default version, or none.
func (r *Reader) Document(ctx context.Context, name string, version int) (belay.Document, error) {
	for range 2 {
		d, err := r.described(ctx, name, version)
		if err != nil {
			return belay.Document{}, err
		}
		o, err := r.object(ctx, machine.TextRef(name, d.Version))
		if err != nil {
			return belay.Document{}, err
		}
		if o != nil {
			return belay.Document{DocumentVersion: d, Text: string(o.Body)}, nil
		}
	}
	return belay.Document{}, &belay.Error{
		Code: belay.CodeUnavailable, Op: "read document " + name,
		Message: "the document changes at this moment; try again",
	}
}

// described reads a version without its text.
func (r *Reader) described(ctx context.Context, name string, version int) (belay.DocumentVersion, error) {
	all, err := r.DocumentVersions(ctx, name)
	if err != nil {
		return belay.DocumentVersion{}, err
	}
	op := "read document " + name
	if version == 0 {
		if version = all.Default; version == 0 {
			return belay.DocumentVersion{}, &belay.Error{
				Code: belay.CodeConflict, Op: op, Message: fmt.Sprintf(
					"all versions of %s are deprecated; name one, as in %s", name, all.Versions[0]),
			}
		}
	}
	for _, v := range all.Versions {
		if v.Version == version {
			return v, nil
		}
	}
	return belay.DocumentVersion{}, &belay.Error{
		Code: belay.CodeNotFound, Op: op, Message: fmt.Sprintf(
			"the document %s has no version %d; the newest is %d", name, version, all.Versions[0].Version),
	}
}

// object reads one object, nil if there is none.
func (r *Reader) object(ctx context.Context, ref machine.ObjectRef) (*machine.Object, error) {
	found, err := r.store.Query(ctx, store.Query{Of: store.OneObject, Kind: ref.Kind, Name: ref.Name})
	if err != nil || len(found.Objects) == 0 {
		return nil, err
	}
	return found.Objects[0], nil
}
