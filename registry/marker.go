package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// Marker is the marker of a swap in progress.
type Marker struct {
	// ID is unique among the swaps of a registry.
	ID string
	// TargetRecipe is the mode to which the swap changes the resource.
	TargetRecipe string
	// Holder is the process that carries out the swap.
	Holder Process
	// StartedAt is when the swap began, and GrantedAt when no workflow of another recipe was left,
	// by the system time. GrantedAt is zero while the swap waits.
	StartedAt, GrantedAt time.Time
}

// marker is the JSON form of a Marker.
type marker struct {
	ID                 string    `json:"id,omitempty"`
	TargetRecipe       string    `json:"target_recipe"`
	HolderPID          int       `json:"holder_pid"`
	HolderStartNS      uint64    `json:"holder_start_ns"`
	HolderBootID       string    `json:"holder_boot_id,omitempty"`
	HolderPIDNamespace uint64    `json:"holder_pid_namespace,omitempty"`
	StartedAt          time.Time `json:"started_at"`
	GrantedAt          time.Time `json:"granted_at,omitzero"`
}

// MarshalJSON returns the form that docs/registry.md describes.
func (m Marker) MarshalJSON() ([]byte, error) {
	return json.Marshal(marker{
		ID: m.ID, TargetRecipe: m.TargetRecipe, HolderPID: m.Holder.PID, HolderStartNS: m.Holder.StartNS,
		HolderBootID: m.Holder.BootID, HolderPIDNamespace: m.Holder.PIDNamespace,
		StartedAt: m.StartedAt.UTC(), GrantedAt: m.GrantedAt.UTC(),
	})
}

// UnmarshalJSON reads the form that docs/registry.md describes.
func (m *Marker) UnmarshalJSON(data []byte) error {
	var j marker
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	*m = Marker{
		ID: j.ID, TargetRecipe: j.TargetRecipe, StartedAt: j.StartedAt, GrantedAt: j.GrantedAt,
		Holder: Process{j.HolderPID, j.HolderStartNS, j.HolderBootID, j.HolderPIDNamespace},
	}
	return nil
}

// id returns the id of the swap, also if another program has written a marker without an id.
func (m Marker) id() string {
	if m.ID != "" {
		return m.ID
	}
	return fmt.Sprintf("%d-%d-%d", m.Holder.PID, m.Holder.StartNS, m.StartedAt.UnixNano())
}

func (m Marker) event(kind EventKind) Event {
	return Event{
		Kind: kind, Swap: m.id(), TargetRecipe: m.TargetRecipe, HolderPID: m.Holder.PID,
		HolderStartNS: m.Holder.StartNS,
	}
}

// reconcile removes the marker of a swap whose holder has lost the lock .swap.lock or is proven to
// have ended, and the signals that this swap has sent. While a process has the lock, only that
// proof removes the marker: the holder may be in a container with another boot id or PID namespace.
//
// It writes the event first: if this process is killed before it has removed the marker, the next
// reconcile finds the event and writes no second one.
func (c *change) reconcile() error {
	m := c.doc.Swap
	if m == nil {
		return nil
	}
	free, err := c.swapLockFree()
	if err != nil || !free && !m.Holder.ended(c.r.self) {
		return err
	}
	c.doc.Swap = nil // also for a caller that only reads and ignores the error
	ended, err := c.ended(m.id())
	if err != nil {
		return err
	}
	if !ended {
		if err := c.append(m.event(EventOrphanCleared)); err != nil {
			return err
		}
	}
	if err := c.withdraw(m.TargetRecipe); err != nil {
		return err
	}
	return c.save()
}

// swapLockFree reports whether no process has the lock .swap.lock. The lock is only tried while
// this process has the lock .workflows.lock, so that a try never disturbs the beginning of a swap.
func (c *change) swapLockFree() (bool, error) {
	f, err := c.dir.open(swapName, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) { // only the beginning of a swap makes the file
		return true, nil
	}
	if err != nil {
		return false, err
	}
	free, err := tryFlock(f)
	if !free {
		return false, errors.Join(c.dir.failed("lock", swapName, err), f.Close())
	}
	return true, unlock(f)
}

// gate refuses a workflow while a swap to another recipe is in progress.
func (c *change) gate(recipe string) error {
	m := c.doc.Swap
	switch {
	case m == nil:
		return c.unmarked()
	case m.TargetRecipe == recipe:
		return nil
	}
	return c.busy(m)
}

// unmarked refuses a change while a process has the lock .swap.lock without a marker, so that the
// target of its swap is not known. The marker may have been lost with the state file, or the
// command of a swap whose holder was killed has not ended yet.
func (c *change) unmarked() error {
	free, err := c.swapLockFree()
	if err != nil || free {
		return err
	}
	return again("a process has the lock " + swapName + " without a marker, so a swap to an unknown recipe is in " +
		"progress: the marker was lost with the state file, or the command of a killed swap has not ended yet")
}

// busy is the refusal that names a swap in progress.
func (c *change) busy(m *Marker) error {
	return again(fmt.Sprintf("a swap to recipe %q by %s is in progress since %s (%s); try again when it has ended",
		m.TargetRecipe, m.Holder, m.StartedAt.UTC().Format(time.RFC3339), c.wall.Sub(m.StartedAt).Round(time.Second)))
}

// again is a refusal that wraps EAGAIN: the caller may try again later.
func again(message string) error {
	return &belay.Error{Code: belay.CodeSwapInProgress, Message: message, RetryAfter: time.Second, Err: syscall.EAGAIN}
}

// wrap adds the operation to an error.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", op, err)
}
