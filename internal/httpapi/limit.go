package httpapi

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/belaydev/belay"
)

// maxBuckets bounds how many callers are remembered, and idle is how long one
// must be quiet to be forgotten before the others.
const (
	maxBuckets = 10_000
	idle       = time.Minute
)

// limits counts the requests of each caller.
type limits struct {
	rate Rate
	most int // that may wait at the same time; 0 for any number
	now  func() time.Time

	mu      sync.Mutex
	buckets map[string]*bucket
	waiting map[string]int
}

type bucket struct {
	*rate.Limiter
	used time.Time
}

func newLimits(r Rate, most int, now func() time.Time) *limits {
	if r.Burst == 0 {
		r.Burst = int(2*r.PerSecond) + 1
	}
	return &limits{rate: r, most: most, now: now, buckets: make(map[string]*bucket), waiting: make(map[string]int)}
}

// wait counts a request of who that may take long, until leave is called, and refuses it
// if there are too many.
func (l *limits) wait(r *http.Request, who string) (leave func(), err error) {
	if l.most == 0 || overSocket(r) {
		return func() {}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[who] >= l.most {
		return nil, &belay.Error{
			Code: belay.CodeRateLimited, RetryAfter: time.Second,
			Message: fmt.Sprintf("one caller has %d requests that wait or stream, and may have no more; end some, "+
				"or use POST /v1/await for many", l.most),
		}
	}
	l.waiting[who]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.waiting[who]--; l.waiting[who] == 0 {
			delete(l.waiting, who)
		}
	}, nil
}

// take counts a request of who, and refuses it if there were too many.
func (l *limits) take(r *http.Request, who string) error {
	if l.rate.PerSecond < 0 || overSocket(r) {
		return nil
	}
	now := l.now()
	b := l.bucket(who, now)
	if b.AllowN(now, 1) {
		return nil
	}
	wait := time.Duration((1 - b.TokensAt(now)) / l.rate.PerSecond * float64(time.Second))
	return &belay.Error{
		Code: belay.CodeRateLimited, Message: "too many requests from one caller; wait as Retry-After says",
		RetryAfter: max(wait, time.Millisecond),
	}
}

func (l *limits) bucket(who string, now time.Time) *bucket {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[who]
	if b == nil {
		if len(l.buckets) >= maxBuckets {
			l.forgetLocked(now)
		}
		b = &bucket{Limiter: rate.NewLimiter(rate.Limit(l.rate.PerSecond), l.rate.Burst)}
		l.buckets[who] = b
	}
	b.used = now
	return b
}

// forgetLocked makes room: those who were quiet go, and if none was, all.
func (l *limits) forgetLocked(now time.Time) {
	for who, b := range l.buckets {
		if now.Sub(b.used) > idle {
			delete(l.buckets, who)
		}
	}
	if len(l.buckets) >= maxBuckets {
		clear(l.buckets)
	}
}
