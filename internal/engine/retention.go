package engine

import (
	"context"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

const (
	// pruneIdle is how long the engine waits before it looks again for what is older
	// than the retention, when there was no more to delete, and pruneQuiet up to how
	// long when there was nothing at all. It looks a few times in a short retention.
	pruneIdle  = 10 * time.Second
	pruneQuiet = time.Minute
	pruneLook  = 10
	// pruneLimit is how many executions one commit deletes at most: it must not hold
	// up those who write.
	pruneLimit = 200
	// pruneShare is how many times longer than the last commit took the engine waits
	// before the next, while there is more to delete, and pruneRest how long at least.
	pruneShare = 4
	pruneRest  = 5 * time.Millisecond
)

// prune deletes what is older than the retention, a little at a time and all the
// time: at the pace at which work ends, and up to a fifth of the time of one writer
// where that is not enough.
func (e *Engine) prune(ctx context.Context) {
	if e.opt.Retention < 0 {
		return
	}
	look := max(e.opt.Retention/pruneLook, time.Millisecond)
	idle := min(pruneIdle, look)
	for wait := idle; sleep(ctx, wait); {
		began := time.Now()
		switch some, more := e.pruneOnce(ctx); {
		case more:
			wait = max(pruneRest, pruneShare*time.Since(began))
		case some:
			wait = idle
		default:
			wait = min(max(2*wait, idle), pruneQuiet, look)
		}
	}
}

// pruneOnce deletes a little, and reports whether it deleted anything and whether there
// is more to delete now.
func (e *Engine) pruneOnce(ctx context.Context) (some, more bool) {
	before := e.store.Now().Add(-e.opt.Retention)
	p, err := e.store.Prune(ctx, before, pruneLimit)
	if err != nil {
		if ctx.Err() == nil && belay.CodeOf(err) != belay.CodeUnavailable {
			e.log.Warn("delete what is older than the retention", "error", err)
		}
		return false, false
	}
	for _, id := range p.Large { // refused if it was run again meanwhile
		_, err := e.do(ctx, &machine.Forget{Execution: id, Before: before})
		p.More = p.More || err == nil
	}
	return p.Executions+p.Sessions+p.Keys > 0, p.More
}
