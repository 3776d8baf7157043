package promise

import "github.com/belaydev/belay"

// G9 checks that there is one execution per idempotency key. All successful answers for a workflow
// and key name the same execution, which was submitted with the same body. A submission with
// another body is refused.
func G9(f *Finding) {
	type key struct{ workflow, key string }
	first := make(map[key]*Entry)
	same := func(a, b *Entry) bool { return Same(a.Data, b.Data) && a.Terms == b.Terms }
	f.eachEntry("submit", OK, func(e *Entry) {
		if e.Replayed {
			f.Count("submission replayed")
		}
		if e.Key == "" {
			return
		}
		f.OK()
		k := key{e.Name, e.Key}
		switch old := first[k]; {
		case old == nil:
			first[k] = e
		case old.Named != e.Named:
			f.Violation(f.History.Story(e.Named), "key %q of %s was answered with it and with %s", e.Key, e.Name,
				f.name(old.Named))
		case !same(old, e):
			f.Violation(f.History.Story(e.Named), "key %q of %s was accepted with two bodies", e.Key, e.Name)
		}
	})
	f.eachEntry("submit", Refused, func(e *Entry) {
		if e.Code == belay.CodeLeaseLost && !e.Parent.IsZero() {
			return // the lease of the parent is not valid any more
		}
		if e.Code == belay.CodeRateLimited {
			return // the server was overloaded
		}
		if e.Code == belay.CodeConflict && e.Gates.Concurrency != nil {
			if e.Gates.Concurrency.WhenFull == belay.RejectWhenFull {
				f.Count("submission rejected at a full limit")
			}
			return // the limit is full, or other executions have named it with another number
		}
		if e.Code != belay.CodeIdempotencyMismatch {
			f.Violation(nil, "%s was refused a submission: %s", e.Who, e.Text)
			return
		}
		f.Count("key with another body refused")
		if old := first[key{e.Name, e.Key}]; old != nil && same(old, e) {
			f.Violation(f.History.Story(old.Named), "key %q was refused with the body that it was accepted with", e.Key)
		}
	})
}
