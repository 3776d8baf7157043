//go:build linux

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// Rule: a cancelled command gets SIGTERM and may end by itself. Wait returns the cause of the
// cancelled context and the exit code of the command.
func TestCancelLetsTheCommandEnd(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, out := shell(t, kind, "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done")
		ctx, cancel := context.WithCancelCause(t.Context())
		tree := begin(t, ctx, c)
		until(t, "the command is up", func() bool { return strings.Contains(out.String(), "up") })
		cancel(errTest)
		r, err := wait(t, tree)
		if !errors.Is(err, errTest) || !r.Cancelled || r.TimedOut || r.Code != 7 {
			t.Errorf("%+v, %v", r, err)
		}
		if out.stdout.String() != "up\nbye\n" {
			t.Errorf("output %q", out)
		}
		noneLeft(t, c.ID)
	})
}

// Rule: a command that ignores SIGTERM gets SIGKILL at the end of the grace period, and not before.
func TestTheGracePeriodEndsWithSIGKILL(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, out := shell(t, kind, "trap '' TERM; echo up; while :; do sleep 0.01; done")
		c.Grace = 200 * time.Millisecond
		ctx, cancel := context.WithCancelCause(t.Context())
		tree := begin(t, ctx, c)
		until(t, "the command is up", func() bool { return strings.Contains(out.String(), "up") })
		began := time.Now()
		cancel(errTest)
		r, err := wait(t, tree)
		if took := time.Since(began); took < c.Grace || took > c.Grace+slack {
			t.Errorf("ended %s after the cancellation, grace %s", took, c.Grace)
		}
		if !errors.Is(err, errTest) || r.Code != 137 || r.Signal != syscall.SIGKILL {
			t.Errorf("%+v, %v", r, err)
		}
		noneLeft(t, c.ID)
	})
}

// Rule: Kill sends no SIGTERM to the command, so no signal handler of the command runs.
func TestKillSendsNoSIGTERM(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, out := shell(t, kind, "trap 'echo handled' TERM; echo up; while :; do sleep 0.01; done")
		tree := begin(t, t.Context(), c)
		until(t, "the command is up", func() bool { return strings.Contains(out.String(), "up") })
		tree.Kill(nil)
		r, err := wait(t, tree)
		if !errors.Is(err, ErrKilled) || !r.Cancelled || r.Code != 137 || out.String() != "up\n" {
			t.Errorf("%+v, %v, output %q", r, err, out)
		}
		tree.Kill(nil) // Kill of a tree that has ended does nothing
	})
}

// daemons are scripts that leave a process behind when they end. That process keeps the output pipe
// open and sleeps for %s seconds.
var daemons = map[string]string{
	"background":   "sleep %s & exit 5",
	"setsid":       "setsid sleep %s & exit 5",
	"double fork":  "(setsid sh -c 'sleep %s & exit 0' &) ; exit 5",
	"no mark":      "env -i setsid /bin/sleep %s & exit 5",
	"ignores TERM": "(trap '' TERM HUP; setsid sh -c 'sleep %s; sleep 600' &) ; exit 5",
	"stopped":      "sh -c 'kill -STOP $$; sleep %s' & exit 5",
}

// Rule: if a command leaves processes behind, the run ends within its grace period and these
// processes are then dead, even if they keep the output pipe open.
func TestNothingOutlivesTheCommand(t *testing.T) {
	for name, script := range daemons {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			each(t, func(t *testing.T, kind Isolation) {
				nap := unique()
				c, _ := shell(t, kind, fmt.Sprintf(script, nap))
				c.Grace = 300 * time.Millisecond
				began := time.Now()
				r, err := wait(t, begin(t, t.Context(), c))
				if err != nil || r.Code != 5 || r.OutputCut || name == "background" && r.Stragglers != 1 {
					t.Errorf("%+v, %v", r, err)
				}
				if took := time.Since(began); took > c.Grace+slack {
					t.Errorf("ended after %s with a grace of %s", took, c.Grace)
				}
				noneLeft(t, c.ID, nap)
			})
		})
	}
}

// Rule: after the command itself has ended, the last process of its pipeline may finish its work,
// and the output of that process is delivered.
func TestOutputOfAPipelineArrivesAfterTheCommandEnded(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, out := shell(t, kind, "mkfifo p; (cat p; sleep 0.05; echo last) & echo first >p; exit 0")
		if r, err := Run(t.Context(), c); err != nil || r.Code != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		if out.String() != "first\nlast\n" {
			t.Errorf("output %q", out)
		}
	})
}

// Rule: a tree that keeps starting processes can be cancelled, and no process is left.
func TestForkingTreeIsCancelled(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		for _, means := range []string{"", "signals"} {
			nap := unique()
			c, out := shell(t, kind, "trap '' TERM; i=0; while [ $i -lt 2000 ]; do setsid sleep "+nap+
				" & i=$((i+1)); echo x; done")
			c.Grace, c.freezer = 100*time.Millisecond, means
			ctx, cancel := context.WithCancelCause(t.Context())
			tree := begin(t, ctx, c)
			until(t, "there are 50 processes", func() bool { return len(out.String()) >= 100 })
			cancel(errTest)
			if r, err := wait(t, tree); !errors.Is(err, errTest) || !r.Cancelled {
				t.Errorf("%+v, %v", r, err)
			}
			noneLeft(t, c.ID, nap)
		}
	})
}

// Rule: an error of Output cancels the command, and Wait returns that error.
func TestReceiverFails(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, _ := shell(t, kind, "while :; do echo x; done")
		calls := 0
		c.Output = func(context.Context, Chunk) error {
			calls++
			return errTest
		}
		r, err := wait(t, begin(t, t.Context(), c))
		if !errors.Is(err, errTest) || !r.Cancelled || !r.OutputCut {
			t.Errorf("%+v, %v", r, err)
		}
		if calls != 1 {
			t.Errorf("the receiver was called %d times after it had failed", calls-1)
		}
		noneLeft(t, c.ID)
	})
}

// Rule: if Output does not return, the run ends at most the drain time later, and the result says
// that output is missing.
func TestReceiverHangs(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, _ := shell(t, kind, "while :; do echo x; done")
		c.Drain = 200 * time.Millisecond
		hanging, released := make(chan struct{}), make(chan struct{})
		c.Output = func(ctx context.Context, _ Chunk) error {
			close(hanging)
			<-ctx.Done()
			close(released)
			return nil
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		tree := begin(t, ctx, c)
		<-hanging
		cancel(errTest)
		r, err := wait(t, tree)
		if !errors.Is(err, errTest) || !r.OutputCut {
			t.Errorf("%+v, %v", r, err)
		}
		<-released
		noneLeft(t, c.ID)
	})
}

// Rule: after kill -9 of the process that started a run (its parent), no process of the run is
// left: no daemon, no process that has removed the run id from its environment, and no frozen
// process. No cgroup is left either.
func TestParentKilledLeavesNothing(t *testing.T) {
	for _, frozen := range []string{"", "yes"} {
		for _, means := range []string{"", "signals"} {
			t.Run("frozen="+frozen+",freezer="+means, func(t *testing.T) {
				each(t, func(t *testing.T, kind Isolation) {
					run, nap := id(t), unique()
					script := "trap '' TERM HUP; env -i setsid /bin/sleep " + nap + " & (setsid sh -c 'sleep " + nap +
						" & wait' &) ; echo up; sleep " + nap
					ready := "up"
					if frozen != "" {
						ready = "frozen: <nil>"
					}
					cmd := startParent(t, kind, run, script, ready, parentFreezes+"="+frozen, parentFreezer+"="+means)
					if left := remaining(t, run, nap); len(left) < 4 {
						t.Fatalf("only %v runs", left)
					}
					if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
					until(t, "everything is gone", func() bool { return len(remaining(t, run, nap)) == 0 })
					until(t, "the control group is gone", func() bool { return len(groups(t, run)) == 0 })
				})
			})
		}
	}
}

// groups lists the control groups of a run.
func groups(t *testing.T, run string) (found []string) {
	t.Helper()
	for _, h := range hierarchies("/proc/self") {
		dir := filepath.Join(h.home, cgroupPrefix+run)
		if _, err := os.Stat(dir); err == nil {
			found = append(found, dir)
		}
	}
	return found
}

// supervisorOf returns the supervisor process of a run.
func supervisorOf(t *testing.T, run string) host.Status {
	t.Helper()
	table, err := host.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table {
		if of, ok := supervises(p.PID); ok && of == run {
			return p
		}
	}
	t.Fatalf("run %s has no supervisor", run)
	return host.Status{}
}

// Rule: if the supervisor is killed, all processes of the run are killed too, and Wait returns an
// error because the exit code is unknown. A run without a namespace and without a cgroup is an
// exception: only its processes with the run id in their environment are found and killed.
func TestSupervisorKilled(t *testing.T) {
	eachFreezer(t, func(t *testing.T, kind Isolation, means string) {
		nap := unique()
		unmarked := "env -i "
		if kind == Subreaper && means == "signals" {
			unmarked = ""
		}
		c, out := shell(t, kind, "trap '' TERM HUP; "+unmarked+"setsid /bin/sleep "+nap+" & (setsid sh -c 'sleep "+nap+
			" & wait' &) ; echo up; sleep "+nap)
		c.freezer = means
		tree := begin(t, t.Context(), c)
		until(t, "the command is up", func() bool { return strings.Contains(out.String(), "up") })
		if err := supervisorOf(t, c.ID).Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r, err := wait(t, tree)
		if !errors.Is(err, ErrLost) || r.Code != -1 {
			t.Errorf("%+v, %v", r, err)
		}
		noneLeft(t, c.ID, nap)
		if found := groups(t, c.ID); len(found) > 0 {
			t.Errorf("left behind: %v", found)
		}
	})
}

// Rule: if the supervisor does not answer, its parent kills all processes of the run after a time
// limit.
func TestSupervisorHangs(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		nap := unique()
		c, out := shell(t, kind, "setsid sleep "+nap+" & echo up; sleep "+nap)
		c.Grace = -1
		tree := begin(t, t.Context(), c)
		until(t, "the command is up", func() bool { return strings.Contains(out.String(), "up") })
		if err := supervisorOf(t, c.ID).Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		tree.Kill(errTest)
		if r, err := wait(t, tree); !errors.Is(err, ErrLost) || !errors.Is(err, errTest) {
			t.Errorf("%+v, %v", r, err)
		}
		noneLeft(t, c.ID, nap)
	})
}

// Rule: if the supervisor gets SIGTERM, it ends the run with the usual grace period, and the error
// of Wait says that a signal was the reason.
func TestSupervisorGetsSIGTERM(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, out := shell(t, kind, "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done")
		tree := begin(t, t.Context(), c)
		until(t, "the command is up", func() bool { return strings.Contains(out.String(), "up") })
		if err := supervisorOf(t, c.ID).Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		r, err := wait(t, tree)
		if err == nil || !strings.Contains(err.Error(), "told the supervisor to end") || r.Code != 7 || !r.Cancelled {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Rule: SweepOrphans kills all processes of runs that have ended, even a stopped supervisor, a
// frozen tree, and a process without the run id in its environment. It kills no process of another
// run.
func TestSweepOrphans(t *testing.T) {
	for _, means := range []string{"", "signals", "cgroup v1"} {
		t.Run(means, func(t *testing.T) {
			each(t, func(t *testing.T, kind Isolation) {
				run, nap := id(t), unique()
				other, _ := shell(t, kind, "sleep "+unique())
				bystander := begin(t, t.Context(), other)
				script := "env -i setsid /bin/sleep " + nap + " & echo up; sleep " + nap
				cmd := startParent(t, kind, run, script, "frozen: <nil>", parentFreezes+"=yes", parentFreezer+"="+means)
				// A stopped supervisor cannot react when its parent dies.
				supervisor := supervisorOf(t, run)
				if err := supervisor.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				cmd.Process.Signal(syscall.SIGKILL)
				cmd.Wait()
				if left := remaining(t, run, nap); len(left) < 3 {
					t.Fatalf("only %v is left to sweep", left)
				}
				killed, err := SweepOrphans(t.Context(), func(id string) bool { return id == run })
				if err != nil {
					t.Fatal(err)
				}
				noneLeft(t, run, nap)
				if found := groups(t, run); len(found) > 0 {
					t.Errorf("left behind: %v", found)
				}
				self, err := host.Self()
				if err != nil {
					t.Fatal(err)
				}
				if len(killed) < 3 {
					t.Errorf("killed %v", killed)
				}
				for _, k := range killed {
					if k.RunID != run || k.Process.State(self) != host.Dead {
						t.Errorf("%s of run %s is %s", k.Process, k.RunID, k.Process.State(self))
					}
				}
				if len(remaining(t, other.ID)) == 0 {
					t.Error("the sweep has killed another run")
				}
				bystander.Kill(nil)
			})
		})
	}
}

// Rule: if a run has a cgroup, SweepOrphans finds even a process whose parent and supervisor have
// ended and that has removed the run id from its environment.
func TestSweepFindsByCgroup(t *testing.T) {
	for _, means := range freezers(t) {
		if means == "signals" {
			continue
		}
		run, nap := id(t), unique()
		script := "env -i setsid /bin/sleep " + nap + " & echo up; sleep 600"
		cmd := startParent(t, Subreaper, run, script, "up", parentFreezer+"="+means)
		// The parent is stopped, so it cannot kill the remaining processes when their supervisor dies.
		for _, step := range []func() error{
			func() error { return cmd.Process.Signal(syscall.SIGSTOP) },
			func() error { return supervisorOf(t, run).Signal(syscall.SIGKILL) },
			func() error { return cmd.Process.Signal(syscall.SIGKILL) },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		cmd.Wait()
		if len(remaining(t, "none", nap)) == 0 {
			t.Fatal("the orphan has not survived its supervisor")
		}
		if _, err := SweepOrphans(t.Context(), func(id string) bool { return id == run }); err != nil {
			t.Fatal(err)
		}
		noneLeft(t, run, nap)
		if found := groups(t, run); len(found) > 0 {
			t.Errorf("left behind: %v", found)
		}
	}
}

// Rule: SweepOrphans kills neither the process that calls it nor the run to which that process
// belongs.
func TestSweepSparesItself(t *testing.T) {
	if os.Getenv("PROCESS_TEST_SWEEPS") != "" {
		_, err := SweepOrphans(t.Context(), func(id string) bool { return id == os.Getenv("PROCESS_TEST_SWEEPS") })
		fmt.Println("swept:", err)
		return
	}
	run := id(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestSweepSparesItself$", "-test.v")
	cmd.Env = []string{Marker + "=" + run, "PROCESS_TEST_SWEEPS=" + run}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "swept: <nil>") {
		t.Errorf("%v: %s", err, out)
	}
}

// Rule: after the tree has ended, its methods return at once, and each call returns the same
// result.
func TestEndedTree(t *testing.T) {
	c, _ := shell(t, Auto, "exit 3")
	tree := begin(t, t.Context(), c)
	first, err := wait(t, tree)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := tree.Wait(); err != nil || !reflect.DeepEqual(again, first) {
		t.Errorf("asked again: %+v, %v", again, err)
	}
	if err := tree.Freeze(t.Context()); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("freeze: %v", err)
	}
	if err := tree.Thaw(t.Context()); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("thaw: %v", err)
	}
}

// Rule: a run leaves no goroutine and no open file in its parent process, however the run ended.
func TestRunsLeakNothing(t *testing.T) {
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	rounds := func() {
		for _, script := range []string{"exit 0", "sleep " + unique(), "setsid sleep " + unique() + " &"} {
			c, _ := shell(t, Auto, script)
			c.Stdin, c.Timeout, c.Grace = []byte("unread"), 50*time.Millisecond, -1
			_, _ = Run(t.Context(), c)
		}
		_, _ = Run(t.Context(), Command{ID: id(t), Args: []string{"no-such-command"}, Dir: "/"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = Run(ctx, Command{ID: id(t), Args: []string{"true"}, Dir: "/"})
	}
	rounds()
	before, open := runtime.NumGoroutine(), files()
	for range 5 {
		rounds()
	}
	until(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	if now := files(); now > open {
		t.Errorf("%d files are open, %d before", now, open)
	}
}
