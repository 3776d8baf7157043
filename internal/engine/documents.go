package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/catalog"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// Submit accepts or refuses submissions independently of each other. Submissions may name stored documents.
func (e *Engine) Submit(ctx context.Context, s ...belay.Submission) ([]belay.Submitted, error) {
	return catalog.Submit(ctx, e, e.submit, s)
}

// ApplyDocument makes a text the newest version of a document, and its triggers those of the document. Of the text it
// checks only the triggers.
func (e *Engine) ApplyDocument(ctx context.Context, a belay.DocumentApply) (belay.DocumentApplied, error) {
	if err := belay.CheckDocumentName("apply document", a.Name); err != nil {
		return belay.DocumentApplied{}, err
	}
	t, err := catalog.Triggers("apply document "+a.Name, a.Name, a.Text)
	if err != nil {
		return belay.DocumentApplied{}, err
	}
	r, err := e.changeOwned(ctx, a.Name, func(owned machine.Owned) machine.Command {
		c := &machine.ApplyDocument{DocumentApply: a, Owned: owned}
		for _, s := range t.Schedules {
			c.Schedules = append(c.Schedules, catalog.PutSchedule(s, calendar))
		}
		for _, h := range t.Webhooks {
			c.Webhooks = append(c.Webhooks, catalog.PutWebhook(h))
		}
		e.committer.payloadChecks.precheck(c)
		return c
	})
	return belay.DocumentApplied{DocumentVersion: r.Document, Created: r.Fresh, Triggers: r.Triggers}, err
}

// ChangeDocument deprecates, restores or removes versions of a document.
func (e *Engine) ChangeDocument(ctx context.Context, c belay.DocumentChange) (belay.DocumentVersion, error) {
	if c.Action != belay.DocumentRemove || belay.CheckDocumentName("", c.Name) != nil {
		r, err := e.do(ctx, &machine.ChangeDocument{DocumentChange: c})
		return r.Document, err
	}
	r, err := e.changeOwned(ctx, c.Name, func(owned machine.Owned) machine.Command {
		return &machine.ChangeDocument{DocumentChange: c, Owned: owned}
	})
	return r.Document, err
}

// ownedTries is how often changeOwned reads the triggers of a document again that were changed in the meantime.
const ownedTries = 5

// changeOwned sends a command that needs the names of the triggers of a document. A commit locks the objects that its
// commands name before it reads them, so the names are read first, and the rules refuse a command with other names.
func (e *Engine) changeOwned(ctx context.Context, document string,
	command func(machine.Owned) machine.Command) (*machine.Reply, error) {
	for tries := 1; ; tries++ {
		owned, err := e.ownedBy(ctx, document)
		if err != nil {
			return &machine.Reply{}, err
		}
		r, err := e.do(ctx, command(owned))
		if err == nil || belay.CodeOf(err) != belay.CodeConflict || tries == ownedTries {
			return r, err
		}
		now, rerr := e.ownedBy(ctx, document)
		if rerr != nil || slices.Equal(now.Schedules, owned.Schedules) && slices.Equal(now.Webhooks, owned.Webhooks) {
			return r, err // another conflict
		}
	}
}

// ownedBy reads the names of the triggers of a document.
func (e *Engine) ownedBy(ctx context.Context, document string) (machine.Owned, error) {
	o, err := e.object(ctx, machine.DocumentRef(document))
	if o == nil || err != nil {
		return machine.Owned{}, err
	}
	v, err := machine.DocumentView(o)
	return machine.Owned{Schedules: v.Schedules, Webhooks: v.Webhooks}, err
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
