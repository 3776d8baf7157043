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
// small parts. It also completes the deletions that erase has begun. It uses at most about a fifth
// of the time of one writer.
func (e *Engine) prune(ctx context.Context) {
	look := max(e.opt.Retention/pruneLook, time.Millisecond)
	idle := min(pruneIdle, look)
	for wait := idle; ; {
		var next <-chan time.Time // nil if executions are kept for ever
		if e.opt.Retention >= 0 {
			next = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case root := <-e.erasing:
			e.eraseRest(ctx, root)
			continue
		case <-next:
		}
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

const (
	// eraseParts is how many commits a call of Control makes to delete an execution with its
	// descendants (its tree); prune deletes the remaining executions of a larger tree.
	eraseParts = 5
	// maxErasing is the largest number of partly deleted trees that wait for prune. Any other partly
	// deleted tree is deleted when its retention is over, or by another call of Control.
	maxErasing = 1000
)

// erase deletes the tree of a root that is marked as being deleted. It leaves the rest of a large tree
// to prune. If it fails, for example because the store is unavailable, prune tries again.
func (e *Engine) erase(ctx context.Context, root belay.ExecutionID) {
	var err error
	for part := 0; part < eraseParts && err == nil; part++ {
		var p store.Pruned
		if p, err = e.store.Prune(ctx, store.Only(root), pruneLimit); err == nil && !p.More {
			return
		}
	}
	select {
	case e.erasing <- root:
	default:
	}
}

// eraseRest deletes the rest of a tree in small parts, as prune does.
func (e *Engine) eraseRest(ctx context.Context, root belay.ExecutionID) {
	for wait := pruneRest; sleep(ctx, wait); {
		began := time.Now()
		p, err := e.store.Prune(ctx, store.Only(root), pruneLimit)
		switch {
		case err != nil && belay.CodeOf(err) == belay.CodeUnavailable:
			wait = pruneIdle
		case err != nil:
			if ctx.Err() == nil {
				e.log.Warn("delete an execution", "execution", root, "error", err)
			}
			return
		case !p.More:
			return
		default:
			wait = max(pruneRest, pruneShare*time.Since(began))
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
