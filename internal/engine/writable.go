package engine

import "time"

// Writable returns the error with which the store refuses writes, for example because the disk is
// full, and nil after a write has succeeded again. The engine itself tries a write regularly,
// because other writes may not arrive. That write is small and may succeed although larger writes
// fail, so its success counts only ten seconds after the last refused write.
func (e *Engine) Writable() error { return e.committer.writable() }

// refused is a write that the store refused.
type refused struct {
	err error
	at  time.Time
}

// refusedFor is how long after a refused write further writes are expected to be refused too, even
// if a small write has succeeded.
const refusedFor = 10 * time.Second

func (c *committer) trouble(err error) {
	c.mu.Lock()
	c.refused = refused{err, time.Now()}
	c.mu.Unlock()
	if c.health.refused() {
		c.sweep()
	}
}

// writable returns the error with which the store refuses writes, nil if it accepts them.
func (c *committer) writable() error {
	failing := c.health.isFailing()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused.err == nil || !failing && time.Since(c.refused.at) > refusedFor {
		return nil
	}
	return c.refused.err
}
