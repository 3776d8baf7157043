package engine

import (
	"slices"
	"time"

	"github.com/belaydev/belay/internal/machine"
)

const (
	// maxBytes is how many bytes of payloads one batch takes. A batch of eight
	// megabytes is written well within the time that a commit may take.
	maxBytes = 8 << 20
	// share is the part of a batch that each class is sure of, however much there is of
	// the classes before it: nothing that was accepted waits for ever.
	share = 8
)

// queue holds the commands that wait for a batch, each class in order of arrival.
type queue struct {
	calls [classes][]*call
	len   int
	ends  int // of runs
}

func (q *queue) add(now time.Time, calls ...*call) {
	for _, k := range calls {
		k.queued = now
		q.calls[k.class] = append(q.calls[k.class], k)
		if k.ends {
			q.ends++
		}
	}
	q.len += len(calls)
}

// back puts calls at the head of the queue, where they were before.
func (q *queue) back(now time.Time, calls ...*call) {
	first := queue{}
	first.add(now, calls...)
	for c := range first.calls {
		if len(first.calls[c]) > 0 {
			q.calls[c] = append(first.calls[c], q.calls[c]...)
		}
	}
	q.len += len(calls)
	q.ends += first.ends
}

// urgent is how many keep sessions alive.
func (q *queue) urgent() int { return len(q.calls[alive]) }

// age is how long the oldest of a class has waited.
func (q *queue) age(c class, now time.Time) time.Duration {
	if len(q.calls[c]) == 0 {
		return 0
	}
	return now.Sub(q.calls[c][0].queued)
}

// order puts each class in another order than that of arrival.
func (q *queue) order(less func(a, b machine.Command) int) {
	for _, calls := range q.calls {
		slices.SortStableFunc(calls, func(a, b *call) int { return less(a.command, b.command) })
	}
}

// take gives a batch of at most so many of the classes from first to last, the most
// urgent first, and all of a class in its order. Of each class there is something in
// it, if anything waits; of what is asked for no more than fits beside owners.
func (q *queue) take(most, beside int, first, last class) []*call {
	var batch []*call
	bytes := 0
	for c := first; c <= last; c++ {
		if c == asked && beside == 0 {
			break
		}
		room, space := most-len(batch), maxBytes-bytes
		for after := c + 1; after <= last; after++ {
			if n := len(q.calls[after]); n > 0 {
				room -= min(n, max(1, most/share))
				space -= maxBytes / share
			}
		}
		if c == asked {
			room = min(room, beside)
		}
		n, size := q.fit(c, max(room, 1), space)
		batch = append(batch, q.calls[c][:n]...)
		bytes += size
		q.drop(c, n)
		if len(batch) >= most {
			break
		}
	}
	return batch
}

// fit is how many of a class fit into so much room and so many bytes, and how many
// bytes they have. The first always fits.
func (q *queue) fit(c class, room, space int) (n, bytes int) {
	for _, k := range q.calls[c] {
		size := sizeOf(k.command)
		if n == room || n > 0 && bytes+size > space {
			break
		}
		n++
		bytes += size
	}
	return n, bytes
}

// drop takes the first n of a class out.
func (q *queue) drop(c class, n int) {
	q.ends -= freightOf(q.calls[c][:n]).ends
	clear(q.calls[c][:n:n]) // the batch has them now
	if q.calls[c] = q.calls[c][n:]; len(q.calls[c]) == 0 {
		q.calls[c] = nil
	}
	q.len -= n
}
