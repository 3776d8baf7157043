//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// freezers lists the means of freezing that this user can use on this machine.
func freezers(t *testing.T) []string {
	t.Helper()
	means := []string{"signals"}
	for _, h := range hierarchies("/proc/self") {
		// A supervisor also checks that it can enter the group. This process does not enter the
		// group, because processes that parallel tests start at that moment would belong to the
		// group too.
		dir := filepath.Join(h.home, cgroupPrefix+id(t))
		if os.Mkdir(dir, 0o750) == nil && os.Remove(dir) == nil {
			means = append(means, h.String())
		}
	}
	return means
}

// eachFreezer runs a test for every combination of a kind of isolation and a means of freezing.
func eachFreezer(t *testing.T, test func(t *testing.T, kind Isolation, means string)) {
	each(t, func(t *testing.T, kind Isolation) {
		for _, means := range freezers(t) {
			t.Run(strings.ReplaceAll(means, " ", "-"), func(t *testing.T) { test(t, kind, means) })
		}
	})
}

// size returns the size of a file to which a script appends.
func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// mustStay reads a value several times and fails the test if the value changes.
func mustStay(t *testing.T, what string, value func() int64) {
	t.Helper()
	first := value()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 25 {
		<-tick.C
		if now := value(); now != first {
			t.Errorf("%s went from %d to %d", what, first, now)
			return
		}
	}
}

// Rule: after Freeze has returned, no process of the tree runs: neither the command, nor a daemon,
// nor a process that keeps starting other processes. After Thaw all these processes continue.
func TestFreezeStopsEverything(t *testing.T) {
	eachFreezer(t, func(t *testing.T, kind Isolation, means string) {
		c, _ := shell(t, kind, `
			(while :; do printf x >>daemon; done) & 
			setsid sh -c 'while :; do printf x >>session; done' &
			while :; do sh -c 'printf x >>forks'; done`)
		c.freezer = means
		tree := begin(t, t.Context(), c)
		counters := []string{"daemon", "session", "forks"}
		sum := func() (n int64) {
			for _, name := range counters {
				n += size(filepath.Join(c.Dir, name))
			}
			return n
		}
		grows := func() bool {
			for _, name := range counters {
				if size(filepath.Join(c.Dir, name)) == 0 {
					return false
				}
			}
			return true
		}
		for range 2 {
			until(t, "all three count", grows)
			if err := tree.Freeze(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustStay(t, "a frozen tree", sum)
			for _, name := range counters {
				if err := os.Truncate(filepath.Join(c.Dir, name), 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := tree.Thaw(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "all three count after the last thaw", grows)
		tree.Kill(nil)
		if r, _ := wait(t, tree); r.Freezer != means {
			t.Errorf("frozen by %q, want %q", r.Freezer, means)
		}
		noneLeft(t, c.ID)
		if found := groups(t, c.ID); len(found) > 0 {
			t.Errorf("left behind: %v", found)
		}
	})
}

// Rule: a tree that is cancelled while frozen has no more effects: it is killed without being
// thawed, and no signal handler runs.
func TestCancelWhileFrozen(t *testing.T) {
	eachFreezer(t, func(t *testing.T, kind Isolation, means string) {
		c, out := shell(t, kind, "trap 'echo effect >effect' TERM; echo up; while :; do printf x >>count; done")
		c.freezer = means
		ctx, cancel := context.WithCancelCause(t.Context())
		tree := begin(t, ctx, c)
		until(t, "the command is up", func() bool { return strings.Contains(out.String(), "up") })
		if err := tree.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		count := size(filepath.Join(c.Dir, "count"))
		cancel(errTest)
		r, err := wait(t, tree)
		if !errors.Is(err, errTest) || r.Code != 137 {
			t.Errorf("%+v, %v", r, err)
		}
		if now := size(filepath.Join(c.Dir, "count")); now != count {
			t.Errorf("the count went from %d to %d after the freeze", count, now)
		}
		if size(filepath.Join(c.Dir, "effect")) != 0 {
			t.Error("a handler ran after the freeze")
		}
		noneLeft(t, c.ID)
	})
}

// Rule: the time in which a tree is frozen does not count towards the timeout.
func TestTimeoutDoesNotCountWhileFrozen(t *testing.T) {
	c, _ := shell(t, Auto, "sleep "+unique())
	c.Timeout = 150 * time.Millisecond
	tree := begin(t, t.Context(), c)
	if err := tree.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	for passed := time.After(2 * c.Timeout); passed != nil; {
		select {
		case <-tree.Done():
			t.Fatal("it ended while it was frozen")
		case <-passed:
			passed = nil
		}
	}
	if err := tree.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := wait(t, tree)
	if !errors.Is(err, ErrTimedOut) || !r.TimedOut || r.Duration < 3*c.Timeout {
		t.Errorf("%+v, %v", r, err)
	}
}

// Rule: if a process has stopped before its tree is frozen with SIGSTOP, Thaw does not continue
// that process.
func TestThawDoesNotContinueStoppedProcesses(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, out := shell(t, kind, "sh -c 'echo stopping; kill -STOP $$; echo woken' & wait")
		c.freezer = "signals"
		tree := begin(t, t.Context(), c)
		until(t, "a process stops", func() bool { return strings.Contains(out.String(), "stopping") })
		until(t, "it has stopped", func() bool { return stopped(t, c.ID) == 1 })
		if err := tree.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := stopped(t, c.ID); n < 2 {
			t.Errorf("%d processes are stopped by a freeze", n)
		}
		if err := tree.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(t, "the others go on", func() bool { return stopped(t, c.ID) == 1 })
		if strings.Contains(out.String(), "woken") {
			t.Error("the thaw has woken a process that had stopped itself")
		}
	})
}

// Rule: a request that reaches a supervisor which has ended costs no report on the end: the exit code
// stays known, and Freeze and Thaw say that the tree has ended.
func TestRequestsAtTheEnd(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		for i := range 60 {
			c, _ := shell(t, kind, "exit 7")
			c.ID = fmt.Sprintf("%s-%d", id(t), i)
			tree := begin(t, t.Context(), c)
			var errs error
			for errs == nil {
				errs = errors.Join(tree.Freeze(t.Context()), tree.Thaw(t.Context()))
			}
			tree.Kill(errTest) // as a caller does whose Thaw has failed
			if r, err := wait(t, tree); r.Code != 7 || err != nil || !onlyDone(errs) {
				t.Fatalf("%d: %+v, %v; a request failed with %v", i, r, err, errs)
			}
		}
	})
}

// onlyDone reports whether each of the joined errors is os.ErrProcessDone.
func onlyDone(errs error) bool {
	joined, ok := errs.(interface{ Unwrap() []error })
	return ok && !slices.ContainsFunc(joined.Unwrap(), func(err error) bool {
		return !errors.Is(err, os.ErrProcessDone)
	})
}
