package chaos

import "github.com/belaydev/belay"

// g9: one execution per idempotency key. All ok answers for a workflow and key
// name the same execution, which was submitted with that very body; another body
// is refused.
func g9(f *finding) {
	type key struct{ workflow, key string }
	first := make(map[key]*entry)
	f.told("submit", ok, func(e *entry) {
		if e.Key == "" {
			return
		}
		f.ok()
		if e.Replayed {
			f.count("submission replayed")
		}
		k := key{e.Name, e.Key}
		switch old := first[k]; {
		case old == nil:
			first[k] = e
		case old.Named != e.Named:
			f.violation(f.byID[e.Named], "key %q was answered with it and with %s", e.Key, old.Named)
		case !same(old.Data, e.Data):
			f.violation(f.byID[e.Named], "key %q was accepted with two bodies", e.Key)
		}
	})
	f.told("submit", refused, func(e *entry) {
		if e.Code == belay.CodeLeaseLost && !e.Parent.IsZero() {
			return // its parent's owner is none any more
		}
		if e.Code == belay.CodeRateLimited {
			return // the server had too much to do
		}
		if e.Code != belay.CodeIdempotencyMismatch {
			f.violation(nil, "%s was refused a submission: %s", e.Who, e.Text)
			return
		}
		f.count("key with another body refused")
		if old := first[key{e.Name, e.Key}]; old != nil && same(old.Data, e.Data) {
			f.violation(f.byID[old.Named], "key %q was refused with the body that it was accepted with", e.Key)
		}
	})
}
