package simulation

import (
	"bytes"

	"github.com/belaydev/belay"
)

// g9: one execution per idempotency key. All ok answers for a workflow and key
// name the same execution, which was submitted with that very body; another body
// is refused.
func g9(f *finding) {
	type key struct{ workflow, key string }
	first := make(map[key]*belay.Submission)
	named := make(map[key]belay.ExecutionID)
	for _, c := range f.calls {
		r, is := c.request.(*belay.Submission)
		if !is || r.IdempotencyKey == "" || c.end != ok {
			continue
		}
		k := key{r.Workflow, r.IdempotencyKey}
		a := c.reply.([]belay.Submitted)[0]
		if a.Err != nil {
			if belay.CodeOf(a.Err) == belay.CodeIdempotencyMismatch {
				f.count("key with another body refused")
			}
			continue
		}
		f.ok()
		if id, known := named[k]; known && id != a.ID {
			f.violation(f.byID[a.ID], nil, "key %q of %s was answered with it and with %s", k.key, k.workflow, short(id))
		}
		if old := first[k]; old != nil && !sameBody(old, r) {
			f.violation(f.byID[a.ID], nil, "key %q of %s was accepted with two bodies", k.key, k.workflow)
		}
		named[k], first[k] = a.ID, r
	}
}

func sameBody(a, b *belay.Submission) bool {
	return bytes.Equal(a.Input, b.Input) && a.Priority == b.Priority && a.Policy == b.Policy && a.DueAt.Equal(b.DueAt)
}
