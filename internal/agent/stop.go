package agent

import (
	"context"
	"errors"
	"sync"
)

// errStopping ends a step because its Runner stops. The job then waits until its
// worker ends it, so that it is given back and not failed.
var errStopping = errors.New("the runner stops")

// steps are those that run now in one Runner.
type steps struct {
	mu       sync.Mutex
	stopping bool
	ends     map[int]context.CancelCauseFunc
	next     int
	idle     chan struct{} // closed once stopping and none runs
}

// enter is called when a step begins, and leave when it has ended. The step's
// context ends when the Runner stops.
func (s *steps) enter(ctx context.Context) (step context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, nil, errStopping
	}
	step, end := context.WithCancelCause(ctx)
	if s.ends == nil {
		s.ends = make(map[int]context.CancelCauseFunc)
	}
	n := s.next
	s.next++
	s.ends[n] = end
	return step, func() {
		end(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ends, n)
		if s.stopping && len(s.ends) == 0 {
			close(s.idle)
		}
	}, nil
}

// Stop tells every step that runs to end, lets no other begin, and returns when
// none runs any more, at the latest after their grace, or when ctx ends. Stop the
// worker after it: a worker gives its functions less time than that.
func (r *Runner) Stop(ctx context.Context) {
	s := &r.steps
	s.mu.Lock()
	if !s.stopping {
		s.stopping, s.idle = true, make(chan struct{})
		if len(s.ends) == 0 {
			close(s.idle)
		}
	}
	for _, end := range s.ends {
		end(errStopping)
	}
	s.mu.Unlock()
	select {
	case <-s.idle:
	case <-ctx.Done():
	}
}

// given holds a job's error back until its context ends if it comes from the stop
// of the Runner: before that the worker would take it for a failure.
func (r *Runner) given(ctx context.Context, err error) error {
	r.steps.mu.Lock()
	stopping := r.steps.stopping
	r.steps.mu.Unlock()
	var own *stepError // a step that failed before it was told to end has failed
	if err == nil || !stopping || errors.As(err, &own) && !errors.Is(err, errStopping) {
		return err
	}
	<-ctx.Done()
	return errors.Join(context.Cause(ctx), err)
}
