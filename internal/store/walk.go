package store

import (
	"bytes"
	"encoding/binary"
	"sync"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/machine"
)

// Stretch is a part of the executions in the order of their ids: of the executions whose ids are
// greater than From and at most To, the first Rows executions.
type Stretch struct {
	From, To belay.ExecutionID
	Rows     int
	// Forgotten says that only the trees whose roots are marked as being deleted are deleted.
	Forgotten bool
}

// Walk is the position of a store's search for executions whose retention is over. The search
// goes through the executions in the order of their ids, which is about the order of their
// creation. So the store keeps no index for it, and the end of an execution costs nothing extra.
//
// In a small store each pass goes through all executions. In a large store a pass leaves out the
// executions that, by the time in their ids, were created after the time given to Prune, because
// they cannot have ended before that time. But clients choose the ids, and the time in an id may be
// wrong, so each pass also examines a part of these late executions.
type Walk struct {
	mu      sync.Mutex
	at      belay.ExecutionID // the position of the pass among the executions that are not late
	strides int               // number of stretches of this pass with nothing to delete
	large   bool
	late    bool              // the pass has reached the late executions, whose ids have a time after the given time
	latest  belay.ExecutionID // the position among the late executions
}

// stride is the number of rows in a stretch, and lateStride is the number of rows in a stretch of
// late executions. If a pass finds nothing to delete in more than fewStrides stretches, the store
// counts as large.
const (
	stride     = 20_000
	lateStride = 2_000
	fewStrides = 2
)

var lastID = belay.ExecutionID(bytes.Repeat([]byte{0xff}, 16))

// Next returns the next stretch to examine.
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

// Went notes the result of the search in a stretch, and reports whether the pass continues.
func (w *Walk) Went(s Stretch, f *Felled) (more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late {
		if w.late, w.latest = false, f.Next; !f.More {
			w.latest = belay.ExecutionID{} // the next pass begins again at the first late execution
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

// begunAt returns the smallest UUIDv7 of the time t.
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
