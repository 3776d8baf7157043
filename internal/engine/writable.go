package engine

import "time"

// Writable says why the store takes no writes, as far as the newest one tells; it
// is nil again ten seconds after the last that was refused. A full disk, for
// instance, can be read and not written.
func (e *Engine) Writable() error { return e.committer.writable() }

// refused is a write that the store did not take.
type refused struct {
	err error
	at  time.Time
}

// doubt is for how long a refused write says that the next will be refused too.
const doubt = 10 * time.Second

func (c *committer) trouble(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = refused{err, time.Now()}
}

// writable is why the store takes no writes, nil if the newest one passed. After a
// while somebody has to try again: with the requests kept away nobody would.
func (c *committer) writable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused.err == nil || time.Since(c.refused.at) > doubt {
		return nil
	}
	return c.refused.err
}
