//go:build linux

package process

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
)

// Rule: a limit that the kernel enforces for each process applies only to the command. Even with
// the lowest limits and many starts, the supervisor does not fail because of these limits.
func TestStartsUnderLimits(t *testing.T) {
	starts := 40
	switch {
	case os.Getenv("BELAY_TEST_LONG") != "":
		starts = 300
	case testing.Short():
		starts = 8
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

// Rule: the limiter (the process that sets the limits and then becomes the command) leaves no open
// file, argument or variable in the command. The command cannot raise its limits.
func TestTheLimiterLeavesNoTraceInTheCommand(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, out := shell(t, kind, `ls /proc/self/fd | tr '\n' ' '; tr '\0' ' ' </proc/$$/cmdline | cut -c1-8; ulimit -Sv; ulimit -Hv; ulimit -v unlimited 2>/dev/null && echo raised; env | sort | cut -d= -f1 | tr '\n' ' '`)
		c.bounds, c.Limits.Memory, c.Inherit, c.Env = byRlimit, 1<<30, nil, map[string]string{"PATH": "/usr/bin:/bin"}
		if r, err := Run(t.Context(), c); err != nil || r.Code != 0 {
			t.Fatalf("%+v, %v\n%s", r, err, out)
		}
		if got, want := out.String(), "0 1 2 3 /bin/sh \n1048576\n1048576\nBELAY_RUN PATH PWD "; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		c, _ = shell(t, kind, "")
		c.bounds, c.Limits.Memory, c.Args = byRlimit, 1<<30, []string{"/etc/passwd"}
		var failed *StartError
		if _, err := Run(t.Context(), c); !errors.As(err, &failed) || failed.Code != 126 ||
			!strings.Contains(failed.Reason, "not executable") {
			t.Errorf("a file that is no program: %v", err)
		}
		c.Args = []string{"test-helper", "me"}
		c.Helper, c.Output = true, out.take
		if r, err := Run(t.Context(), c); err != nil || r.Code != 7 || !strings.HasSuffix(out.String(), "helped me\n") {
			t.Errorf("a helper: %+v, %v, %q", r, err, out)
		}
	})
}
