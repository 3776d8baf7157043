package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

const (
	// logChunks is how many chunks of a log are in memory at a time for one reader.
	logChunks = 4
	// PageBytes is how many bytes of memory a request needs for logChunks chunks and for the text
	// that it writes for them.
	PageBytes = 3 * logChunks * belay.MaxChunk / 2
	// readingBudget is how many bytes of logs are in memory at the same time for all readers
	// together.
	readingBudget = 64 << 20
	// readingWait is how long a reader waits for memory that other readers use.
	readingWait = 30 * time.Second
)

// Reading is the memory budget that all readers of logs share. A reader takes memory while it has a
// part of a log in memory, and none while it waits for more of the log. A single caller gets at
// most half of the budget, however slowly its clients read.
type Reading struct {
	all *budget

	mu sync.Mutex
	of map[string]*budget
}

// NewReading makes a Reading whose memory is all free.
func NewReading() *Reading {
	return &Reading{all: newBudget(readingBudget), of: make(map[string]*budget)}
}

// Take waits for n bytes of memory for the caller whose request is in ctx. The function that calls
// Take must call give when the bytes are no longer in memory. The error is CodeUnavailable if there
// is not enough free memory within readingWait.
func (r *Reading) Take(ctx context.Context, n int64) (give func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, readingWait)
	defer cancel()
	who := nameOf(ctx)
	own := r.own(who)
	giveOwn, err := own.wait(ctx, n)
	if err != nil {
		r.leave(who, own)
		return nil, err
	}
	giveAll, err := r.all.wait(ctx, n)
	if err != nil {
		giveOwn()
		r.leave(who, own)
		return nil, err
	}
	return func() {
		giveAll()
		giveOwn()
		r.leave(who, own)
	}, nil
}

// own returns the budget of one caller, and counts one more request that uses the budget.
func (r *Reading) own(who string) *budget {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.of[who]
	if own == nil {
		own = newBudget(readingBudget / 2)
		r.of[who] = own
	}
	own.users++
	return own
}

// leave counts one request less that uses a caller's budget, and deletes a budget that no request
// uses.
func (r *Reading) leave(who string, own *budget) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(r.of, who)
	}
}
