package store

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Stretch is a part of the executions in the order of their ids: After is not part of
// it, and it has at most so many rows.
type Stretch struct {
	From, To belay.ExecutionID
	Rows     int
}

// Walk is where a store's search for what retention may delete stands. It goes through
// the executions in the order of their ids, which is about that in which they began: so
// that nothing has to be kept for it, and no execution pays for its end.
//
// While there are few it goes through all of them. In a large store those that began
// after the moment, which cannot have ended before it, are left out. But ids are the
// clients' to choose, so that of these too a part is looked at with every pass.
type Walk struct {
	mu      sync.Mutex
	at      belay.ExecutionID // in this pass
	strides int               // long ones in this pass
	large   bool
	late    bool              // it is among those that began after the moment, by their ids
	latest  belay.ExecutionID // up to where it came there
}

// The rows of a stretch, and of one among those that began after the moment; and after
// how many stretches a store is large.
const (
	stride     = 20_000
	lateStride = 2_000
	fewStrides = 2
)

var lastID = belay.ExecutionID(bytes.Repeat([]byte{0xff}, 16))

// Next is where to look next.
func (w *Walk) Next(before machine.Time) Stretch {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.late:
		return Stretch{From: max16(w.latest, begunAt(before)), To: lastID, Rows: lateStride}
	case w.large:
		return Stretch{From: w.at, To: begunAt(before), Rows: stride}
	}
	return Stretch{From: w.at, To: lastID, Rows: stride}
}

// Went notes what came of that, and reports whether the pass goes on.
func (w *Walk) Went(s Stretch, f *Felled) (more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late {
		if w.late, w.latest = false, f.Next; !f.More {
			w.latest = belay.ExecutionID{} // it begins anew
		}
		w.at, w.strides = belay.ExecutionID{}, 0
		return false
	}
	if w.at = f.Next; f.More {
		if f.Nothing() && len(f.Large) == 0 {
			w.strides++
		}
		w.large = w.large || w.strides > fewStrides
		return true
	}
	if w.large {
		w.late = true
		return true
	}
	w.at, w.strides = belay.ExecutionID{}, 0
	return false
}

// begunAt is the first id of those that were made at a moment, as a UUIDv7.
func begunAt(t machine.Time) (id belay.ExecutionID) {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(0, int64(t)/int64(time.Millisecond/time.Microsecond))))
	copy(id[:6], ms[2:])
	return id
}

func max16(a, b belay.ExecutionID) belay.ExecutionID {
	if a.Compare(b) > 0 {
		return a
	}
	return b
}
