package engine

import "time"

// contents counts the commands of a batch.
type contents struct {
	all, clientWork, ends int
	began                 time.Time
	extra                 bool // the batch took more client work than the quota allows
}

func contentsOf(calls []*call) (f contents) {
	f.all = len(calls)
	for _, k := range calls {
		if k.class == clientWork {
			f.clientWork++
		}
		if k.ends {
			f.ends++
		}
	}
	return f
}

const (
	// largeClaim is the number of executions that a claim must win at once to show that its worker
	// has many free slots while work waits.
	largeClaim = 64
	// saturatedFor is how long after such a claim the quota applies, because the claim shows that
	// the server, and not the number of workers, limits the throughput.
	saturatedFor = time.Second
)

// quota limits client work while the server limits the throughput: workers have free slots, and
// executions wait for them. During that time, each submission that the server accepts costs time in
// which it could end a run. The quota therefore accepts five submissions for every four runs that
// end. Submissions beyond the quota get one eighth of the time.
type quota struct {
	until time.Time // the quota applies until this time
	left  int       // submissions that may be accepted for runs that have ended
	extra time.Time // from this time on a batch may exceed the quota
}

// noteLargeClaim starts the quota when a claim has won many executions, one for each of its slots.
func (c *committer) noteLargeClaim(won int) {
	if won < largeClaim {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quota.until = time.Now().Add(saturatedFor)
}

// roomLocked returns how many commands of client work the next batch may take. extra reports that
// the quota is used up, and that the batch may take these commands in excess of it.
func (c *committer) roomLocked() (room int, extra bool) {
	r, now := &c.quota, time.Now()
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

// chargeLocked counts the contents of a batch against the quota.
func (c *committer) chargeLocked(f *contents, extra bool) {
	r := &c.quota
	r.left = max(0, min(r.left+f.ends+f.ends/4-f.clientWork, c.max))
	if f.extra = extra && f.clientWork > 0; f.extra {
		f.began = time.Now()
		r.extra = f.began.Add(saturatedFor) // preliminary; delayExtraLocked sets the exact time
	}
}

// delayExtraLocked delays the next batch that exceeds the quota, so that such batches take one
// eighth of the time.
func (c *committer) delayExtraLocked(f contents) {
	if !f.extra {
		return
	}
	rest := min((share-1)*time.Since(f.began), saturatedFor)
	c.quota.extra = time.Now().Add(rest)
	time.AfterFunc(rest, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rouseLocked()
	})
}

// pace measures how fast batches take client work from the queue, while more client work waits than
// one batch takes. At other times the pace is unknown and not needed.
type pace struct {
	since time.Time
	n     int
	rate  float64 // per second; 0 while it is unknown
}

// paceOver is the time over which the pace is measured.
const paceOver = 250 * time.Millisecond

// took notes that a batch took n commands of client work and left the given number in the queue.
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

// wait is the estimated time until n commands have left the queue, 0 if the pace is unknown.
func (p *pace) wait(n int) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return time.Duration(float64(n) / p.rate * float64(time.Second))
}
