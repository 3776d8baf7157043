package registry

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// State is the registry at one moment, without dead workflows and without an orphaned marker.
type State struct {
	// Workflows are the workflows, in the order in which they registered.
	Workflows []Entry
	// Swap is the marker of the swap in progress, or nil.
	Swap *Marker
	// Quarantined is set if an earlier state file was damaged and Repair was not called since.
	Quarantined *Quarantine
	// Unsaved says why dead workflows or an orphaned marker could not be removed from the file, for
	// example because the disk is full. The State does not have them.
	Unsaved error
}

// Entry is a workflow in a State.
type Entry struct {
	Workflow
	// ExpiresIn is the rest of the TTL.
	ExpiresIn time.Duration
	// PreemptRequested says that a swap asks the workflow to yield.
	PreemptRequested bool
}

// MarshalJSON returns the form of the state file, with the fields expires_in_ms and
// preempt_requested.
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		entry
		ExpiresInMS      int64 `json:"expires_in_ms"`
		PreemptRequested bool  `json:"preempt_requested"`
	}{e.entry(), e.ExpiresIn.Milliseconds(), e.PreemptRequested})
}

// List returns the state of the registry of a data directory. Before that, List removes dead
// workflows and an orphaned marker, if this process may write to the directory. If the directory
// has no registry, List returns an empty State and creates nothing.
func List(ctx context.Context, dir string) (State, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return State{}, wrap("list the workflows", err)
	}
	return at(path).List(ctx)
}

// List does the same for an open registry.
func (r *Registry) List(ctx context.Context) (State, error) {
	var s State
	if none, err := r.empty(); err != nil || none {
		return s, wrap("list the workflows", err)
	}
	err := r.withLock(ctx, func(c *change) error {
		s.Unsaved = errors.Join(c.reconcile(), c.sweep())
		if s.Unsaved == nil && c.dirty {
			s.Unsaved = c.save()
		}
		s.Swap, s.Quarantined = c.doc.Swap, c.doc.Quarantined
		for i := range c.doc.Workflows {
			w := &c.doc.Workflows[i]
			asked, err := c.signalled(w)
			if err != nil {
				return err
			}
			s.Workflows = append(s.Workflows, Entry{Workflow: *w, ExpiresIn: c.left(w), PreemptRequested: asked})
		}
		return nil
	})
	return s, wrap("list the workflows", err)
}

// empty reports whether the directory has neither a state file nor its lock.
func (r *Registry) empty() (bool, error) {
	for _, name := range []string{stateName, lockName} {
		_, err := os.Lstat(filepath.Join(r.path, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return true, nil
}

// Watch calls seen with the state of the registry, at first and then after each change, until ctx
// ends or seen returns an error, which Watch returns. Deaths of processes and ends of TTLs are
// changes too. Watch sees a change within a second; it may skip a state that lasted for less.
func (r *Registry) Watch(ctx context.Context, seen func(State) error) error {
	wake, err := newWake(r.path)
	if err != nil {
		return wrap("watch the workflows", err)
	}
	defer wake.close()
	for last := ""; ; {
		s, err := r.List(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if now := s.essence(); now != last {
			if err := seen(s); err != nil {
				return err
			}
			last = now
		}
		all := make([]Workflow, len(s.Workflows))
		for i := range s.Workflows {
			all[i] = s.Workflows[i].Workflow
		}
		holders, ended := r.living(all)
		if ended {
			continue
		}
		if s.Swap != nil && s.Swap.Holder.alive(r.self) {
			holders = append(holders, s.Swap.Holder.PID)
		}
		if !wake.wait(ctx, r.until(all), holders) {
			return nil
		}
	}
}

// essence is equal for two states that differ only in the times of renewals.
func (s State) essence() string {
	all := slices.Clone(s.Workflows)
	for i := range all {
		all[i].LastRenewedAt, all[i].renewedBoot, all[i].ExpiresIn = time.Time{}, 0, 0
	}
	text, err := json.Marshal([]any{all, s.Swap, s.Quarantined})
	if err != nil {
		return err.Error()
	}
	return string(text)
}
