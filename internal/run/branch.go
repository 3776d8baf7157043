package run

import (
	"context"
	"errors"
	"time"
)

// Branch is a part of a run that executes concurrently with other parts: the workflow function
// itself, or a function that the function Go of this package has started.
type Branch struct {
	r      *Run
	prefix string // the prefix of the names of all steps and waits in the branch
	// waiting is the number of waits in which the branch is blocked. It can be more than one only
	// if the author uses the branch's context in several goroutines.
	waiting int
	joiners []*wait
	over    bool
	err     error
}

// Go starts a branch under a name. This name is a prefix of the names of all steps and waits in the
// branch.
func Go(ctx context.Context, name, key string, fn func(ctx context.Context) error) (*Branch, error) {
	c, full, err := within(ctx, "branch", name, key)
	if err != nil {
		return nil, err
	}
	r := c.r
	if _, err := r.take(call{"branch", name}, full, 0); err != nil {
		return nil, err
	}
	b := &Branch{r: r, prefix: full + "/"}
	r.mu.Lock()
	r.waits.branches++
	r.mu.Unlock()
	go func() {
		defer b.leave()
		b.err = errGoexit
		b.err = b.call(&scope{Context: ctx, r: r, b: b}, fn)
	}()
	return b, nil
}

// call calls the branch's function. A panic in any branch fails the whole run, as a panic in any
// goroutine ends a program.
func (b *Branch) call(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p := newPanic(v)
			b.r.fail(p)
			err = p
		}
	}()
	return fn(ctx)
}

// leave records that the branch has ended, and wakes the branches that are blocked in Wait for it.
func (b *Branch) leave() {
	r := b.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(b.err, errGoexit) {
		r.failLocked(b.err)
	}
	b.over = true
	r.waits.branches--
	r.waits.idleSince = time.Time{}
	for _, w := range b.joiners {
		r.wakeLocked(w)
	}
	b.joiners = nil
	if r.waits.branches == 0 && r.waits.allOver != nil {
		close(r.waits.allOver)
	}
	r.decideLocked()
}

// Wait blocks until the branch has returned. The calling branch counts as waiting while it is
// blocked.
func (b *Branch) Wait(ctx context.Context) error {
	c := find(ctx)
	if c == nil || c.r != b.r {
		return ErrNoRun
	}
	r := b.r
	w := wait{b: c.b, inner: true}
	r.mu.Lock()
	defer r.mu.Unlock()
	for !b.over {
		if r.fault != nil {
			return r.fault
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		b.joiners = append(b.joiners, &w)
		r.blockLocked(ctx, &w)
		b.forget(&w)
	}
	return b.err
}

func (b *Branch) forget(w *wait) {
	for i, x := range b.joiners {
		if x == w {
			b.joiners = append(b.joiners[:i], b.joiners[i+1:]...)
			return
		}
	}
}

// fail ends the run with err as its error, whatever the workflow function returns.
func (r *Run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failLocked(err)
}

func (r *Run) failLocked(err error) {
	if r.fault == nil {
		r.fault = err
	}
	r.end(err)
	r.wakeAllLocked()
}

// Over reports whether the branch's function has returned.
func (b *Branch) Over() bool {
	b.r.mu.Lock()
	defer b.r.mu.Unlock()
	return b.over
}
