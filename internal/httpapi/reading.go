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
	// PageRoom is how many bytes logChunks chunks take, together with the text that is written for
	// them.
	PageRoom = 3 * logChunks * belay.MaxChunk / 2
	// readingRoom is how many bytes all readers of logs have in memory together.
	readingRoom = 64 << 20
	// readingWait is how long a reader waits for the room of others.
	readingWait = 30 * time.Second
)

// Reading is the memory, called room, that the readers of logs share. A reader takes some room
// while it has a part of a log in memory, and none while it waits for more of the log. A single
// caller has at most half of the room, however slowly it reads.
type Reading struct {
	all *room

	mu sync.Mutex
	of map[string]*room
}

// NewReading makes a Reading with all of its room free.
func NewReading() *Reading {
	return &Reading{all: newRoom(readingRoom), of: make(map[string]*room)}
}

// Take waits for room for n bytes, for the caller of the request in ctx. The caller must call give
// when the bytes are no longer in memory. The error is CodeUnavailable if others use the room for
// too long.
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

// own returns the room of one caller, and counts one more user of it.
func (r *Reading) own(who string) *room {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.of[who]
	if own == nil {
		own = newRoom(readingRoom / 2)
		r.of[who] = own
	}
	own.users++
	return own
}

// leave counts one user less of a caller's room, and forgets a room without users.
func (r *Reading) leave(who string, own *room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(r.of, who)
	}
}
