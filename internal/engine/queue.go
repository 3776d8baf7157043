package engine

import (
	"slices"
	"time"

	"github.com/belaydev/belay/internal/machine"
)

const (
	// maxBytes is the maximum number of payload bytes in one batch. A batch of eight megabytes is
	// written well within the time that a commit may take.
	maxBytes = 8 << 20
	// share is the divisor for the part of a batch that is reserved for each class: one eighth. So
	// no accepted command waits for ever behind commands of more urgent classes.
	share = 8
)

// queue has the commands that wait for a batch, each class in order of arrival.
type queue struct {
	calls [classes][]*call
	len   int
	ends  int // number of commands that end a run
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

// back returns calls that were taken from the queue to the head of the queue.
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

// urgent is the number of queued commands that keep sessions alive.
func (q *queue) urgent() int { return len(q.calls[alive]) }

// age is how long the oldest call of a class has waited.
func (q *queue) age(c class, now time.Time) time.Duration {
	if len(q.calls[c]) == 0 {
		return 0
	}
	return now.Sub(q.calls[c][0].queued)
}

// order sorts the calls of each class with less. Without order they stay in order of arrival.
func (q *queue) order(less func(a, b machine.Command) int) {
	for _, calls := range q.calls {
		slices.SortStableFunc(calls, func(a, b *call) int { return less(a.command, b.command) })
	}
}

// take returns a batch of calls of the classes from first to last: the most urgent class first, and
// each class in its order. The parameter most is the maximum number of calls, and mostClientWork is
// the maximum number of calls of client work. Except for this limit, each class with waiting calls
// has at least one call in the batch.
func (q *queue) take(most, mostClientWork int, first, last class) []*call {
	var batch []*call
	bytes := 0
	for c := first; c <= last; c++ {
		if c == clientWork && mostClientWork == 0 {
			break
		}
		room, space := most-len(batch), maxBytes-bytes
		for after := c + 1; after <= last; after++ {
			if n := len(q.calls[after]); n > 0 {
				room -= min(n, max(1, most/share))
				space -= maxBytes / share
			}
		}
		if c == clientWork {
			room = min(room, mostClientWork)
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

// fit returns how many calls of a class fit into a part of a batch with at most the given number of
// calls and of payload bytes, and how many bytes these calls have. The first call always fits.
func (q *queue) fit(c class, mostCalls, mostBytes int) (n, bytes int) {
	for _, k := range q.calls[c] {
		size := sizeOf(k.command)
		if n == mostCalls || n > 0 && bytes+size > mostBytes {
			break
		}
		n++
		bytes += size
	}
	return n, bytes
}

// drop removes the first n calls of a class.
func (q *queue) drop(c class, n int) {
	q.ends -= contentsOf(q.calls[c][:n]).ends
	clear(q.calls[c][:n:n]) // so that the queue does not keep them in memory
	if q.calls[c] = q.calls[c][n:]; len(q.calls[c]) == 0 {
		q.calls[c] = nil
	}
	q.len -= n
}
