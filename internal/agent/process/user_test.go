//go:build linux

package process

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Rule: the most important tests of this package also pass if they do not run as root. This test
// itself runs as root, and starts them again as the user nobody.
func TestWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("every test of this run is without root")
	}
	dir, err := os.MkdirTemp("", "belay-process-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run",
		"^(TestExitCode|TestNothingIsInherited|TestNothingOutlivesTheCommand|TestParentKilledLeavesNothing|TestCancelWhileFrozen|TestIsolationIsChosenByTrying|TestPidsAreLimitedWithoutRoot|TestInJob|TestNotInJob|TestHelper|TestFilesOfACommand|TestStartsUnderLimits|TestTheLimiterLeavesNoTraceInTheCommand|TestWall.*|TestSweepOrphans)$")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// Rule: mounted finds the directory of a cgroup if any mount shows that cgroup. It never returns a
// directory that the mount does not show.
func TestMountedCgroupIsFound(t *testing.T) {
	const mounts = `22 1 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
30 22 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate
31 22 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 22 0:28 /docker/abc /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
`
	for _, tt := range []struct {
		version          int
		memberships, dir string
	}{
		{2, "5:cpu:/x\n0::/user.slice/a.scope\n", "/sys/fs/cgroup/unified/user.slice/a.scope"},
		{2, "0::/\n", "/sys/fs/cgroup/unified"},
		{2, "0::/../outside\n", ""},
		{2, "5:cpu:/x\n", ""},
		{1, "6:freezer:/docker/abc/job\n", "/sys/fs/cgroup/freezer/job"},
		{1, "6:cpu,freezer:/docker/abc\n", "/sys/fs/cgroup/freezer"},
		{1, "6:freezer:/docker/other\n", ""},
		{1, "6:notfreezer:/docker/abc\n0::/\n", ""},
		{1, "garbage", ""},
	} {
		got := ""
		if path, ok := membership(tt.memberships, tt.version, freezing); ok {
			got, _ = mounted(mounts, tt.version, freezing, path)
		}
		if diff := cmp.Diff(tt.dir, got); diff != "" {
			t.Errorf("version %d, %q (-want +got):\n%s", tt.version, tt.memberships, diff)
		}
	}
}
