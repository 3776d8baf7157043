//go:build !linux

package process

import (
	"context"
	"fmt"

	"github.com/belaydev/belay/internal/host"
)

// Helper is never called on this system.
type Helper struct {
	Name string
	Run  func() int
}

// Main does nothing: there are no supervisors on this system.
func Main(...Helper) {}

// Tree is never used on this system.
type Tree struct{}

// Start returns [host.ErrUnsupported]. Only Linux can keep all processes of a command together, and
// this package starts no command that it could not end reliably.
func Start(_ context.Context, c Command) (*Tree, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("run %s: supervised commands: %w", c.ID, host.ErrUnsupported)
}

func (t *Tree) Describe() string             { return "" }
func (t *Tree) Walls() Walls                 { return Walls{} }
func (t *Tree) Supervisor() int              { return 0 }
func (t *Tree) Has(int) bool                 { return false }
func (t *Tree) Done() <-chan struct{}        { return nil }
func (t *Tree) Wait() (Result, error)        { return Result{}, host.ErrUnsupported }
func (t *Tree) Kill(error)                   {}
func (t *Tree) Freeze(context.Context) error { return host.ErrUnsupported }
func (t *Tree) Thaw(context.Context) error   { return host.ErrUnsupported }

// Undumpable returns [host.ErrUnsupported].
func Undumpable() error { return host.ErrUnsupported }

// InJob returns true and [host.ErrUnsupported], because on this system it cannot determine whether
// a process belongs to a run.
func InJob(int) (bool, error) { return true, host.ErrUnsupported }

// SweepOrphans returns no processes, because this system has no runs.
func SweepOrphans(context.Context, func(runID string) bool) ([]Orphan, error) { return nil, nil }

// Members returns no processes, because this system has no runs.
func Members(string, *host.User) ([]int, error) { return nil, nil }

// Pool is never used on this system.
type Pool struct{}

type slot struct{}

// OpenPool returns [host.ErrUnsupported].
func OpenPool(_ string, users Range) (*Pool, error) {
	return nil, fmt.Errorf("open the pool of users %s: %w", users, host.ErrUnsupported)
}

func (p *Pool) Users() Range                                { return Range{} }
func (p *Pool) Take(context.Context, string) (*Seat, error) { return nil, host.ErrUnsupported }
func (p *Pool) List() ([]Taken, error)                      { return nil, host.ErrUnsupported }
func (p *Pool) Sweep(context.Context) error                 { return host.ErrUnsupported }
func (s *Seat) Free(context.Context) error                  { return nil }
