package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	EventBegin            EventKind = "begin"                 // a swap has written its marker
	EventPreemptRequested EventKind = "preempt_requested"     // a swap has written the signal file of a workflow
	EventGranted          EventKind = "granted"               // no workflow of another recipe is left
	EventDone             EventKind = "done"                  // the swap has ended successfully
	EventFailed           EventKind = "failed"                // the swap has ended without success; Reason says why
	EventOrphanCleared    EventKind = "orphan_marker_cleared" // the marker of a lost holder was removed
	EventQuarantined      EventKind = "quarantined"           // the state file was damaged
	EventRepaired         EventKind = "repaired"              // an operator has declared the damage as repaired
)

// Event is a line of swap_log.jsonl.
type Event struct {
	// At is the system time of the process that wrote the event.
	At   time.Time `json:"at"`
	Kind EventKind `json:"event"`
	// Swap is the id of the swap.
	Swap          string `json:"swap,omitempty"`
	TargetRecipe  string `json:"target_recipe,omitempty"`
	HolderPID     int    `json:"holder_pid,omitempty"`
	HolderStartNS uint64 `json:"holder_start_ns,omitempty"`
	// Workflow is the workflow that was asked to yield.
	Workflow string `json:"workflow,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// tailBytes is how much of the end of the log is read to find the last event. It is longer than the
// longest event that this package writes.
const tailBytes = 64 << 10

// maxText is the length of the longest text in an event, in bytes.
const maxText = 1000

// clip returns the first bytes of a text, at most n.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// append writes an event to the log, durably. The caller has the lock. If the log is long, append
// first renames it, so that there are at most two files.
func (c *change) append(e Event) error {
	e.At = c.r.wall().UTC().Truncate(time.Microsecond)
	for _, text := range []*string{&e.Swap, &e.TargetRecipe, &e.Workflow, &e.Reason} {
		*text = clip(*text, maxText) // other programs may have written long texts into the state file
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, size, err := c.openLog()
	if err != nil {
		return err
	}
	if err = c.dir.before("write", logName); err == nil {
		_, err = f.WriteAt(append(line, '\n'), size)
	}
	if err == nil {
		err = c.dir.before("sync", logName)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil { // remove a part of the line, which would be no event
		err = errors.Join(err, f.Truncate(size))
	}
	return errors.Join(err, f.Close())
}

// openLog opens the log for the next event, which begins at the offset size: after the last
// complete line. A part of a line is the rest of a write that was interrupted.
func (c *change) openLog() (f *os.File, size int64, err error) {
	f, err = c.dir.open(logName, unix.O_RDWR)
	if err == nil {
		size, err = complete(f)
		if err == nil && size < c.r.maxLog {
			return f, size, nil
		}
		_ = f.Close()
		if err == nil {
			err = c.dir.rename(logName, oldLogName)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, err
	}
	if f, err = c.dir.open(logName, unix.O_RDWR|unix.O_CREAT); err != nil {
		return nil, 0, err
	}
	if err := c.dir.sync(); err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, 0, nil
}

// complete returns the offset after the last complete line of the log, and cuts off the rest.
func complete(f *os.File) (int64, error) {
	tail, from, err := tail(f)
	if err != nil {
		return 0, err
	}
	end := from + int64(bytes.LastIndexByte(tail, '\n')+1)
	if end == from+int64(len(tail)) {
		return end, nil
	}
	return end, f.Truncate(end)
}

// tail returns the end of a file, and the offset at which the result begins.
func tail(f *os.File) (data []byte, from int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	from = max(0, info.Size()-tailBytes)
	data = make([]byte, info.Size()-from)
	n, err := f.ReadAt(data, from)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], from, err
}

// ended reports whether the last event of the log is an end of this swap. Such an event is the last
// one until the marker is removed, since no other swap can write events before that.
func (c *change) ended(swap string) (bool, error) {
	for _, name := range []string{logName, oldLogName} {
		f, err := c.dir.open(name, unix.O_RDONLY)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		data, _, err := tail(f)
		_ = f.Close()
		if err != nil {
			return false, fmt.Errorf("read %s: %w", f.Name(), err)
		}
		data = data[:bytes.LastIndexByte(data, '\n')+1]
		if len(data) == 0 {
			continue
		}
		last := data[bytes.LastIndexByte(data[:len(data)-1], '\n')+1:]
		var e Event
		if err := json.Unmarshal(last, &e); err != nil {
			e = Event{} // another program wrote the line
		}
		if e.Swap != swap {
			return false, nil
		}
		return e.Kind == EventDone || e.Kind == EventFailed || e.Kind == EventOrphanCleared, nil
	}
	return false, nil
}
