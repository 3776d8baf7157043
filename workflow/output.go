package workflow

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/run"
)

// flushDelay is how long output may stay in the buffer before it is stored.
const flushDelay = 200 * time.Millisecond

// logHead is the number of bytes at the beginning of a log that are never dropped.
const logHead = 1 << 20

// Log is a writer that stores its data as a log of the execution. Its methods are safe for
// concurrent use.
type Log struct {
	r    *run.Run
	name string

	mu     sync.Mutex
	buf    []byte
	timer  *time.Timer
	armed  bool
	err    error
	closed bool

	// storing is locked while a chunk is stored. A goroutine that needs both locks must lock
	// storing before mu.
	storing sync.Mutex
	opened  bool
	kept    kept
}

// Output opens a log of the execution. Written output is stored when it has belay.MaxChunk bytes,
// or after a fifth of a second. Close the log to store the rest. A later run appends to the log of
// the previous run. Open a log of the same name only once in a run. The store keeps the first MiB
// and the newest part of a log, belay.MaxLog bytes in all. Each stored chunk counts as progress.
//
// While the worker cannot reach the store, Write blocks when a chunk is full.
func Output(ctx context.Context, name string) *Log {
	l := &Log{r: run.From(ctx), name: name}
	if l.r == nil {
		l.err = run.ErrNoRun
	}
	return l
}

// Write appends p to the log. The log stores its data chunk by chunk. If storing a chunk fails, this
// Write or the next Write returns the error, and so does every later Write.
func (l *Log) Write(p []byte) (int, error) {
	n := 0
	for {
		l.mu.Lock()
		if err := l.errLocked(); err != nil {
			l.mu.Unlock()
			return n, err
		}
		room := min(belay.MaxChunk-len(l.buf), len(p)-n)
		l.buf = append(l.buf, p[n:n+room]...)
		n += room
		full := len(l.buf) == belay.MaxChunk
		if !full {
			l.armLocked()
		}
		l.mu.Unlock()
		if full {
			if err := l.Flush(); err != nil {
				return n, err
			}
		}
		if n == len(p) {
			return n, nil
		}
	}
}

func (l *Log) errLocked() error {
	if l.err == nil && l.closed {
		return errors.New("write to log " + l.name + ": it is closed")
	}
	return l.err
}

func (l *Log) armLocked() {
	if l.armed || len(l.buf) == 0 {
		return
	}
	l.armed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(flushDelay, func() { _ = l.Flush() }) // the next Write returns the error
		return
	}
	l.timer.Reset(flushDelay)
}

// Flush stores the output that was written so far.
func (l *Log) Flush() error {
	l.storing.Lock()
	defer l.storing.Unlock()
	l.mu.Lock()
	data, err := l.buf, l.err
	l.buf, l.armed = nil, false
	l.mu.Unlock()
	if len(data) == 0 || err != nil {
		return err
	}
	if err = l.store(data); err != nil {
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
	}
	return err
}

// Close stores the rest of the output. A Write after Close returns an error.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	return l.Flush()
}

func (l *Log) store(data []byte) error {
	if !l.opened {
		if err := l.open(); err != nil {
			return err
		}
		l.opened = true
	}
	c := belay.Chunk{Name: l.name, N: l.kept.next, Data: data}
	c.DropFrom, c.DropTo = l.kept.add(int64(len(data)))
	return l.r.Append(c)
}

// open finds the end of the log that earlier runs of the execution wrote.
func (l *Log) open() error {
	if first(l.r) {
		return nil
	}
	return eachChunk(l.r, l.name, func(c belay.StoredChunk) {
		l.kept.next = c.N
		l.kept.add(int64(len(c.Data)))
	})
}

// kept describes the chunks of a log that the store keeps.
type kept struct {
	next int64 // the number of the next chunk
	head int64 // number of bytes in the chunks that are never dropped
	tail []sized
	size int64 // number of bytes in tail
}

type sized struct{ n, size int64 }

// add counts a new chunk of the given size, and returns the range of old chunks that must be
// dropped so that the log does not exceed its limit.
func (k *kept) add(size int64) (dropFrom, dropTo int64) {
	n := k.next
	k.next++
	if k.head < logHead {
		k.head += size
		return 0, 0
	}
	k.tail = append(k.tail, sized{n, size})
	k.size += size
	drop := 0
	for k.head+k.size > belay.MaxLog && drop < len(k.tail)-1 {
		k.size -= k.tail[drop].size
		drop++
	}
	if drop == 0 {
		return 0, 0
	}
	dropFrom, dropTo = k.tail[0].n, k.tail[drop].n
	k.tail = append(k.tail[:0], k.tail[drop:]...)
	return dropFrom, dropTo
}

// first reports whether this is the first run of its execution, so that no earlier run can have
// stored output.
func first(r *run.Run) bool { return r.Assignment().First }

// eachChunk calls each with every stored chunk of the log or artifact name.
func eachChunk(r *run.Run, name string, each func(belay.StoredChunk)) error {
	const page = 64
	for from := int64(0); ; {
		chunks, err := r.Chunks(name, from, page)
		if err != nil {
			return err
		}
		for _, c := range chunks {
			each(c)
			from = c.N + 1
		}
		if len(chunks) < page {
			return nil
		}
	}
}
