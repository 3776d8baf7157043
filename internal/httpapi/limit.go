package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/belaydev/belay"
)

// maxBuckets limits how many callers the server remembers, each with a bucket of requests that the
// caller may still send (token bucket).
const maxBuckets = 10_000

// limits counts the requests of each caller.
type limits struct {
	rate Rate
	most int // how many requests of a caller may wait at the same time; 0 means any number
	now  func() time.Time

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
	waiting map[string]int
}

func newLimits(r Rate, most int, now func() time.Time) *limits {
	if r.Burst == 0 {
		r.Burst = int(2*r.PerSecond) + 1
	}
	return &limits{
		rate: r, most: most, now: now, buckets: make(map[string]*rate.Limiter), waiting: make(map[string]int),
	}
}

// wait counts a request of a caller that may take long, until leave is called. It refuses the
// request if the caller has too many such requests.
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

// quota is what the rate limit leaves to a caller.
type quota struct {
	limit, left int
	full        time.Duration // the time until the whole limit is available again
}

// headers tells the caller its quota; without a limit it sets no header.
func (q quota) headers(h http.Header) {
	if q.limit == 0 {
		return
	}
	h.Set("RateLimit-Limit", strconv.Itoa(q.limit))
	h.Set("RateLimit-Remaining", strconv.Itoa(q.left))
	h.Set("RateLimit-Reset", strconv.FormatInt(int64((q.full+time.Second-1)/time.Second), 10))
}

// take counts a request of a caller, and refuses it if there were too many. It stores the caller's
// quota in the request.
func (l *limits) take(r *http.Request, who string, in *admitted) error {
	if l.rate.PerSecond < 0 || overSocket(r) {
		return nil
	}
	now := l.now()
	b := l.bucket(who, now)
	allowed := b.AllowN(now, 1)
	left := b.TokensAt(now)
	in.quota = quota{
		l.rate.Burst, max(0, int(left)),
		time.Duration((float64(l.rate.Burst) - left) / l.rate.PerSecond * float64(time.Second)),
	}
	if allowed {
		return nil
	}
	wait := time.Duration((1 - left) / l.rate.PerSecond * float64(time.Second))
	return &belay.Error{
		Code: belay.CodeRateLimited, Message: "too many requests from one caller; wait as Retry-After says",
		RetryAfter: max(wait, time.Millisecond),
	}
}

func (l *limits) bucket(who string, now time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[who]
	if b == nil {
		if len(l.buckets) >= maxBuckets {
			l.forgetLocked(now)
		}
		b = rate.NewLimiter(rate.Limit(l.rate.PerSecond), l.rate.Burst)
		l.buckets[who] = b
	}
	return b
}

// forgetLocked makes room for new callers: it deletes the buckets of the callers whose whole quota
// is available, because a new bucket would give them the same quota. If that is not enough, as in a
// flood from many addresses, it deletes other buckets at random until a tenth of maxBuckets is
// free. The quotas of the remaining callers stay as they are.
func (l *limits) forgetLocked(now time.Time) {
	for who, b := range l.buckets {
		if b.TokensAt(now) >= float64(l.rate.Burst) {
			delete(l.buckets, who)
		}
	}
	for who := range l.buckets {
		if len(l.buckets) <= maxBuckets-maxBuckets/10 {
			break
		}
		delete(l.buckets, who)
	}
}
