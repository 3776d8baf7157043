package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/belaydev/belay"
)

// Swap is a swap in progress that this process carries out. Its methods must be called one after
// the other.
type Swap struct {
	r      *Registry
	marker Marker
	lock   *os.File // .swap.lock; closed at the end
	over   bool
}

// Begin begins a swap to a recipe: it acquires the lock .swap.lock and writes the marker. From then
// on no workflow of another recipe can register. The caller then calls Await, and in any case End.
//
// The error is [belay.CodeSwapInProgress], which wraps EAGAIN, if another swap is in progress, and
// [belay.CodeConflict] if the state file was damaged and Repair was not called since.
func (r *Registry) Begin(ctx context.Context, recipe string) (*Swap, error) {
	op := fmt.Sprintf("swap to recipe %q", recipe)
	if err := checkName("recipe", recipe); err != nil {
		return nil, wrap(op, err)
	}
	s := &Swap{r: r}
	err := r.locked(ctx, func(c *change) error { return s.begin(c, recipe) })
	if err != nil {
		if s.lock != nil {
			_ = unlock(s.lock)
		}
		return nil, wrap(op, err)
	}
	return s, nil
}

func (s *Swap) begin(c *change, recipe string) error {
	if m := c.doc.Swap; m != nil {
		return c.busy(m)
	}
	if q := c.doc.Quarantined; q != nil {
		return &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf("the state file was damaged at %s and is "+
			"kept as %s, so there may be workflows that are not registered any more. When you have checked that none "+
			"runs, call: belay registry repair", q.At.UTC().Format(time.RFC3339), q.File)}
	}
	lock, ok, err := c.dir.tryLock(swapName)
	if err != nil {
		return err
	}
	if !ok {
		return again("another process has the lock " + swapName + " without a marker: its marker was lost with the " +
			"state file, or the command of a killed swap has not ended yet")
	}
	s.lock = lock
	s.marker = Marker{
		ID: newID(), TargetRecipe: recipe, Holder: c.r.self,
		StartedAt: c.wall.UTC().Truncate(time.Microsecond),
	}
	m := s.marker
	c.doc.Swap = &m
	// The marker comes first: if this process is killed in between, the event that removes the
	// orphan is the only event of the swap, and no swap has a begin without an end.
	if err := c.save(); err != nil {
		return err
	}
	if err := c.append(m.event(EventBegin)); err != nil {
		c.doc.Swap = nil
		return errors.Join(err, c.save())
	}
	return nil
}

// Marker returns the marker of the swap.
func (s *Swap) Marker() Marker { return s.marker }

// Lock returns the open file of the lock .swap.lock, for child processes to inherit. If this process
// is killed, no workflow can register and no other swap can begin before the children that have
// inherited the file have ended. End frees the lock even if a child still has the file open. The
// caller must not close the file.
func (s *Swap) Lock() *os.File { return s.lock }

// Conflicts returns the workflows of other recipes, for which the swap waits, and asks the
// preemptible ones among them to yield. If there are none, the swap is granted, and stays granted
// until End.
func (s *Swap) Conflicts(ctx context.Context) ([]Workflow, error) {
	var left []Workflow
	err := s.r.locked(ctx, func(c *change) error {
		if err := s.mine(c); err != nil {
			return err
		}
		for i := range c.doc.Workflows {
			w := &c.doc.Workflows[i]
			if w.Recipe == s.marker.TargetRecipe {
				continue
			}
			left = append(left, *w)
			if err := s.preempt(c, w); err != nil {
				return err
			}
		}
		if len(left) > 0 || !s.marker.GrantedAt.IsZero() {
			return nil
		}
		if err := c.append(s.marker.event(EventGranted)); err != nil {
			return err
		}
		s.marker.GrantedAt = c.wall.UTC().Truncate(time.Microsecond)
		c.doc.Swap.GrantedAt, c.dirty = s.marker.GrantedAt, true
		return nil
	})
	return left, wrap(fmt.Sprintf("swap to recipe %q", s.marker.TargetRecipe), err)
}

// mine refuses a swap whose marker another program has removed.
func (s *Swap) mine(c *change) error {
	if s.over || c.doc.Swap == nil || c.doc.Swap.ID != s.marker.ID {
		return &belay.Error{Code: belay.CodeLeaseLost, Message: "the marker of this swap was removed"}
	}
	return nil
}

func (s *Swap) preempt(c *change, w *Workflow) error {
	if !w.Preemptible {
		return nil
	}
	sent, err := c.requestPreempt(w)
	if err != nil || !sent {
		return err
	}
	e := s.marker.event(EventPreemptRequested)
	e.Workflow = w.Name
	return c.append(e)
}

// Await waits until the swap is granted: until no workflow of another recipe is left. It calls
// waiting with the workflows that are left, at first and whenever they have changed; waiting may be
// nil. When ctx ends, the error is [belay.CodeSwapInProgress], wraps EAGAIN, and names these
// workflows.
func (s *Swap) Await(ctx context.Context, waiting func([]Workflow)) error {
	wake, err := newWake(s.r.path)
	if err != nil {
		return wrap("wait for workflows", err)
	}
	defer wake.close()
	last := ""
	for {
		// The end of ctx must not interrupt a look at the registry: its result is the error's text.
		left, err := s.Conflicts(context.WithoutCancel(ctx))
		if err != nil || len(left) == 0 {
			return err
		}
		if now := describe(left); waiting != nil && now != last {
			waiting(left)
			last = now
		}
		pids, ended := s.r.living(left)
		if ended {
			continue
		}
		if !wake.wait(ctx, s.r.until(left), pids) {
			return s.blocked(left)
		}
	}
}

// until returns how long to wait at most until the next look: until the next TTL is over.
func (r *Registry) until(all []Workflow) time.Duration {
	c := change{r: r, wall: r.wall(), boot: r.boot()}
	next := time.Second
	for i := range all {
		next = min(next, c.left(&all[i])+time.Millisecond)
	}
	return max(next, time.Millisecond)
}

// living returns the numbers of the owners that are proven to live. An owner in another PID
// namespace has a number that means another process here. ended says that an owner has ended.
func (r *Registry) living(all []Workflow) (pids []int, ended bool) {
	for i := range all {
		switch owner := all[i].Owner; {
		case owner.alive(r.self):
			pids = append(pids, owner.PID)
		case owner.ended(r.self):
			ended = true
		}
	}
	return pids, ended
}

func (s *Swap) blocked(left []Workflow) error {
	return wrap(fmt.Sprintf("swap to recipe %q", s.marker.TargetRecipe), again("in the way: "+describe(left)))
}

// describe lists workflows for people, at most three by name.
func describe(all []Workflow) string {
	var parts []string
	for i, w := range all {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		kind := ""
		if w.Preemptible {
			kind = ", asked to yield"
		}
		parts = append(parts, fmt.Sprintf("%q (recipe %q, %s, since %s%s)", w.Name, w.Recipe, w.Owner,
			w.StartedAt.UTC().Format(time.RFC3339), kind))
	}
	return strings.Join(parts, ", ")
}

// End ends the swap: it removes the marker and frees the lock .swap.lock. If why is nil, the swap
// was successful; otherwise why is the reason of its failure. If End returns an error, because the
// disk is full for example, the lock is free nevertheless, so that the next operation of any
// process removes the marker. A second call does nothing.
func (s *Swap) End(ctx context.Context, why error) error {
	if s.over {
		return nil
	}
	// This process frees the lock last, so that no other process finds an orphan meanwhile.
	defer unlock(s.lock) //nolint:errcheck // its file is only read
	err := s.r.locked(ctx, func(c *change) error {
		if err := s.mine(c); err != nil {
			return err
		}
		e := s.marker.event(EventDone)
		if why != nil {
			e.Kind, e.Reason = EventFailed, why.Error()
		}
		c.doc.Swap, c.dirty = nil, true
		return errors.Join(c.append(e), c.withdraw(s.marker.TargetRecipe))
	})
	s.over = true
	return wrap(fmt.Sprintf("end the swap to recipe %q", s.marker.TargetRecipe), err)
}
