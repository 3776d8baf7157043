package engine

import (
	"slices"
	"sync"

	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

// hookWatch wakes callers that follow the terms of webhooks. The zero value is ready.
type hookWatch struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change; nil while no caller waits
}

// WebhooksChanged returns a channel that is closed when an operator or a document has created, changed or removed a
// webhook, and sometimes without a reason. Changes by other servers can be late, or be missed while the store sends no
// hints, so callers also look from time to time.
func (e *Engine) WebhooksChanged() <-chan struct{} {
	w := &e.hooks
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed == nil {
		w.changed = make(chan struct{})
	}
	return w.changed
}

func (w *hookWatch) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}

// observe wakes the callers after a batch that changes the terms of a webhook. Deliveries change the objects of
// webhooks too, but have no entries in the audit.
func (w *hookWatch) observe(b *batch) {
	if slices.ContainsFunc(b.changes.Audit, func(a *machine.Audit) bool { return a.Kind == machine.WebhookObject }) {
		w.wake()
	}
}

// onHint wakes the callers if another server may have changed a webhook.
func (w *hookWatch) onHint(h store.Hint) {
	if h.Objects || h.Lost {
		w.wake()
	}
}
