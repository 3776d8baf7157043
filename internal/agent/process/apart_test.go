//go:build linux

package process

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bystander is the environment variable that turns the test binary into a bystander: a process that
// has the same user as a run and belongs to no run. With the value "closed" the bystander is not
// dumpable, so other processes of its user cannot read its memory.
const bystander = "PROCESS_TEST_BYSTANDER"

// standBy is the main function of a bystander: it prints that it is ready and waits to be killed.
func standBy() {
	if os.Getenv(bystander) == "closed" {
		if err := Undumpable(); err != nil {
			panic(err)
		}
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// startBystander starts a bystander and waits until it is ready.
func startBystander(t *testing.T, state string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{bystander + "=" + state, "SECRET=bystander"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = in.Close()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd
}

// readAttacks lists the attacks that try to read the process pid.
func readAttacks(pid string) []string {
	return []string{"read /proc/" + pid + "/environ", "read /proc/" + pid + "/mem", "follow /proc/" + pid + "/fd/0",
		"read /proc/" + pid + "/maps", "list /proc/" + pid + "/root/",
		"peek " + pid, "steal " + pid + " 0", "attach " + pid}
}

// Rule: a run cannot kill, stop, limit or read a process outside the run, even if both have the
// same user. The test tries this on the supervisor of the run, on the process that started the run,
// and on an unrelated process.
func TestWallApart(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		other := startBystander(t, "open")
		c, _ := sealed(t, kind)
		c.Insist = []Wall{WallApart}
		var lines []string
		for _, pid := range []string{"parent", strconv.Itoa(os.Getpid()), strconv.Itoa(other.Process.Pid)} {
			lines = append(lines, "killthread "+pid, "kill "+pid+" 9", "kill "+pid+" 19", "prlimit "+pid)
			if pid != "parent" {
				lines = append(lines, readAttacks(pid)...)
			}
		}
		lines = append(lines, "kill -"+strconv.Itoa(os.Getpid())+" 9")
		r := repelled(t, c, lines...)
		if (r.Walls.Apart == byLandlock) != (kind == Subreaper) {
			t.Errorf("apart by %q", r.Walls.Apart)
		}
		if err := other.Process.Signal(syscall.Signal(0)); err != nil {
			t.Error(err)
		}
		// The run can still kill its own processes.
		c.Helper, c.Args = false, []string{"/bin/sh", "-c", "sleep 600 & kill -9 $!; wait $!; test $? = 137"}
		if r, err := Run(t.Context(), c); err != nil || r.Code != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Rule: a run cannot read the memory, environment and files of its supervisor, even if neither
// Landlock nor the filter of system calls restricts the run.
func TestWallApartFromTheSupervisor(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		for _, without := range [][]string{nil, {byLandlock, byFilter}} {
			c, _ := sealed(t, kind)
			out := new(transcript)
			c.Args, c.Output = []string{"/bin/sh", "-c",
				`for f in environ mem maps; do head -c 1 /proc/$PPID/$f >/dev/null 2>&1 && echo "READ $f"; done
readlink /proc/$PPID/fd/0 && echo "READ fd"; ls /proc/$PPID/root/ >/dev/null 2>&1 && echo "READ root"; true`}, out.take
			c.without, c.Insist = without, nil
			if r, err := Run(t.Context(), c); err != nil || r.Code != 0 || strings.Contains(out.String(), "READ") {
				t.Errorf("without %q: %q, %+v, %v", without, out, r, err)
			}
		}
	})
}

// Rule: if a process is not dumpable, other processes of its user cannot read it, even without a
// sandbox between them. It can still start runs of every kind of isolation.
func TestWallUndumpable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads every process; TestWithoutRoot runs this one as nobody")
	}
	c, _ := shell(t, Subreaper, "")
	c.without = []string{byLandlock, byFilter}
	pid := strconv.Itoa(startBystander(t, "open").Process.Pid) // a dumpable process of the same user can be read
	permitted(t, c, "read /proc/"+pid+"/environ", "follow /proc/"+pid+"/fd/0", "peek "+pid, "steal "+pid+" 0")
	repelled(t, c, readAttacks(strconv.Itoa(startBystander(t, "closed").Process.Pid))...)
	for _, kind := range isolations() {
		id := id(t)
		parent := startParent(t, kind, id, "echo ready; sleep "+unique(), "ready", parentCloses+"=1")
		if raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", parent.Process.Pid)); err == nil {
			t.Errorf("%s: its environment is %q", kind, raw)
		}
	}
}

// Rule: two runs cannot connect to each other through an abstract socket, whether they run as the
// same user or as two users.
func TestWallSockets(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		for _, two := range []bool{false, true} {
			name := fmt.Sprintf("@belay-test-%d-%s", os.Getpid(), unique())
			host, guest := uniqueSealed(t, kind), uniqueSealed(t, kind)
			if two {
				if os.Geteuid() != 0 || kind == UserNamespace {
					continue
				}
				users := tenants(t, 2)
				host.User, guest.User = users[0], users[1]
				host.Dir, guest.Dir, host.Writable, guest.Writable, guest.Insist, host.Insist = "/", "/", nil, nil, nil,
					nil
			}
			out := new(transcript)
			host.Args, host.Helper, host.Output, host.Grace = []string{"attacker"}, true, out.take, -1
			host.Stdin = []byte("meet " + name + "\n")
			begin(t, t.Context(), host)
			until(t, "the host waits", func() bool { return strings.Contains(out.String(), "waiting") })
			r := repelled(t, guest, "dial unix "+name)
			if r.Walls.Sockets != byLandlock {
				t.Errorf("kept apart by %q", r.Walls.Sockets)
			}
			guest.without, guest.Insist = []string{byLandlock}, nil
			permitted(t, guest, "dial unix "+name) // a process may connect to a socket of the same run
		}
	})
}

// uniqueSealed returns a sealed run (a run that may write only in its own directory) with a unique
// id. Two such runs can exist at the same time.
func uniqueSealed(t *testing.T, kind Isolation) Command {
	t.Helper()
	c, _ := sealed(t, kind)
	c.ID = id(t) + "-" + unique()
	return c
}

// Rule: a run in a namespace has its own IPC and UTS namespaces.
func TestWallIPC(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		if kind == Subreaper {
			t.Skip("a subreaper has no IPC namespace")
		}
		c, out := shell(t, kind, "readlink /proc/self/ns/ipc /proc/self/ns/uts; id -u; hostname belay-canary "+
			"2>/dev/null; true")
		if _, err := Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"ipc", "uts"} {
			ours, err := os.Readlink("/proc/self/ns/" + name)
			if got := strings.Split(out.String(), "\n")[i]; err != nil || got == ours || !strings.HasPrefix(got, name) {
				t.Errorf("%s namespace %q, ours is %q, %v", name, got, ours, err)
			}
		}
		if name, _ := os.Hostname(); name == "belay-canary" {
			t.Error("the run changed the host name of the machine")
		}
	})
}

// Rule: if a run in a sandbox runs as root, it has no capability with which it could remove parts
// of the sandbox. A run in a user namespace has no capability at all.
func TestWallCapabilities(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, _ := sealed(t, kind)
		out := new(transcript)
		c.Args, c.Output = []string{"grep", "-E", "^Cap(Prm|Eff|Amb|Inh)", "/proc/self/status"}, out.take
		if r, err := Run(t.Context(), c); err != nil || r.Code != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		want := uint64(0)
		if os.Geteuid() == 0 && kind != UserNamespace {
			want = contained
		}
		for line := range strings.Lines(out.String()) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			got, err := strconv.ParseUint(text, 16, 64)
			if limit := map[bool]uint64{true: want}[name == "CapPrm" || name == "CapEff"]; err != nil ||
				got&^limit != 0 {
				t.Errorf("%s %x, want at most %x, %v", name, got, limit, err)
			}
		}
	})
}

// Rule: Walls and Describe name the walls of a run (the restrictions of its sandbox), and Open
// names the accesses that the run still has.
func TestWallsAreDescribed(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, _ := hiddenFiles(t, kind)
		c.Args = []string{"true"}
		tree := begin(t, t.Context(), c)
		r, err := wait(t, tree)
		if err != nil {
			t.Fatal(err)
		}
		want := map[Isolation]Walls{
			PIDNamespace: {Seal: "mounts+landlock", Hidden: "mounts", Apart: "namespace+landlock", Sockets: "landlock",
				Covers: "files+signals+sockets"},
			UserNamespace: {Seal: "mounts+landlock", Hidden: "mounts", Apart: "namespace+landlock", Sockets: "landlock",
				Covers: "files+signals+sockets"},
			Subreaper: {Seal: "landlock", Hidden: "landlock", Apart: "landlock", Sockets: "landlock",
				Covers: "files+signals+sockets"},
		}[kind]
		want.Isolation, want.User, want.Landlock = kind, uint32(os.Geteuid()), landlockABI()
		if diff := cmp.Diff(want, r.Walls); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		raw, err := json.Marshal(tree.Walls())
		if err != nil || !strings.Contains(string(raw), `"seal":"`+want.Seal+`"`) {
			t.Errorf("%s, %v", raw, err)
		}
		if d := tree.Describe(); !strings.Contains(d, "; hidden by "+want.Hidden) || !strings.Contains(d, "Landlock ") {
			t.Errorf("described as %q", d)
		}
		if text := strings.Join(r.Walls.Open(), "; "); !strings.Contains(text, "the network") ||
			strings.Contains(text, "modes") != (kind == Subreaper) {
			t.Errorf("open: %s", text)
		}
	})
}
