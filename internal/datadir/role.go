package datadir

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/socket"
)

// role is how this process reaches the engine: it is the host (the process with the engine), or a
// client of the host.
type role struct {
	belay.Backend
	host *Host         // set if the engine is in this process
	lost chan struct{} // closed when the engine stops or its process is gone
	next string        // the name of the process that runs the engine next, if known; set before lost is closed
	end  func() error  // frees the role's resources, and returns when they are free
}

// yielded is how long this process does not try to take the lock after the ending host (the process
// with the engine) has named the next host.
const yielded = 2 * time.Second

// run finds a new role (way to the engine) whenever this process has lost its role, until ctx ends.
func (b *Backend) run(ctx context.Context, r *role) {
	defer close(b.done)
	for {
		b.watch(ctx, r)
		b.set(nil, errGone)
		if err := r.end(); err != nil && ctx.Err() == nil {
			b.opt.Log.Warn("stop hosting the engine", "dir", b.dir, "error", err)
		}
		if ctx.Err() != nil {
			return
		}
		var leave time.Time
		if r.next != "" {
			leave = time.Now().Add(yielded)
		}
		var err error
		if r, err = b.find(ctx, leave, false); err != nil {
			return // find fails here only after ctx has ended
		}
		b.set(r, nil)
	}
}

// errGone is the reason why no engine can be reached right after the process with the engine has
// ended.
var errGone = errors.New("the host of the engine is gone")

// watch returns when the role is lost, or ctx ends.
func (b *Backend) watch(ctx context.Context, r *role) {
	if r.host == nil {
		select {
		case <-ctx.Done():
		case <-r.lost:
		}
		return
	}
	broken := r.host.Failed()
	for {
		select {
		case <-broken:
			b.fail(r.host.Failure())
			broken = nil
			continue
		case <-ctx.Done():
		case r.next = <-r.host.asked():
			b.opt.Log.Info("the engine is left to another process", "dir", b.dir, "next", r.next)
		}
		b.set(nil, errGone) // calls that begin now wait until another process runs the engine
		close(r.lost)
		return
	}
}

// find makes this process the host (the process with the engine) or a client of the host, whichever
// succeeds first. Before the time leave, find does not try to take the lock. If the store cannot be
// opened, find returns the error when first is set (the process has had no role yet), and tries
// again otherwise.
func (b *Backend) find(ctx context.Context, leave time.Time, first bool) (*role, error) {
	var refused error
	warned, hostSilent := "", false // hostSilent: the process that has the engine does not answer
	notice := time.Now().Add(b.opt.Patience / 10)
	for pause := 10 * time.Millisecond; ; pause = min(pause*5/4, 200*time.Millisecond) {
		if b.foreign != nil {
			refused = b.foreign
		} else if time.Now().After(leave) {
			h, err := host(ctx, b.dir, b.opt, true)
			switch {
			case err == nil:
				r := &role{Backend: h.Backend, host: h, lost: make(chan struct{})}
				r.end = func() error { return h.leaveTo(r.next) }
				return r, nil
			case !inUse(err):
				if first {
					return nil, err
				}
				if err.Error() != warned {
					warned = err.Error()
					b.opt.Log.Warn("the engine cannot be started here; trying again", "dir", b.dir, "error", err)
				}
				pause = max(pause, 200*time.Millisecond)
			}
			refused = err
		}
		r, err := b.join(ctx)
		if err == nil {
			return r, nil
		}
		hostSilent = errors.Is(err, socket.ErrSilent) || hostSilent && ctx.Err() != nil
		switch {
		case hostSilent:
			refused = silent(refused)
		case !errors.Is(err, socket.ErrNobody) || belay.CodeOf(err) == belay.CodeForbidden:
			refused = err
		}
		if first && (b.foreign != nil || belay.CodeOf(err) == belay.CodeForbidden) {
			return nil, refused // this refusal is final, so find does not wait
		}
		b.set(nil, refused)
		if first && time.Now().After(notice) {
			notice = notice.Add(b.opt.Patience)
			b.opt.Log.Warn("waiting for the data directory", "at_most", b.opt.Patience, "because", refused)
		}
		select {
		case <-ctx.Done():
			return nil, cmp.Or(refused, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// join makes this process a client of the process with the engine.
func (b *Backend) join(ctx context.Context) (*role, error) {
	p, err := greet(ctx, b.dir, b.opt)
	if err != nil {
		return nil, err
	}
	// This client does not repeat calls: package datadir repeats them with the next engine.
	c, err := dialClient(ctx, b.dir, b.opt, 0)
	if err != nil {
		p.leave()
		return nil, err
	}
	r := &role{Backend: c, lost: make(chan struct{})}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		r.next = p.goodbye()
		close(r.lost)
	}()
	r.end = func() error {
		p.leave()
		<-watched
		return c.Close()
	}
	return r, nil
}
