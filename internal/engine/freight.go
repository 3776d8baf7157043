package engine

import "time"

// freight is what is in a batch.
type freight struct {
	all, asked, ends int
	began            time.Time
	extra            bool // more was taken of what is asked for than ends allow
}

func freightOf(calls []*call) (f freight) {
	f.all = len(calls)
	for _, k := range calls {
		if k.class == asked {
			f.asked++
		}
		if k.ends {
			f.ends++
		}
	}
	return f
}

const (
	// plenty is how many executions a claim wins at once whose worker has its hands free
	// while work for it waits.
	plenty = 64
	// hungry is for how long that says something about what limits the server.
	hungry = time.Second
)

// ration bounds what is accepted while workers with free hands have more to do than they
// get to: then the server can do no more, and what it accepts beyond what it ends costs
// the time in which it could end as much. For five submissions four runs must have ended.
// Beyond that they get their share of the time.
type ration struct {
	until time.Time // it is in force
	left  int       // how many may be accepted for what has ended
	extra time.Time // from when on some may be beyond that
}

// hungry notes that a worker won all it could take, and how much that was.
func (c *committer) hungry(won int) {
	if won < plenty {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ration.until = time.Now().Add(hungry)
}

// roomLocked is how much of what is asked for the next batch may take, and whether that
// is beyond what ends allow.
func (c *committer) roomLocked() (room int, extra bool) {
	r, now := &c.ration, time.Now()
	switch left := r.left + c.queue.ends + c.queue.ends/4; {
	case c.stopped || !r.until.After(now):
		return c.max, false
	case left > 0:
		return left, false
	case !r.extra.After(now):
		return max(1, c.max/share), true
	}
	return 0, false
}

// spendLocked notes what a batch took.
func (c *committer) spendLocked(f *freight, extra bool) {
	r := &c.ration
	r.left = max(0, min(r.left+f.ends+f.ends/4-f.asked, c.max))
	if f.extra = extra && f.asked > 0; f.extra {
		f.began = time.Now()
		r.extra = f.began.Add(hungry) // until its end, which says more
	}
}

// restLocked lets so much time pass after what was extra that it had its share.
func (c *committer) restLocked(f freight) {
	if !f.extra {
		return
	}
	rest := min((share-1)*time.Since(f.began), hungry)
	c.ration.extra = time.Now().Add(rest)
	time.AfterFunc(rest, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rouseLocked()
	})
}

// pace is how fast what is asked for gets its turn, while more of it waits than one batch
// takes. Otherwise nobody knows, and nobody needs to.
type pace struct {
	since time.Time
	n     int
	rate  float64 // a second; 0 while it is unknown
}

// paceOver is over what time the pace is measured.
const paceOver = 250 * time.Millisecond

// took notes that a batch took n and left so many.
func (p *pace) took(now time.Time, n, left int) {
	if left == 0 {
		*p = pace{}
		return
	}
	if p.since.IsZero() {
		p.since = now
		return
	}
	p.n += n
	if d := now.Sub(p.since); d >= paceOver {
		*p = pace{since: now, rate: float64(p.n) / d.Seconds()}
	}
}

// wait is how long it takes until so many had their turn, 0 if nobody knows.
func (p *pace) wait(n int) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return time.Duration(float64(n) / p.rate * float64(time.Second))
}
