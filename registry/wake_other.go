//go:build !linux

package registry

import (
	"context"
	"time"
)

// wake reports changes of the registry. On this operating system only the time ends a wait.
type wake struct{}

func newWake(string) (*wake, error) { return &wake{}, nil }

func (*wake) close() {}

// wait waits for the duration most, but at most for 100 ms. It returns false if ctx ends.
func (*wake) wait(ctx context.Context, most time.Duration, _ []int) bool {
	timer := time.NewTimer(min(most, 100*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
