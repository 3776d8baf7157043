package runner

import (
	"context"

	"github.com/belaydev/belay"
)

// maxPins is how many stored documents one foreach pins. Items that start further documents choose the version when
// they start.
const maxPins = 100

// pin adds a version to the name of a stored document that an item of a foreach starts, so that all items start the
// same version: the one that was newest when the first of them started. If a crash has lost the state with that
// version, the child of the first item, which starts again first, tells it. Errors of the document itself are left to
// the start of the child.
func (x *execution) pin(ctx context.Context, e *each, key, document string) (string, error) {
	ref, err := belay.ParseDocumentRef(document)
	if err != nil || ref.Version != 0 {
		return document, nil //nolint:nilerr // the start of the child reports the error
	}
	if version, known := e.Pins[ref.Name]; known {
		return belay.DocumentRef{Name: ref.Name, Version: version}.String(), nil
	}
	if len(e.Pins) >= maxPins {
		return document, nil
	}
	version, err := x.versionOf(ctx, key, ref.Name)
	if err != nil || version == 0 {
		return document, err
	}
	if e.Pins == nil {
		e.Pins = map[string]int{}
	}
	e.Pins[ref.Name], x.dirty = version, true
	return belay.DocumentRef{Name: ref.Name, Version: version}.String(), nil
}

// versionOf returns the version of a stored document that the child of this name has, if an earlier run has started it,
// and otherwise the default version; 0 if there is none. The error is one that may pass.
func (x *execution) versionOf(ctx context.Context, key, name string) (int, error) {
	child, err := x.run.Execution(ctx, x.run.ChildID(key))
	if err == nil && child.Labels[belay.LabelDocument] == name {
		if ref, err := belay.ParseDocumentRef(name + "@" + child.Labels[belay.LabelDocumentVersion]); err == nil {
			return ref.Version, nil
		}
	}
	if err != nil && !lacking(err) {
		return 0, err
	}
	all, err := x.run.DocumentVersions(ctx, name)
	if err != nil && !lacking(err) {
		return 0, err
	}
	return all.Default, nil
}

// lacking reports whether the error of a read says that the caller cannot read it, or that it is not there.
func lacking(err error) bool {
	switch belay.CodeOf(err) {
	case belay.CodeNotFound, belay.CodeForbidden, belay.CodeInvalid:
		return true
	}
	return false
}
