package bulk

import (
	"context"
	"time"

	"github.com/belaydev/belay"
)

// Source lists dead letters and executions.
type Source interface {
	DeadLetters(ctx context.Context, f belay.DeadLetterFilter) (belay.DeadLetterPage, error)
	Executions(ctx context.Context, f belay.Filter) (belay.Page, error)
}

const (
	// page is the largest number of executions on one page, and previewPages the largest number of pages
	// that a dry run reads.
	page         = 1000
	previewPages = 100
	// shown is how many executions a dry run shows, and brief the largest number of bytes of a message.
	shown = 10
	brief = 500
)

// Page reads the part of the selection after a cursor; an empty cursor means the beginning. If before is not zero, Page
// selects only what is older than before. If items is empty and next is not, the caller must call Page again with next
// as the cursor.
func Page(ctx context.Context, from Source, b *belay.Bulk, before time.Time, cursor string,
	limit int) (items []belay.BulkItem, next string, err error) {
	if Letters(b.Action) {
		return letters(ctx, from, b, before, cursor, limit)
	}
	return executions(ctx, from, b, before, cursor, limit)
}

func letterFilter(f *belay.BulkFilter) belay.DeadLetterFilter {
	return belay.DeadLetterFilter{
		Workflow: f.Workflow, Reason: f.Reason, Class: f.Class, Fingerprint: f.Fingerprint, Text: f.Text,
		Since: f.Since, Until: f.Until,
	}
}

func letters(ctx context.Context, from Source, b *belay.Bulk, before time.Time, cursor string,
	limit int) (items []belay.BulkItem, next string, err error) {
	f := letterFilter(&b.Filter)
	f.Cursor, f.Limit = cursor, limit
	if !before.IsZero() && (f.Until.IsZero() || before.Before(f.Until)) {
		f.Until = before
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return nil, "", nil
	}
	found, err := from.DeadLetters(ctx, f)
	for i := range found.DeadLetters {
		d := &found.DeadLetters[i]
		if d.Workflow == belay.BulkWorkflow {
			continue
		}
		items = append(items, belay.BulkItem{
			Execution: d.Execution, Generation: d.Generation, Workflow: d.Workflow, Message: short(d.Message), At: d.At,
		})
	}
	return items, found.Next, err
}

func executions(ctx context.Context, from Source, b *belay.Bulk, before time.Time, cursor string,
	limit int) (items []belay.BulkItem, next string, err error) {
	f := &b.Filter
	found, err := from.Executions(ctx, belay.Filter{
		States: f.States, Workflow: f.Workflow, Queue: f.Queue, Labels: f.Labels, Cursor: cursor, Limit: limit,
	})
	for i := range found.Executions {
		x := &found.Executions[i]
		switch at := x.CreatedAt; {
		case x.Workflow == belay.BulkWorkflow, !before.IsZero() && !at.Before(before), at.Before(f.Since),
			!f.Until.IsZero() && !at.Before(f.Until):
			continue
		}
		items = append(items, belay.BulkItem{
			Execution: x.ID, Generation: x.Generation, Workflow: x.Workflow, State: x.State, At: x.CreatedAt,
		})
	}
	return items, found.Next, err
}

// short returns the beginning of a message.
func short(s string) string {
	if len(s) <= brief {
		return s
	}
	for i := range s {
		if i > brief {
			return s[:i] + "…"
		}
	}
	return s
}

// Preview counts the selection of a checked bulk, and shows the first ten executions.
func Preview(ctx context.Context, from Source, b belay.Bulk) (belay.BulkPreview, error) {
	out := belay.BulkPreview{First: []belay.BulkItem{}}
	cursor := ""
	for range previewPages {
		items, next, err := Page(ctx, from, &b, time.Time{}, cursor, page)
		if err != nil {
			return out, err
		}
		out.First = append(out.First, items[:min(len(items), shown-len(out.First))]...)
		out.Count += len(items)
		if cursor = next; cursor == "" {
			return out, nil
		}
		if out.Count >= belay.MaxBulk {
			out.Count = belay.MaxBulk
			break
		}
	}
	out.More = true
	return out, nil
}
