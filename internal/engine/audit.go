package engine

import (
	"context"
	"fmt"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// auditScanned is the largest number of entries of the audit that one call examines.
const auditScanned = 10_000

// Audit lists entries of the audit, the newest first.
func (r *Reader) Audit(ctx context.Context, f belay.AuditFilter) (belay.AuditPage, error) {
	page := belay.AuditPage{Entries: []belay.AuditEntry{}}
	if err := machine.CheckAuditFilter("list the audit", f); err != nil {
		return page, err
	}
	q := store.Query{Of: store.Trail, After: f.Cursor, Limit: f.Limit}
	rows, _ := q.Bounds()
	limit := int(rows)
	since, until := machine.At(f.Since), machine.At(f.Until)
	if q.After == "" && until != 0 {
		q.After = fmt.Sprintf("%d/0//", until) // before all entries of this time
	}
	if f.Actor != "" || f.Action != "" || f.Kind != "" {
		q.Limit = 1000
	}
	for examined := 0; ; {
		found, err := r.store.Query(ctx, q)
		if err != nil {
			return belay.AuditPage{}, err
		}
		for i, a := range found.Trail {
			if a.At < since {
				return page, nil
			}
			if entry := a.View(); selects(f, entry) && (until == 0 || a.At < until) {
				page.Entries = append(page.Entries, entry)
			}
			if len(page.Entries) == limit {
				if i+1 < len(found.Trail) || found.Next != "" {
					page.Next = store.TrailCursor(a)
				}
				return page, nil
			}
		}
		if examined += len(found.Trail); found.Next == "" || examined >= auditScanned {
			page.Next = found.Next
			return page, nil
		}
		q.After = found.Next
	}
}

// selects reports whether a filter selects an entry, whatever its time.
func selects(f belay.AuditFilter, e belay.AuditEntry) bool {
	return (f.Actor == "" || f.Actor == e.Actor) && (f.Action == "" || f.Action == e.Action) &&
		(f.Kind == "" || f.Kind == e.Kind) && (f.Name == "" || f.Name == e.Name)
}
