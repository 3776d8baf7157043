package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/belaydev/belay"
)

// Registration describes a workflow that registers.
type Registration struct {
	Name, Recipe string
	// Owner is the process on whose life the entry depends; the zero value means this process.
	Owner Process
	// TTL is how long the entry lives without a renewal; 0 means DefaultTTL.
	TTL time.Duration
	// Preemptible says that the workflow looks for its signal file and yields when the file exists.
	Preemptible bool
	// SignalPath is the path of the signal file of a preemptible workflow. It must be a file in the
	// directory signals of the data directory with the suffix .preempt; "" means a path that the
	// registry chooses.
	SignalPath string
}

func (q *Registration) check(r *Registry) error {
	if err := checkName("name of the workflow", q.Name); err != nil {
		return err
	}
	if err := checkName("recipe", q.Recipe); err != nil {
		return err
	}
	if q.TTL == 0 {
		q.TTL = DefaultTTL
	}
	switch {
	case q.TTL < time.Millisecond || q.TTL > MaxTTL:
		return &belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf("the TTL %s is not between 1ms and %s", q.TTL,
			MaxTTL)}
	case q.SignalPath != "" && !q.Preemptible:
		return &belay.Error{Code: belay.CodeInvalid, Message: "a workflow with a signal path must be preemptible"}
	case q.Preemptible && q.SignalPath == "":
		q.SignalPath = r.signalPath(q.Name, q.Owner)
	case q.Preemptible:
		return r.checkSignalPath(q.SignalPath)
	}
	return nil
}

// Register adds a workflow, and returns its entry, which is the argument of Renew and Release. If
// the owner has registered the name before, Register replaces the entry.
//
// The errors have these codes: [belay.CodeSwapInProgress], which wraps EAGAIN, while a swap to
// another recipe is in progress; [belay.CodeLeaseHeld] if another process has registered the name;
// [belay.CodeQueueFull] if there are MaxWorkflows; [belay.CodeNotFound] if the owner has ended.
func (r *Registry) Register(ctx context.Context, q Registration) (Workflow, error) {
	op := fmt.Sprintf("register workflow %q", q.Name)
	if q.Owner == (Process{}) {
		q.Owner = r.self
	}
	if err := q.check(r); err != nil {
		return Workflow{}, wrap(op, err)
	}
	w := Workflow{
		Name: q.Name, Recipe: q.Recipe, Owner: q.Owner, TTL: q.TTL, Preemptible: q.Preemptible,
		PreemptSignalPath: q.SignalPath,
	}
	err := r.locked(ctx, func(c *change) error {
		c.renew(&w)
		w.StartedAt = w.LastRenewedAt
		return c.register(&w)
	})
	if err != nil {
		return Workflow{}, wrap(op, err)
	}
	return w, nil
}

func (c *change) register(w *Workflow) error {
	if w.Owner != c.r.self && w.Owner.ended(c.r.self) {
		return &belay.Error{Code: belay.CodeNotFound, Message: w.Owner.String() + " has ended"}
	}
	if err := c.gate(w.Recipe); err != nil {
		return err
	}
	old := c.find(w.Name)
	switch {
	case old != nil && !old.Owner.same(w.Owner):
		return c.taken(old)
	case old == nil && len(c.doc.Workflows) >= MaxWorkflows:
		return &belay.Error{Code: belay.CodeQueueFull, Message: fmt.Sprintf("%d workflows are registered, the most "+
			"that are possible", MaxWorkflows), RetryAfter: time.Minute}
	}
	// Remove a signal that another program has left under this path, and that of the old entry.
	for _, x := range []*Workflow{old, w} {
		if x == nil {
			continue
		}
		if err := c.clearSignal(x); err != nil {
			return err
		}
	}
	if c.doc.ID == "" {
		c.doc.ID = newID()
	}
	w.file, c.dirty = c.doc.ID, true
	if old != nil {
		*old = *w
		return nil
	}
	c.doc.Workflows = append(c.doc.Workflows, *w)
	return nil
}

func (c *change) taken(w *Workflow) error {
	return &belay.Error{
		Code: belay.CodeLeaseHeld, RetryAfter: time.Second,
		Message: fmt.Sprintf("%s has registered this name since %s, with recipe %q", w.Owner,
			w.StartedAt.UTC().Format(time.RFC3339), w.Recipe),
	}
}

// renew sets the time of the last renewal to now. A time of CLOCK_BOOTTIME is set only if it belongs
// to the boot and time namespace of the owner.
func (c *change) renew(w *Workflow) {
	w.LastRenewedAt, w.renewedBoot = c.wall.UTC().Truncate(time.Microsecond), 0
	if w.Owner.BootID != "" && w.Owner.BootID == c.r.self.BootID {
		w.renewedBoot = c.boot
	}
}

// lease returns the entry of a workflow that its owner still has.
func (c *change) lease(w Workflow) (*Workflow, error) {
	var other *Workflow
	for i := range c.doc.Workflows {
		switch e := &c.doc.Workflows[i]; {
		case e.Name != w.Name:
		case e.Owner.same(w.Owner):
			return e, nil
		default:
			other = e
		}
	}
	if other != nil {
		return nil, &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseReassigned, Message: fmt.Sprintf(
			"%s has registered workflow %q since %s", other.Owner, w.Name, other.StartedAt.UTC().Format(time.RFC3339))}
	}
	lost := &belay.Error{Code: belay.CodeLeaseLost, Cause: belay.CauseExpired, Message: fmt.Sprintf(
		"workflow %q is not registered any more", w.Name)}
	if w.file != "" && w.file != c.doc.ID {
		lost.Err = ErrStateLost
	}
	return nil, lost
}

// ErrStateLost is in the error for a lost entry if the state file in which the workflow had
// registered is gone, because it was removed or damaged. So the entry was not released.
var ErrStateLost = errors.New("the state file was removed or damaged since")

// Renew begins the TTL of a workflow anew, and returns the entry. Only Name and Owner of w count.
// The error is [belay.CodeLeaseLost] if the entry was removed, if its TTL is over, or if another
// process has registered the name; the workflow must then stop to use the resource.
func (r *Registry) Renew(ctx context.Context, w Workflow) (Workflow, error) {
	err := r.locked(ctx, func(c *change) error {
		e, err := c.lease(w)
		if err != nil {
			return err
		}
		c.renew(e)
		w, c.dirty = *e, true
		w.file = c.doc.ID
		return nil
	})
	return w, wrap(fmt.Sprintf("renew workflow %q", w.Name), err)
}

// Transfer makes another process the owner of a workflow, and renews the entry. Only Name and Owner
// of w count. The errors are those of Renew, and [belay.CodeNotFound] if the new owner has ended.
func (r *Registry) Transfer(ctx context.Context, w Workflow, to Process) (Workflow, error) {
	err := r.locked(ctx, func(c *change) error {
		e, err := c.lease(w)
		if err != nil {
			return err
		}
		if to.ended(c.r.self) {
			return &belay.Error{Code: belay.CodeNotFound, Message: to.String() + " has ended"}
		}
		e.Owner = to
		c.renew(e)
		w, c.dirty = *e, true
		w.file = c.doc.ID
		return nil
	})
	return w, wrap(fmt.Sprintf("transfer workflow %q", w.Name), err)
}

// Release removes a workflow and its signal file. Only Name and Owner of w count. The error is
// [belay.CodeLeaseLost] if the entry was removed before, if its TTL is over, or if another process
// has registered the name.
//
// A preemptible workflow that yields calls Release too.
func (r *Registry) Release(ctx context.Context, w Workflow) error {
	err := r.locked(ctx, func(c *change) error {
		e, err := c.lease(w)
		if err != nil {
			return err
		}
		if err := c.clearSignal(e); err != nil {
			return err
		}
		c.doc.Workflows = slices.DeleteFunc(c.doc.Workflows, func(x Workflow) bool {
			return x.Name == w.Name && x.Owner.same(w.Owner)
		})
		c.dirty = true
		return nil
	})
	return wrap(fmt.Sprintf("release workflow %q", w.Name), err)
}

// Preempted reports whether a swap asks a workflow to yield. Only Name and Owner of w count. The
// error is [belay.CodeLeaseLost] as for Renew. A workflow can look for the file PreemptSignalPath
// instead, which costs less.
func (r *Registry) Preempted(ctx context.Context, w Workflow) (bool, error) {
	asked := false
	err := r.locked(ctx, func(c *change) error {
		e, err := c.lease(w)
		if err == nil {
			asked, err = c.signalled(e)
		}
		return err
	})
	return asked, wrap(fmt.Sprintf("look for the signal to workflow %q", w.Name), err)
}
