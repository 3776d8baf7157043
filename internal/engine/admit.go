package engine

import (
	"time"

	"github.com/belaydev/belay"
)

const (
	// maxQueueAge is how long client work may wait in the queue before the engine refuses more
	// client work. With a shorter limit the engine would refuse bursts that it can finish in a
	// moment; with a longer limit callers would cancel before their work is done.
	maxQueueAge = time.Second
	// maxRetryAfter is the largest RetryAfter in a refusal.
	maxRetryAfter = 5 * time.Second
)

// Crowded returns the error with which the engine refuses new client work at the moment
// (CodeRateLimited), or nil if it accepts new client work.
func (e *Engine) Crowded() error { return e.committer.admit() }

// admit refuses new client work while queued client work has waited too long. So an overloaded
// server has time to renew its sessions and to end the runs that have begun. RetryAfter of the
// error says how long the client should wait before it sends the work again.
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
