//go:build linux

package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay/internal/host"
)

// ranges counts the ranges of user ids that tests have taken. Each test takes its own range, so
// that parallel tests do not share a user.
var ranges atomic.Uint32

// tenant returns a user that no other program on the machine uses. It skips the test if the test
// does not run as root.
func tenant(t *testing.T) *host.User {
	t.Helper()
	return tenants(t, 1)[0]
}

// tenants returns n users that no other program on the machine uses.
func tenants(t *testing.T, n int) (users []*host.User) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run commands as another user")
	}
	pool, err := OpenPool(filepath.Join(t.TempDir(), "users"), Range{
		First: 1_900_000_000 + uint32(os.Getpid()%1000)*1000 + 8*ranges.Add(1), Count: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		seat, err := pool.Take(t.Context(), id(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := seat.Free(context.Background()); err != nil {
				t.Error(err)
			}
		})
		users = append(users, &seat.User)
	}
	return users
}

// canLimit reports whether this user can make cgroups with the given controller on this machine.
func canLimit(t *testing.T, controller string) bool {
	t.Helper()
	b := &bounds{limits: Limits{Pids: 64, Memory: 1 << 30, CPU: 1}}
	defer b.close()
	return b.group(id(t)+controller, controller, true) != ""
}

// forks is a script for bash that starts children until fork fails, and then waits for them.
const forks = `for i in $(seq 300); do sleep 600 & done; wait`

// Rule: a run cannot have more processes than its limit, whether a cgroup or a resource limit
// enforces the limit. No process is left after the run.
func TestPidsAreLimited(t *testing.T) {
	user := tenant(t)
	for _, means := range []string{"", byRlimit} {
		t.Run("by-"+means, func(t *testing.T) {
			if means == "" && !canLimit(t, pids) {
				t.Skip("this user has no pids controller here")
			}
			c, out := shell(t, PIDNamespace, forks)
			c.Args[0], c.Args = "/bin/bash", []string{"/bin/bash", "-c", forks}
			c.Dir, c.User, c.bounds = "/", user, means
			c.Limits.Pids, c.Timeout, c.Grace = 40, 3*time.Second, -1
			tree := begin(t, t.Context(), c)
			most := 0
			for done := false; !done; {
				select {
				case <-tree.Done():
					done = true
				case <-time.After(5 * time.Millisecond):
					most = max(most, len(processesOf(user.UID)))
				}
			}
			r, err := wait(t, tree)
			if most > 40 || most < 20 {
				t.Errorf("there were %d processes; want up to 40\n%s", most, out)
			}
			if !r.TimedOut && r.Code == 0 {
				t.Errorf("it ended without an error: %+v, %v", r, err)
			}
			if want := map[string]string{"": "cgroup", byRlimit: byRlimit}[means]; !strings.HasPrefix(r.Enforced.Pids,
				want) {
				t.Errorf("enforced by %q", r.Enforced.Pids)
			}
			if means == "" && !strings.Contains(r.Exceeded, "more than 40 processes") {
				t.Errorf("the result does not name the limit: %q", r.Exceeded)
			}
			if left := processesOf(user.UID); len(left) > 0 {
				t.Errorf("still there: %v", left)
			}
		})
	}
}

// Rule: in a user namespace the kernel counts processes from zero, so a limit on the number of
// processes needs neither root nor a cgroup.
func TestPidsAreLimitedWithoutRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("TestWithoutRoot runs this one as nobody")
	}
	for limit, want := range map[int]int{40: 2, 0: 0} { // sh ends with exit code 2 if it cannot fork
		c, out := shell(t, UserNamespace, `for i in $(seq 60); do sleep 600 & done; true`)
		c.Dir, c.bounds, c.Grace, c.Limits.Pids = "/", byRlimit, -1, limit
		r, err := Run(t.Context(), c)
		if err != nil || (r.Code != 0) != (want != 0) {
			t.Errorf("limit %d: code %d, want %d, %v\n%s", limit, r.Code, want, err, out)
		}
		if limit > 0 && r.Enforced.Pids != byRlimit {
			t.Errorf("enforced by %q", r.Enforced.Pids)
		}
	}
}

// Rule: a run cannot use more memory than its limit, and the result names this limit as reached.
func TestMemoryIsLimited(t *testing.T) {
	user := tenant(t)
	for _, means := range []string{"", byRlimit} {
		t.Run("by-"+means, func(t *testing.T) {
			if means == "" && !canLimit(t, memory) {
				t.Skip("this user has no memory controller here")
			}
			// dd reads a whole block into memory before it writes the block.
			c, out := shell(t, PIDNamespace, `dd if=/dev/zero of=/dev/null bs=256M count=1`)
			c.Dir, c.User, c.bounds = "/", user, means
			c.Limits.Memory = 64 << 20
			r, err := Run(t.Context(), c)
			if err != nil || r.Code == 0 {
				t.Errorf("code %d, %v\n%s", r.Code, err, out)
			}
			if means == "" && !strings.Contains(r.Exceeded, "more than 64 MiB of memory") {
				t.Errorf("the result does not name the limit: %q, %+v", r.Exceeded, r)
			}
			if means == "" && r.Usage.MaxRSS > 80<<20 {
				t.Errorf("it had %d bytes", r.Usage.MaxRSS)
			}
			if c.Limits.Memory = 1 << 30; means == "" {
				if r, err := Run(t.Context(), c); err != nil || r.Code != 0 || r.Exceeded != "" {
					t.Errorf("within its limit: %+v, %v\n%s", r, err, out)
				}
			}
		})
	}
}

// Rule: the memory limit applies to the sum over all processes of a run, and files in memory count
// towards it.
func TestWallMemory(t *testing.T) {
	if !canLimit(t, memory) {
		t.Skip("this user has no memory controller here")
	}
	each(t, func(t *testing.T, kind Isolation) {
		c, _ := sealed(t, kind)
		c.Limits.Memory, c.Insist = 64<<20, []Wall{WallLimits}
		permitted(t, c, "hoard 8")
		c.Args, c.Helper, c.Stdin = []string{"attacker"}, true, []byte("hoard 256\n")
		if r, err := Run(t.Context(), c); err != nil || r.Code == 0 ||
			!strings.Contains(r.Exceeded, "64 MiB of memory") {
			t.Errorf("a file in memory: %+v, %v", r, err)
		}
		const together = "for i in 1 2 3 4 5 6 7 8; do head -c 32M /dev/zero | tail -c 32M | wc -c & done; wait"
		c.Args, c.Helper, c.Stdin = []string{"/bin/sh", "-c", together}, false, nil
		if r, err := Run(t.Context(), c); err != nil || !strings.Contains(r.Exceeded, "64 MiB of memory") {
			t.Errorf("several processes: %+v, %v", r, err)
		}
	})
}

// Rule: a run gets no more processor time than its limit allows.
func TestProcessorsAreLimited(t *testing.T) {
	if !canLimit(t, cpu) {
		t.Skip("this user has no cpu controller here")
	}
	c, _ := shell(t, Auto, `while :; do :; done`)
	c.Limits.CPU, c.Timeout, c.Grace = 0.1, time.Second, -1
	r, err := Run(t.Context(), c)
	if !r.TimedOut {
		t.Fatalf("%+v, %v", r, err)
	}
	if used := r.Usage.User + r.Usage.System; used > 400*time.Millisecond {
		t.Errorf("it used %s of a second; want a tenth", used)
	}
}

// Rule: no file gets larger than the limit.
func TestFilesAreLimited(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, out := shell(t, kind, `dd if=/dev/zero of=big bs=64k count=64; stat -c %s big; ulimit -Hf`)
		c.Limits.FileSize = 1 << 20
		r, err := Run(t.Context(), c)
		if err != nil || !strings.Contains(out.String(), "1048576") {
			t.Errorf("%+v, %v\n%s", r, err, out)
		}
		if info, err := os.Stat(filepath.Join(c.Dir, "big")); err != nil || info.Size() != 1<<20 {
			t.Errorf("%v, %v", info, err)
		}
	})
}

// Rule: the result names each limit that this machine cannot enforce.
func TestUnenforcedLimitsAreReported(t *testing.T) {
	c, _ := shell(t, Subreaper, "true")
	c.bounds = byRlimit
	c.Limits = Limits{Pids: 100, Memory: 1 << 30, CPU: 1}
	tree := begin(t, t.Context(), c)
	r, err := wait(t, tree)
	if err != nil {
		t.Fatal(err)
	}
	want := Enforced{Pids: Unenforced, Memory: byRlimit, CPU: Unenforced}
	if diff := cmp.Diff(want, r.Enforced); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if d := tree.Describe(); !strings.Contains(d, "100 processes by nothing") ||
		!strings.Contains(d, "1 GiB of memory by rlimit") {
		t.Errorf("described as %q", d)
	}
}

// Rule: validate refuses impossible limits.
func TestLimitsAreChecked(t *testing.T) {
	for _, l := range []Limits{{Pids: -1}, {Pids: 3}, {Memory: 1000}, {CPU: 0.001}, {FileSize: -5}} {
		c, _ := shell(t, Auto, "true")
		if c.Limits = l; c.validate() == nil {
			t.Errorf("%+v was accepted", l)
		}
	}
}

// Rule: in cgroup v2, the controllers are first enabled in the parent of a group. The limits are
// then written to the files of the group itself.
func TestCgroupV2Files(t *testing.T) {
	dir := t.TempDir()
	place := filepath.Join(dir, "service")
	g := bound{hierarchy: hierarchy{version: 2, home: filepath.Join(place, ServiceGroup)}}
	g.dir = filepath.Join(g.place(), cgroupPrefix+"run")
	for name, text := range map[string]string{
		"service/cgroup.subtree_control": "memory\n", "service/belay-run/pids.max": "",
		"service/belay-run/memory.max": "",
		"service/belay-run/cpu.max":    "", "service/belay-run/memory.events": "low 0\noom 3\noom_kill 2\n",
		"service/belay-run/pids.events": "max 7\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := &bounds{limits: Limits{Pids: 100, Memory: 64 << 20, CPU: 1.5}}
	for _, controller := range []string{pids, memory, cpu} {
		g.controller = controller
		if err := g.make(b.limits); err != nil {
			t.Fatal(err)
		}
		b.groups = append(b.groups, g)
	}
	got := make(map[string]string)
	for _, name := range []string{"pids.max", "memory.max", "cpu.max"} {
		raw, err := os.ReadFile(filepath.Join(g.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(raw)
	}
	want := map[string]string{"pids.max": "100", "memory.max": "67108864", "cpu.max": "150000 100000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if said := b.exceeded(); !strings.Contains(said, "killed 2 of its processes") ||
		!strings.Contains(said, "7 times") {
		t.Errorf("exceeded: %q", said)
	}
}
