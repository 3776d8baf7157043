package engine

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belaydev/belay"
)

// statusWindow has the newest changes of states, for all followers together: a follower is a position
// in the window. So a slow follower takes no memory and delays no other follower. A follower whose
// position the window does not have any more gets a snapshot.
type statusWindow struct {
	most, mostBytes int

	mu      sync.Mutex
	epoch   uint64 // another one after each loss: positions of an earlier epoch are not valid
	base    int64  // number of changes of this epoch before the first entry
	entries []*statusEntry
	labeled map[label][]*statusEntry // the entries whose executions have the label, in their order
	bytes   int
	changed chan struct{} // closed when there is something new
}

const (
	// windowChanges and windowBytes limit the window.
	windowChanges = 1 << 16
	windowBytes   = 32 << 20
)

// statusEntry is a change. It is never changed, since followers share it.
type statusEntry struct {
	belay.Status
	n        int64  // number of changes of the epoch up to this one
	position string // after the change
	size     int
	added    time.Time
}

// statusPosition is a place between two changes of an epoch.
type statusPosition struct {
	epoch uint64
	n     int64 // number of changes before the position
}

// String returns the form in which clients get the position.
func (p statusPosition) String() string { return fmt.Sprintf("%016x.%d", p.epoch, p.n) }

// parseStatusPosition reads a position. ok is false if the text is none.
func parseStatusPosition(text string) (p statusPosition, ok bool) {
	epoch, n, dot := strings.Cut(text, ".")
	if !dot || len(epoch) != 16 || len(n) > 19 || n == "" || n[0] < '0' || n[0] > '9' {
		return p, false
	}
	var err error
	if p.epoch, err = strconv.ParseUint(epoch, 16, 64); err != nil {
		return p, false
	}
	p.n, err = strconv.ParseInt(n, 10, 64)
	return p, err == nil && p.String() == text
}

func newStatusWindow(most int) *statusWindow {
	if most == 0 {
		most = windowChanges
	}
	w := &statusWindow{most: most, mostBytes: windowBytes, changed: make(chan struct{})}
	w.clear()
	return w
}

// clear begins a new epoch: every follower gets a snapshot.
func (w *statusWindow) clear() {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch = binary.BigEndian.Uint64(b[:])
	w.base, w.bytes, w.entries, w.labeled = 0, 0, nil, make(map[label][]*statusEntry)
	w.tellLocked()
}

func (w *statusWindow) tellLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// add appends changes and drops the oldest ones beyond the limits.
func (w *statusWindow) add(all []belay.Status) {
	if len(all) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, s := range all {
		n := w.base + int64(len(w.entries)) + 1
		e := &statusEntry{s, n, statusPosition{w.epoch, n}.String(), statusSize(&s), now}
		w.entries = append(w.entries, e)
		for name, value := range s.Labels {
			l := label{name, value}
			w.labeled[l] = append(w.labeled[l], e)
		}
		w.bytes += e.size
	}
	drop := 0
	for ; len(w.entries)-drop > w.most || w.bytes > w.mostBytes && drop < len(w.entries); drop++ {
		w.bytes -= w.entries[drop].size
		w.unlabelLocked(w.entries[drop])
		w.entries[drop] = nil
	}
	w.entries = w.entries[drop:]
	w.base += int64(drop)
	w.tellLocked()
}

// unlabelLocked removes the oldest entry from the lists of its labels.
func (w *statusWindow) unlabelLocked(e *statusEntry) {
	for name, value := range e.Labels {
		l := label{name, value}
		if list := w.labeled[l]; len(list) > 1 {
			list[0] = nil
			w.labeled[l] = list[1:]
		} else {
			delete(w.labeled, l)
		}
	}
}

// statusSize is the approximate size of a status in memory, in bytes.
func statusSize(s *belay.Status) int {
	n := 400
	for name, value := range s.Labels {
		n += 96 + len(name) + len(value)
	}
	return n
}

// end returns the position after the newest change.
func (w *statusWindow) end() statusPosition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.endLocked()
}

func (w *statusWindow) endLocked() statusPosition {
	return statusPosition{w.epoch, w.base + int64(len(w.entries))}
}

// after returns up to most changes after a position, and the position after them. If labels are given, it
// leaves out changes of executions that lack one of them, perhaps not all of those changes. If there are
// none yet, it returns a channel that is closed when there may be some. gap, if not empty, is the reason
// why the window does not have all changes after the position.
func (w *statusWindow) after(p statusPosition, most int, labels ...label) (
	all []*statusEntry, next statusPosition, changed <-chan struct{}, gap belay.SnapshotCause,
) {
	w.mu.Lock()
	defer w.mu.Unlock()
	end := w.endLocked()
	switch {
	case p.epoch != end.epoch || p.n > end.n:
		return nil, p, nil, belay.SnapshotLost
	case p.n < w.base:
		return nil, p, nil, belay.SnapshotBehind
	}
	from := w.entries[p.n-w.base:]
	for i, l := range labels {
		if list := w.labeled[l]; i == 0 || len(list) < len(from) {
			from = list
		}
	}
	if len(labels) > 0 {
		after := func(e *statusEntry, n int64) int { return cmp.Compare(e.n, n) }
		first, _ := slices.BinarySearchFunc(from, p.n+1, after)
		from = from[first:]
	}
	if len(from) > most {
		from = from[:most]
		end.n = from[most-1].n
	}
	return slices.Clone(from), end, w.changed, ""
}
