package engine

import "sync"

// supply is something of which all followers together may take only so much. A take succeeds while
// anything is left, however large it is. freed wakes one that waits.
type supply struct {
	mu    sync.Mutex
	left  int64
	freed chan struct{}
}

func newSupply(n int64) *supply { return &supply{left: n, freed: make(chan struct{}, 1)} }

func (b *supply) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left <= 0 {
		return false
	}
	if b.left -= n; b.left > 0 {
		nudge(b.freed) // there is something for the next one too
	}
	return true
}

// give gives back n. It may be negative, for more than was taken before.
func (b *supply) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left += n; b.left > 0 {
		nudge(b.freed)
	}
}
