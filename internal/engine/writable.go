package engine

import "time"

// Writable returns the error with which the store refuses writes, and nil once a write has passed
// again. A full disk, for example, can be read and not written. The engine itself tries to write
// regularly, since no other write may arrive. Its own write is small, so its success counts only
// ten seconds after the last write that was refused.
func (e *Engine) Writable() error { return e.committer.writable() }

// refused is a write that the store refused.
type refused struct {
	err error
	at  time.Time
}

// refusedFor is how long a refused write suggests that the next one will be refused too, even if a small
// one passed.
const refusedFor = 10 * time.Second

func (c *committer) trouble(err error) {
	c.mu.Lock()
	c.refused = refused{err, time.Now()}
	c.mu.Unlock()
	if c.health.refused() {
		c.sweep()
	}
}

// writable returns the error with which the store refuses writes, nil if it takes them.
func (c *committer) writable() error {
	failing := c.health.isFailing()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused.err == nil || !failing && time.Since(c.refused.at) > refusedFor {
		return nil
	}
	return c.refused.err
}
