package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

const (
	// logChunks is how many chunks of a log are held at a time for one reader.
	logChunks = 4
	// PageRoom is the room that they take, and what is written of them.
	PageRoom = 3 * logChunks * belay.MaxChunk / 2
	// readingRoom is how much all readers of logs hold together.
	readingRoom = 64 << 20
	// readingWait is how long a reader waits for others.
	readingWait = 30 * time.Second
)

// Reading is the room in memory that readers of logs share: each holds some of it while
// it has a part of a log, and none while it waits for more. One caller has half of it at
// most, however slowly it reads.
type Reading struct {
	all *room

	mu sync.Mutex
	of map[string]*room
}

// NewReading makes the room.
func NewReading() *Reading {
	return &Reading{all: newRoom(readingRoom), of: make(map[string]*room)}
}

// Take waits for room for n bytes for the caller whose request ctx is of. give must be
// called when they are not held any more. CodeUnavailable if others are in the way for
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

// own is the room of one caller, who is about to use it.
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

// leave forgets the room of a caller who does not use it any more.
func (r *Reading) leave(who string, own *room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own.users--; own.users == 0 {
		delete(r.of, who)
	}
}
