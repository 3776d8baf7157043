package engine

import (
	"time"

	"github.com/belaydev/belay"
)

const (
	// maxQueueAge is how long client work may wait for its batch before more of it is refused. With
	// a shorter limit a burst would be refused that the server can finish in a moment; with a
	// longer one callers would give up before their work is done.
	maxQueueAge = time.Second
	// maxRetryAfter is the longest time that a caller is asked to wait.
	maxRetryAfter = 5 * time.Second
)

// Crowded returns the error with which new client work is refused at the moment (CodeRateLimited),
// or nil while it is accepted.
func (e *Engine) Crowded() error { return e.committer.admit() }

// admit refuses client work while the queued client work has waited too long. An overloaded server
// keeps its sessions and ends the runs that it has begun; new work waits outside.
func (c *committer) admit() error {
	c.mu.Lock()
	wait := max(c.queue.age(clientWork, time.Now()), c.pace.wait(len(c.queue.calls[clientWork])))
	c.mu.Unlock()
	if wait <= maxQueueAge {
		return nil
	}
	return &belay.Error{
		Code: belay.CodeRateLimited, RetryAfter: min(wait, maxRetryAfter),
		Message: "the server is overloaded: it receives more work than it can write; " +
			"repeat the request after the time in Retry-After",
	}
}
