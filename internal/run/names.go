package run

import (
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// entry is what is known of one name.
type entry struct {
	// kind is that of the checkpoint earlier runs saved; 0 if there is none.
	kind belay.CheckpointKind
	data json.RawMessage
	age  time.Duration
	// used says that this run has come to the name.
	used bool
}

// take marks the name as used by this run and returns what is saved under it.
// A name that was used already would answer with another call's result.
func (r *Run) take(op call, key string, kind belay.CheckpointKind) (entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.stopLocked(); err != nil {
		return entry{}, err
	}
	e := r.names[key]
	switch {
	case e.used:
		return e, refuse(op, "the name %q is used twice in this run; tell the calls apart with Key", key)
	case e.kind != 0 && e.kind != kind && kind != 0:
		return e, refuse(op, "%q was saved as a %s by an earlier run; give the %s another name", key, e.kind, kind)
	}
	if r.names == nil {
		r.names = make(map[string]entry, 8)
	}
	e.used = true
	r.names[key] = e
	r.waits.idleSince = time.Time{}
	return e, nil
}

// release lets a name be used again: the call under it came to nothing.
func (r *Run) release(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.names[key]
	e.used = false
	r.names[key] = e
}
