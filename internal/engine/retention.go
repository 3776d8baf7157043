package engine

import (
	"context"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
	"github.com/belaydev/belay/internal/store"
)

const (
	// pruneIdle is how long the engine waits after it has deleted everything that is older than the
	// retention. If there was nothing to delete, the wait doubles up to pruneQuiet. If the
	// retention is short, the engine searches pruneLook times within the retention.
	pruneIdle  = 10 * time.Second
	pruneQuiet = time.Minute
	pruneLook  = 10
	// pruneLimit is the maximum number of executions that one commit deletes, so that the commit
	// does not delay other writers.
	pruneLimit = 200
	// While there is more to delete, the engine waits pruneShare times as long as the last commit
	// took, and at least pruneRest.
	pruneShare = 4
	pruneRest  = 5 * time.Millisecond
)

// prune deletes executions and other rows that are older than the retention, continuously and in
// small parts. It uses at most about a fifth of the time of one writer.
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

// pruneOnce deletes, in one commit, some of the rows that are older than the retention. It reports
// whether it deleted any rows, and whether there are more to delete now.
func (e *Engine) pruneOnce(ctx context.Context) (some, more bool) {
	now := e.store.Now()
	before := now.Add(-e.opt.Retention)
	over := store.Retention{Before: before}
	if e.opt.LetterRetention > 0 {
		over.Letters = now.Add(-e.opt.LetterRetention)
	}
	p, err := e.store.Prune(ctx, over, pruneLimit)
	if err != nil {
		if ctx.Err() == nil && belay.CodeOf(err) != belay.CodeUnavailable {
			e.log.Warn("delete what is older than the retention", "error", err)
		}
		return false, false
	}
	for _, id := range p.Large { // refused if the execution was reopened after Prune read it
		_, err := e.do(ctx, &machine.Forget{Execution: id, Before: before})
		p.More = p.More || err == nil
	}
	return p.Executions+p.Sessions+p.Keys+p.Gates > 0, p.More
}
