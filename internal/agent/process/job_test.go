//go:build linux

package process

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/host"
)

// sleepers lists the processes that sleep for the given time, in this PID namespace.
func sleepers(t *testing.T, seconds string) (pids []int) {
	t.Helper()
	table, err := host.Processes()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range table {
		raw, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cmdline")
		if strings.HasPrefix(string(raw), "sleep\x00"+seconds+"\x00") {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// Rule: InJob returns true for a process of a run, even if that process has removed the run id from
// its environment, has other parents and another session, and is in no cgroup.
func TestInJob(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		length := unique()
		c, _ := shell(t, kind, `sleep `+length+` & (setsid env -i PATH="$PATH" sleep `+length+` &) ; wait`)
		c.freezer = "none"
		tree := begin(t, t.Context(), c)
		until(t, "both sleep", func() bool { return len(sleepers(t, length)) == 2 })
		for _, pid := range append(sleepers(t, length), tree.supervisor.Process.Pid) {
			if in, err := InJob(pid); !in || err != nil {
				t.Errorf("process %d of the run: %v, %v", pid, in, err)
			}
		}
	})
}

// Rule: InJob returns false for a process outside of every run, even if that process has set
// no_new_privs.
func TestNotInJob(t *testing.T) {
	outside := exec.Command("sleep", unique())
	if err := outside.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = outside.Process.Kill(); _ = outside.Wait() })
	confined := exec.Command("setpriv", "--no-new-privs", "sleep", unique())
	if err := confined.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = confined.Process.Kill(); _ = confined.Wait() })
	for _, pid := range []int{os.Getpid(), 1, outside.Process.Pid, confined.Process.Pid} {
		if in, err := InJob(pid); in || err != nil {
			t.Errorf("process %d: %v, %v", pid, in, err)
		}
	}
}

// Rule: if InJob cannot determine whether a process is in a run, it returns true and an error.
func TestInJobSaysYesIfUnsure(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{0, -1, gone.Process.Pid} {
		if in, err := InJob(pid); !in || err == nil {
			t.Errorf("process %d: %v, %v", pid, in, err)
		}
	}
}

// Rule: InJob distinguishes the cgroup of a run from the cgroup of a systemd unit with a similar
// name.
func TestInJobByCgroup(t *testing.T) {
	for _, tt := range []struct {
		own, theirs string
		in          bool
	}{
		{"0::/\n", "0::/belay-run_1\n", true},
		{"4:memory:/a\n", "4:memory:/a/belay-run_1/deeper\n", true},
		{"0::/system.slice/belay.service/belay.server\n", "0::/system.slice/belay.service/belay-run_1\n", true},
		{"0::/system.slice/belay.service\n", "0::/system.slice/belay-worker.service\n", false},
		{"0::/system.slice\n", "0::/system.slice/belay-worker.service\n", false},
		{"0::/a/belay-run_1\n", "0::/a/belay-run_1\n", false},
		{"0::/a\n", "0::/b/belay-run_1\n", false},
		{"0::/a\n", "garbage", false},
	} {
		if in := groupedAs(tt.own, tt.theirs); in != tt.in {
			t.Errorf("%q in %q: %v", tt.theirs, tt.own, in)
		}
	}
}

// Rule: Has finds the processes of a run in every sandbox, also an orphan that has removed the run id from its
// environment, and no process of another run.
func TestTreeHasItsProcesses(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		var trees []*Tree
		var naps []string
		for range 2 {
			nap := unique()
			c, _ := shell(t, kind, `sleep `+nap+` & (setsid env -i PATH="$PATH" sleep `+nap+` &) ; wait`)
			c.Grace = -1
			trees, naps = append(trees, begin(t, t.Context(), c)), append(naps, nap)
		}
		for i, nap := range naps {
			until(t, "both sleep", func() bool { return len(sleepers(t, nap)) == 2 })
			for _, pid := range sleepers(t, nap) {
				if !trees[i].Has(pid) || trees[1-i].Has(pid) {
					t.Errorf("process %d: %v in its run, %v in another", pid, trees[i].Has(pid), trees[1-i].Has(pid))
				}
			}
		}
		for _, tree := range trees {
			if tree.Has(os.Getpid()) || tree.Has(1) {
				t.Error("a process outside belongs to the run")
			}
			tree.Kill(errTest)
			_, _ = tree.Wait()
		}
	})
}
