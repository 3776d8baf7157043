package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// crashes are the operations of the crash tests, by name. Each begins with the registry that
// prepare has made.
var crashes = map[string]func(ctx context.Context, r *Registry) error{
	"register": func(ctx context.Context, r *Registry) error {
		_, err := r.Register(ctx, Registration{Name: "new", Recipe: "a", Preemptible: true})
		return err
	},
	"renew":   func(ctx context.Context, r *Registry) error { return renewAll(ctx, r, (*Registry).renewOne) },
	"release": func(ctx context.Context, r *Registry) error { return renewAll(ctx, r, (*Registry).Release) },
	"sweep": func(ctx context.Context, r *Registry) error {
		s, err := r.List(ctx)
		return errors.Join(err, s.Unsaved)
	},
	"orphan": func(ctx context.Context, r *Registry) error {
		s, err := r.List(ctx)
		return errors.Join(err, s.Unsaved)
	},
	"swap": func(ctx context.Context, r *Registry) error { return swapWithin(ctx, r, time.Minute) },
	"wait": func(ctx context.Context, r *Registry) error {
		s, err := r.Begin(ctx, "b")
		if err != nil {
			return err
		}
		within, cancel := context.WithCancel(ctx)
		cancel()
		if err = s.Await(within, nil); errors.Is(err, syscall.EAGAIN) {
			err = nil
		}
		return errors.Join(err, s.End(ctx, errors.New("it may not wait")))
	},
	"rotate": func(ctx context.Context, r *Registry) error {
		r.maxLog = 1
		return swapWithin(ctx, r, time.Minute)
	},
	"damage": func(ctx context.Context, r *Registry) error {
		_, err := r.List(ctx)
		if belay.CodeOf(err) == belay.CodeConflict && strings.Contains(err.Error(), "is kept as") {
			return nil
		}
		return err
	},
	"repair": func(ctx context.Context, r *Registry) error {
		if _, err := r.Repair(ctx); err != nil && !strings.Contains(err.Error(), "is kept as") {
			return err
		}
		_, err := r.Repair(ctx)
		return err
	},
}

func (r *Registry) renewOne(ctx context.Context, w Workflow) error {
	_, err := r.Renew(ctx, w)
	return err
}

func renewAll(ctx context.Context, r *Registry, f func(*Registry, context.Context, Workflow) error) error {
	s, err := r.List(ctx)
	for _, w := range s.Workflows {
		err = errors.Join(err, f(r, ctx, w.Workflow))
	}
	return err
}

func swapWithin(ctx context.Context, r *Registry, wait time.Duration) error {
	s, err := r.Begin(ctx, "b")
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err = s.Await(within, nil)
	return errors.Join(err, s.End(ctx, err))
}

// prepare makes the registry with which an operation begins.
func prepare(t *testing.T, operation string, lives, dead Process) *Registry {
	t.Helper()
	r := open(t)
	recipe := "b"
	if operation == "wait" {
		recipe = "a"
	}
	register(t, r, Registration{Name: "lives", Recipe: recipe, Owner: lives, Preemptible: true})
	switch operation {
	case "rotate":
		if err := swapWithin(t.Context(), r, time.Minute); err != nil {
			t.Fatal(err)
		}
	case "damage", "repair":
		write(t, r, "damaged")
	case "orphan":
		_ = unlock(begin(t, r, "b").lock)
	case "sweep":
		if err := r.withLock(t.Context(), func(c *change) error {
			w := Workflow{Name: "dead", Recipe: "a", Owner: dead, TTL: time.Hour, Preemptible: true,
				PreemptSignalPath: r.signalPath("dead", dead)}
			c.renew(&w)
			c.doc.Workflows = append(c.doc.Workflows, w)
			_, err := c.requestPreempt(&w)
			return errors.Join(err, c.save())
		}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// crashAt is a role that carries out the operation args[0] and is killed at the system call number
// args[1] that changes a file, before that call.
func crashAt(dir string, args []string) error {
	r, err := Open(dir)
	if err != nil {
		return err
	}
	left, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	r.step = func(string, string) error {
		if left--; left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			_ = syscall.Pause()
		}
		return nil
	}
	return crashes[args[0]](context.Background(), r)
}

// content describes the state in the file: before or after an operation. It does not read the rest
// of the registry, so it shows what a crash has left.
func content(t *testing.T, r *Registry) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.path, stateName))
	if err != nil {
		t.Fatal(err)
	}
	if string(data) == "damaged" {
		return "damaged"
	}
	doc, err := decode(data)
	if err != nil {
		t.Fatalf("the state file is not whole: %v\n%s", err, data)
	}
	var parts []string
	for _, w := range doc.Workflows {
		parts = append(parts, w.Name)
	}
	if m := doc.Swap; m != nil {
		parts = append(parts, "swap to "+m.TargetRecipe)
		if !m.GrantedAt.IsZero() {
			parts = append(parts, "granted")
		}
	}
	if doc.Quarantined != nil {
		parts = append(parts, "quarantined")
	}
	return strings.Join(parts, ", ")
}

// between are the states that an operation may leave when it is interrupted. The first is the state
// before and the last the state after it.
var between = map[string][]string{
	"register": {"lives", "lives, new"},
	"renew":    {"lives"},
	"release":  {"lives", ""},
	"sweep":    {"lives, dead", "lives"},
	"orphan":   {"lives, swap to b", "lives"},
	"swap":     {"lives", "lives, swap to b", "lives, swap to b, granted", "lives"},
	"wait":     {"lives", "lives, swap to b", "lives"},
	"rotate":   {"lives", "lives, swap to b", "lives, swap to b, granted", "lives"},
	"damage":   {"damaged", "quarantined"},
	"repair":   {"damaged", "quarantined", ""},
}

// works checks that an interrupted operation has wedged nothing: workflows register and release,
// and a swap is granted. The log is whole, and each swap in it has one end.
func works(t *testing.T, r *Registry) {
	t.Helper()
	if _, err := r.List(t.Context()); err != nil && !strings.Contains(err.Error(), "is kept as") {
		t.Fatal(err)
	}
	if _, err := r.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := register(t, r, Registration{Name: "after", Recipe: "c"})
	if err := r.Release(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	s := begin(t, r, "a")
	if err := s.End(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(r.path, freshName)); !os.IsNotExist(err) {
		t.Error("the temporary file is left")
	}
	ends := strings.Count(events(t, r), "orphan_marker_cleared") + strings.Count(events(t, r), "done") +
		strings.Count(events(t, r), "failed")
	if begins := strings.Count(events(t, r), "begin"); ends < begins || ends > begins+1 {
		t.Errorf("the log has %d begins and %d ends: %s", begins, ends, events(t, r))
	}
}

// Rule: if a process is killed at any system call that changes a file, the state file is the one
// before or after a change, whole, and the next operation works.
func TestAKillAtEveryCallLeavesAWholeFile(t *testing.T) {
	t.Parallel()
	_, lives := bystander(t)
	cmd, dead := bystander(t)
	end(cmd)
	for operation := range crashes {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			for n, killed := 1, true; killed; n++ {
				r := prepare(t, operation, lives, dead)
				err := role(t, "crash", r.path, operation, strconv.Itoa(n)).Run()
				if killed = err != nil; killed && err.Error() != "signal: killed" {
					t.Fatalf("call %d: %v", n, err)
				}
				states := between[operation]
				if got := content(t, r); !slices.Contains(states, got) || !killed && got != states[len(states)-1] {
					t.Fatalf("call %d leaves the state %q, want one of %q", n, got, states)
				}
				if !killed && n < 4 {
					t.Errorf("the operation made only %d calls", n-1)
				}
				works(t, r)
			}
		})
	}
}

// Rule: if the disk is full, or the file system read-only, at any system call that changes a file,
// the operation fails and says so, the state file is the one before or after a change, whole, and
// the next operation works when there is room again.
func TestAFullDiskAtEveryCallLeavesAWholeFile(t *testing.T) {
	t.Parallel()
	_, lives := bystander(t)
	cmd, dead := bystander(t)
	end(cmd)
	for operation, f := range crashes {
		for _, reason := range []syscall.Errno{syscall.ENOSPC, syscall.EROFS, syscall.EACCES} {
			t.Run(operation+" "+reason.Error(), func(t *testing.T) {
				t.Parallel()
				for n, failed := 1, true; failed; n++ {
					r := prepare(t, operation, lives, dead)
					left := n
					r.step = func(string, string) error { // from the n-th call on
						if left--; left <= 0 {
							return reason
						}
						return nil
					}
					err := f(t.Context(), r)
					if failed = left <= 0; failed != (err != nil) || failed && !errors.Is(err, reason) {
						t.Fatalf("call %d: the error is %v", n, err)
					}
					r.step = nil
					states := between[operation]
					got := content(t, r)
					if n == 1 && got != states[0] || !slices.Contains(states, got) ||
						!failed && got != states[len(states)-1] {
						t.Fatalf("call %d leaves the state %q, want one of %q", n, got, states)
					}
					works(t, r)
				}
			})
		}
	}
}

// Rule: while the disk is full, the registry can be read: without dead workflows and without an
// orphan, with the reason why they are still in the file. An orphan has one event in the end.
func TestAFullDiskCanBeRead(t *testing.T) {
	_, lives := bystander(t)
	for operation, want := range map[string]int{"orphan": 1, "sweep": 0} {
		r := prepare(t, operation, lives, Process{})
		r.step = func(string, string) error { return syscall.ENOSPC }
		for range 2 {
			s, err := r.List(t.Context())
			if err != nil || !errors.Is(s.Unsaved, syscall.ENOSPC) || names(s) != "lives" || s.Swap != nil {
				t.Errorf("%s: the state is %+v, %v", operation, s, err)
			}
		}
		r.step = nil
		list(t, r)
		if n := strings.Count(events(t, r), "orphan_marker_cleared"); n != want {
			t.Errorf("%s: the log has %s", operation, events(t, r))
		}
	}
}

// Rule: on a real file system that is full, a registration fails and says so, and the entries stay.
func TestARealFullDiskChangesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var last error
	n := 0
	for ; last == nil && n < MaxWorkflows; n++ {
		_, last = r.Register(t.Context(), Registration{Name: fmt.Sprint(strings.Repeat("n", 190), n), Recipe: "a"})
	}
	if !errors.Is(last, syscall.ENOSPC) {
		t.Fatalf("after %d registrations the error is %v", n, last)
	}
	if s := list(t, r); len(s.Workflows) != n-1 {
		t.Errorf("%d workflows are left of %d", len(s.Workflows), n-1)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s, err := r.List(t.Context())
	if err != nil || len(s.Workflows) != n-1 {
		t.Errorf("read-only: %d workflows, %v", len(s.Workflows), err)
	}
	_, err = r.Renew(t.Context(), s.Workflows[0].Workflow)
	if !errors.Is(err, syscall.EROFS) {
		t.Errorf("read-only: %v", err)
	}
}
