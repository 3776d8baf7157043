//go:build linux

package process

import (
	"sync"
	"testing"
)

// Rule: limits that the kernel keeps for each process are those of the command alone:
// its supervisor is not lost to them, however low they are and however often one starts.
func TestStartsUnderLimits(t *testing.T) {
	starts := 300
	if testing.Short() {
		starts = 60
	}
	each(t, func(t *testing.T, kind Isolation) {
		for _, space := range []int64{1 << 30, 64 << 20} {
			var all sync.WaitGroup
			next := make(chan Command)
			for range 4 {
				all.Go(func() {
					for c := range next {
						if r, err := Run(t.Context(), c); err != nil || r.Code != 0 || r.Enforced.Memory != byRlimit {
							t.Errorf("%s of address space: %+v, %v", bytesText(space), r, err)
						}
					}
				})
			}
			for range starts / 2 {
				c, _ := shell(t, kind, "true")
				c.bounds, c.Limits.Memory = byRlimit, space
				next <- c
			}
			close(next)
			all.Wait()
		}
	})
}
