package engine

import (
	"time"

	"github.com/belaydev/belay"
)

const (
	// crowdedAfter is how long what is asked for may wait for its batch before more
	// of it is refused. Shorter, and a burst would be refused that is worked off in a
	// moment; longer, and callers would give up on what is then done for nobody.
	crowdedAfter = time.Second
	// comeBack is the longest that a caller is asked to wait.
	comeBack = 5 * time.Second
)

// Crowded says why new work is refused at the moment (CodeRateLimited); nil while it is
// taken.
func (e *Engine) Crowded() error { return e.committer.admit() }

// admit refuses what clients ask for while others have waited too long for the same:
// a server that is asked for more than it can do keeps its sessions and ends what it
// has begun, and its callers wait outside.
func (c *committer) admit() error {
	c.mu.Lock()
	wait := max(c.queue.age(asked, time.Now()), c.pace.wait(len(c.queue.calls[asked])))
	c.mu.Unlock()
	if wait <= crowdedAfter {
		return nil
	}
	return &belay.Error{
		Code: belay.CodeRateLimited, RetryAfter: min(wait, comeBack),
		Message: "more is asked of this server than it can write; wait as Retry-After says",
	}
}
