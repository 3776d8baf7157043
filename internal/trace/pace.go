package trace

import (
	"sync"
	"time"
)

// perSecond is the largest number of spans of commits in one second. A busy store commits hundreds of batches in a
// second, and their spans say nothing that a few of them do not say.
const perSecond = 10

// pace limits the spans of commits.
type pace struct {
	mu     sync.Mutex
	second int64
	n      int
}

// take reports whether one more span may begin at the time now.
func (p *pace) take(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := now.Unix(); s != p.second {
		p.second, p.n = s, 0
	}
	p.n++
	return p.n <= perSecond
}
