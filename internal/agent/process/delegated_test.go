//go:build linux

package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inService is an environment variable for the test binary. If it is set, the test binary runs
// inside a simulated systemd service, and the value is the cgroup of that service.
const inService = "PROCESS_TEST_SERVICE"

// treeV2 returns the cgroup v2 tree of this machine, with the group of this process in the tree. It
// skips the test if the machine has no cgroup v2.
func treeV2(t *testing.T) hierarchy {
	t.Helper()
	for _, h := range hierarchies("/proc/self") {
		if h.version == 2 {
			return h
		}
	}
	t.Skip("cgroup v2 is not mounted here")
	return hierarchy{}
}

// controllersOf reads the names of controllers from a file of a cgroup, such as cgroup.controllers.
func controllersOf(t *testing.T, path string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(raw))
}

// service simulates a systemd unit with Delegate=yes and, if leaf is not empty,
// DelegateSubgroup=leaf: it makes a cgroup with all available controllers. It then runs the named
// test again in a process of that cgroup.
func service(t *testing.T, test, leaf string) {
	t.Helper()
	top := treeV2(t).home
	var handed []string
	t.Cleanup(func() { // runs after the group was removed
		for _, c := range handed {
			_ = write(top, "cgroup.subtree_control", "-"+c)
		}
	})
	group := filepath.Join(top, fmt.Sprintf("belay-test-%d", time.Now().UnixNano()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("this user may not make a group in cgroup v2: %v", err)
	}
	t.Cleanup(func() {
		for _, dir := range []string{filepath.Join(group, leaf), group} {
			(&cgroup{dir: dir}).close()
		}
		if _, err := os.Stat(group); err == nil {
			t.Errorf("the group %s was not removed", group)
		}
	})
	for _, c := range controllersOf(t, filepath.Join(top, "cgroup.controllers")) {
		if !slices.Contains(controllersOf(t, filepath.Join(top, "cgroup.subtree_control")), c) &&
			write(top, "cgroup.subtree_control", "+"+c) == nil {
			handed = append(handed, c)
		}
	}
	home := filepath.Join(group, leaf)
	if err := os.MkdirAll(home, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(home)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", "^"+test+"$")
	cmd.Env = append(os.Environ(), inService+"="+group)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in %s: %v\n%s", home, err, out)
	}
	t.Logf("in %s:\n%s", home, out)
}

// Rule: if systemd runs a service in its own subgroup (DelegateSubgroup), the cgroups of runs are
// made beside that subgroup, and the kernel lets these cgroups have controllers. A run in such a
// cgroup can be frozen, and leaves no cgroup after its end.
func TestRunsOfAService(t *testing.T) {
	group := os.Getenv(inService)
	if group == "" {
		service(t, "TestRunsOfAService", ServiceGroup)
		return
	}
	h := treeV2(t)
	if h.home != filepath.Join(group, ServiceGroup) || h.place() != group {
		t.Fatalf("this is %s, and runs are in %s", h.home, h.place())
	}
	for _, c := range controllersOf(t, filepath.Join(group, "cgroup.controllers")) {
		if err := enableController(h.place(), c); err != nil {
			t.Errorf("%s is not handed down: %v", c, err)
		}
	}
	c, _ := shell(t, Auto, `while :; do printf x >>counter; done`)
	c.Grace = -1
	tree := begin(t, t.Context(), c)
	if dir := filepath.Join(group, cgroupPrefix+c.ID); tree.cgroup.dir != dir || tree.result.Freezer != "cgroup v2" {
		t.Errorf("the run's group is %s, frozen by %s; want %s", tree.cgroup.dir, tree.result.Freezer, dir)
	}
	if err := tree.Freeze(t.Context()); err != nil {
		t.Error(err)
	}
	mustStay(t, "the counter", func() int64 { return size(filepath.Join(c.Dir, "counter")) })
	tree.Kill(nil)
	_, _ = wait(t, tree)
	if left, _ := filepath.Glob(filepath.Join(group, cgroupPrefix+"*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// Rule: if systemd runs a service without a subgroup of its own (DelegateSubgroup), the cgroups of
// its runs cannot have controllers. Limits are then enforced by other means, or the result names
// them as not enforced.
func TestRunsOfAServiceWithoutASubgroup(t *testing.T) {
	group := os.Getenv(inService)
	if group == "" {
		service(t, "TestRunsOfAServiceWithoutASubgroup", "")
		return
	}
	for _, c := range controllersOf(t, filepath.Join(group, "cgroup.controllers")) {
		if err := enableController(treeV2(t).place(), c); err == nil {
			t.Errorf("%s was handed down by a group that has processes", c)
		}
	}
	c, _ := shell(t, Auto, "true")
	c.Limits = Limits{Pids: 100, Memory: 1 << 30}
	r, err := Run(t.Context(), c)
	if err != nil || r.Code != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, by := range []string{r.Enforced.Pids, r.Enforced.Memory} {
		if by == "cgroup v2" || by == "" {
			t.Errorf("enforced by %+v", r.Enforced)
		}
	}
}

// Rule: in cgroup v2 the kernel stops a fork bomb and a process that uses too much memory when they
// reach their limits, and the result names the limit that was reached.
func TestLimitsOfCgroupV2(t *testing.T) {
	group := os.Getenv(inService)
	if group == "" {
		have := controllersOf(t, filepath.Join(treeV2(t).home, "cgroup.controllers"))
		if !slices.Contains(have, pids) || !slices.Contains(have, memory) {
			t.Skipf("cgroup v2 has the controllers %q here; pids and memory belong to cgroup v1, whose "+
				"limits other tests check", have)
		}
		service(t, "TestLimitsOfCgroupV2", ServiceGroup)
		return
	}
	if h := treeV2(t); enableController(h.place(), pids) != nil || enableController(h.place(), memory) != nil {
		t.Skip("this group has no controllers to hand down")
	}
	c, out := shell(t, Auto, forks)
	c.Args = []string{"/bin/bash", "-c", forks}
	c.Limits, c.Timeout, c.Grace = Limits{Pids: 40}, 3*time.Second, -1
	if r, err := Run(t.Context(), c); r.Enforced.Pids != "cgroup v2" ||
		!strings.Contains(r.Exceeded, "more than 40 processes") {
		t.Errorf("a fork bomb: %+v, %v\n%s", r, err, out)
	}
	c, out = shell(t, Auto, `dd if=/dev/zero of=/dev/null bs=256M count=1`)
	c.Limits = Limits{Memory: 64 << 20}
	if r, err := Run(t.Context(), c); err != nil || r.Code == 0 || r.Enforced.Memory != "cgroup v2" ||
		!strings.Contains(r.Exceeded, "more than 64 MiB of memory") {
		t.Errorf("a memory hog: %+v, %v\n%s", r, err, out)
	}
}
