package postgres

import (
	"sync"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// parents remembers the parents of the children that the store has read. An execution's parent
// never changes, so the first attempt at a transaction can lock a child together with its known
// parent.
type parents struct {
	mu  sync.RWMutex
	all map[belay.ExecutionID]belay.ExecutionID
}

// maxParents is the maximum number of remembered parents. When it is reached, all are forgotten.
const maxParents = 1 << 16

func (p *parents) of(id belay.ExecutionID) (up belay.ExecutionID, known bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if len(p.all) > 0 {
		up, known = p.all[id]
	}
	return up, known
}

func (p *parents) note(e *machine.Execution) {
	if e.Parent.IsZero() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) >= maxParents {
		p.all = make(map[belay.ExecutionID]belay.ExecutionID)
	}
	p.all[e.ID] = e.Parent
}
