package run

import (
	"encoding/json"
	"time"

	"github.com/belaydev/belay"
)

// entry is the state of the name of a step or wait: the checkpoint that an earlier run saved under
// that name, and whether this run has used the name.
type entry struct {
	// kind is the kind of the checkpoint that an earlier run saved under the name; 0 if no run
	// saved a checkpoint.
	kind belay.CheckpointKind
	data json.RawMessage
	age  time.Duration
	// used says that this run has called a step or wait with the name.
	used bool
}

// take marks the name as used by this run and returns its entry. It refuses a name that this run
// has already used, because the second call would return the result of the first call.
func (r *Run) take(op call, key string, kind belay.CheckpointKind) (entry, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.stopLocked(); err != nil {
		return entry{}, err
	}
	e := r.names[key]
	switch {
	case e.used:
		return e, refuse(op, "the name %q is used twice in this run; give each call a Key of its own", key)
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

// release makes the name usable again after a call with this name has failed.
func (r *Run) release(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.names[key]
	e.used = false
	r.names[key] = e
}
