package engine

import "time"

// Writable says why the store takes no writes, as far as the newest ones tell: it is nil
// again once one has passed. A full disk, for instance, can be read and not written. The
// engine tries by itself, since with the requests kept away nobody else would; what it
// writes is small, and counts only ten seconds after the last write that was refused.
func (e *Engine) Writable() error { return e.committer.writable() }

// refused is a write that the store did not take.
type refused struct {
	err error
	at  time.Time
}

// doubt is for how long a refused write says that the next will be refused too, though
// a small one passed.
const doubt = 10 * time.Second

func (c *committer) trouble(err error) {
	c.mu.Lock()
	c.refused = refused{err, time.Now()}
	c.mu.Unlock()
	if c.life.refused() {
		c.sweep()
	}
}

// writable is why the store takes no writes, nil if it does.
func (c *committer) writable() error {
	failing := c.life.isFailing()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused.err == nil || !failing && time.Since(c.refused.at) > doubt {
		return nil
	}
	return c.refused.err
}
