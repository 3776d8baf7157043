// Package catalog completes submissions of documents before they are stored. It replaces the name of a stored document
// by the text of a version, so that the execution keeps its version, and adds the notifications of the document to
// those of the submission. So the rules about executions know nothing of documents.
package catalog

import (
	"context"
	"slices"

	"github.com/belaydev/belay"
)

// Source has the calls of a belay.Backend that the package needs.
type Source interface {
	Document(ctx context.Context, name string, version int) (belay.Document, error)
	Execution(ctx context.Context, id belay.ExecutionID) (belay.Execution, error)
	Executions(ctx context.Context, f belay.Filter) (belay.Page, error)
}

// Texts reads stored documents.
type Texts interface {
	Document(ctx context.Context, name string, version int) (belay.Document, error)
}

// Complete returns a submission in the form in which it is stored: with the text of the stored document that it names,
// and with the notifications of the document that it runs.
func Complete(ctx context.Context, from Texts, s belay.Submission) (belay.Submission, error) {
	if s.Document == "" {
		return Notified(s)
	}
	ref, err := belay.ParseDocumentRef(s.Document)
	if err != nil {
		return s, err
	}
	d, err := from.Document(ctx, ref.Name, ref.Version)
	if err != nil {
		return s, err
	}
	return with(s, &d)
}

// Submitter is the method Submit of a belay.Client, for submissions that are complete.
type Submitter func(ctx context.Context, list ...belay.Submission) ([]belay.Submitted, error)

// Submit submits a list in which submissions may name stored documents, or have the text of a document as their input.
//
// A submission without a version gets the newest version that is not deprecated. If it repeats an earlier submission,
// and the document was changed meanwhile, it gets the version of the execution that the earlier submission has
// created: so the Submitter recognizes the repetition, and answers it with this execution. The same holds if the
// version was removed meanwhile.
func Submit(ctx context.Context, from Source, submit Submitter, list []belay.Submission) ([]belay.Submitted, error) {
	if !slices.ContainsFunc(list, ofDocument) {
		return submit(ctx, list...)
	}
	b := &batch{
		from: from, submitter: submit, list: list, out: make([]belay.Submitted, len(list)),
		read: make(map[belay.DocumentRef]reading),
	}
	first := make(map[int]belay.Submission, len(list))
	for i := range list {
		s, err := b.complete(ctx, i)
		if b.out[i] = (belay.Submitted{ID: s.ID, Err: err}); err == nil {
			first[i] = s
		}
	}
	if err := b.submit(ctx, first); err != nil {
		return nil, err
	}
	second := make(map[int]belay.Submission)
	for i := range list {
		if list[i].Document == "" || !mayRepeat(b.out[i].Err) {
			continue
		}
		s, found, err := b.repetition(ctx, i)
		if err != nil {
			b.out[i].Err = err
		}
		if found && err == nil {
			second[i] = s
		}
	}
	return b.out, b.submit(ctx, second)
}

// ofDocument reports whether a submission runs a document.
func ofDocument(s belay.Submission) bool { return s.Document != "" || s.Workflow == Workflow }

// mayRepeat reports whether the error of a submission may come from a change of the document since an equal earlier
// submission.
func mayRepeat(err error) bool {
	switch belay.CodeOf(err) {
	case belay.CodeIdempotencyMismatch, belay.CodeNotFound, belay.CodeConflict:
		return err != nil
	}
	return false
}

// batch is one call of Submit.
type batch struct {
	from      Source
	submitter Submitter
	list      []belay.Submission
	out       []belay.Submitted
	read      map[belay.DocumentRef]reading
}

// reading is the result of the read of one version.
type reading struct {
	document belay.Document
	err      error
}

// complete returns a submission of the list with the text of its document.
func (b *batch) complete(ctx context.Context, i int) (belay.Submission, error) {
	s := b.list[i]
	if s.Document == "" {
		return Notified(s)
	}
	ref, err := belay.ParseDocumentRef(s.Document)
	if err != nil {
		return s, err
	}
	r, known := b.read[ref]
	if !known {
		r.document, r.err = b.from.Document(ctx, ref.Name, ref.Version)
		b.read[ref] = r
	}
	if r.err != nil {
		return s, r.err
	}
	return with(s, &r.document)
}

// submit submits complete submissions, by their places in the list, and keeps the answers.
func (b *batch) submit(ctx context.Context, some map[int]belay.Submission) error {
	if len(some) == 0 {
		return nil
	}
	places, ready := make([]int, 0, len(some)), make([]belay.Submission, 0, len(some))
	for i := range b.list {
		if s, ok := some[i]; ok {
			places, ready = append(places, i), append(ready, s)
		}
	}
	answers, err := b.submitter(ctx, ready...)
	if err != nil {
		return err
	}
	for n, i := range places {
		b.list[i].ID = ready[n].ID // the Submitter may have made it
		b.out[i] = answers[n]
		if b.list[i].Document != "" && answers[n].Err == nil && !answers[n].Replayed {
			b.out[i].Warning = b.warning(i)
		}
	}
	return nil
}

// warning returns the warning about a deprecated version.
func (b *batch) warning(i int) string {
	ref, err := belay.ParseDocumentRef(b.list[i].Document)
	d := b.read[ref].document
	if err != nil || d.Deprecated == nil {
		return ""
	}
	text := "the version " + d.String() + " is deprecated"
	if d.Deprecated.Reason != "" {
		text += ": " + d.Deprecated.Reason
	}
	return text
}

// repetition returns a submission of the list with the text that the execution of an equal earlier submission has.
// found is false if there is no such execution, or if its version is not the one that the submission names.
func (b *batch) repetition(ctx context.Context, i int) (s belay.Submission, found bool, err error) {
	s = b.list[i]
	ref, err := belay.ParseDocumentRef(s.Document)
	if err != nil {
		return s, false, err
	}
	x, err := b.earlier(ctx, &s)
	if x == nil || err != nil {
		return s, false, err
	}
	d, ok := documentOf(x)
	if !ok || d.Name != ref.Name || ref.Version != 0 && d.Version != ref.Version {
		return s, false, nil
	}
	s, err = with(s, &d)
	return s, err == nil, err
}

// earlier returns the execution of an earlier submission with the same id or idempotency key, nil if there is none.
func (b *batch) earlier(ctx context.Context, s *belay.Submission) (*belay.Execution, error) {
	id := s.ID
	if s.IdempotencyKey != "" {
		f := belay.Filter{Workflow: Workflow, Key: s.IdempotencyKey, Children: true, Limit: 1}
		page, err := b.from.Executions(ctx, f)
		if err != nil {
			return nil, err
		}
		if len(page.Executions) > 0 {
			id = page.Executions[0].ID
		}
	}
	if id.IsZero() {
		return nil, nil
	}
	x, err := b.from.Execution(ctx, id)
	if belay.CodeOf(err) == belay.CodeNotFound {
		return nil, nil
	}
	return &x, err
}
