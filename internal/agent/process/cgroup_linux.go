package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// cgroupPrefix begins the name of a run's cgroup; the run id follows.
const cgroupPrefix = "belay-"

// hierarchy is one mounted cgroup tree that can freeze, and where in it this
// process is.
type hierarchy struct {
	version int
	home    string
}

func (h hierarchy) String() string { return "cgroup v" + strconv.Itoa(h.version) }

// hierarchies lists the cgroup trees that can freeze, the better one first, with the
// place of the process whose directory in /proc is given.
func hierarchies(process string) []hierarchy {
	memberships, err := os.ReadFile(process + "/cgroup")
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var found []hierarchy
	for _, version := range []int{2, 1} {
		path, ok := membership(string(memberships), version)
		if !ok {
			continue
		}
		if home, ok := mounted(string(mounts), version, path); ok {
			found = append(found, hierarchy{version: version, home: home})
		}
	}
	return found
}

// membership finds this process's path in the tree of the given version, out of
// /proc/self/cgroup: lines of "number:controllers:path".
func membership(lines string, version int) (string, bool) {
	for line := range strings.Lines(lines) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		if version == 2 && f[0] == "0" && f[1] == "" || version == 1 && contains(f[1], "freezer") {
			return f[2], !strings.Contains(f[2], "..")
		}
	}
	return "", false
}

// mounted finds the directory that shows path, out of /proc/self/mountinfo.
func mounted(lines string, version int, path string) (string, bool) {
	for line := range strings.Lines(lines) {
		mount, source, ok := strings.Cut(line, " - ")
		f, s := strings.Fields(mount), strings.Fields(source)
		if !ok || len(f) < 6 || len(s) < 3 {
			continue
		}
		if version == 2 && s[0] != "cgroup2" || version == 1 && (s[0] != "cgroup" || !contains(s[2], "freezer")) {
			continue
		}
		below, err := filepath.Rel(f[3], path)
		if err != nil || strings.HasPrefix(below, "..") {
			continue // the mount shows another part of the tree
		}
		return filepath.Join(f[4], below), true
	}
	return "", false
}

func contains(list, word string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if item == word {
			return true
		}
	}
	return false
}

// cgroup is a run's own control group, used for freezing and for killing.
type cgroup struct {
	hierarchy
	dir string
}

// newCgroup makes a group for the run below this process's own, and proves that it
// can be entered and left: a supervisor caught in it would freeze itself.
func newCgroup(h hierarchy, id string) (*cgroup, error) {
	c := &cgroup{hierarchy: h, dir: filepath.Join(h.home, cgroupPrefix+id)}
	if err := os.Mkdir(c.dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	_, err := os.Stat(filepath.Join(c.dir, c.control()))
	if err == nil {
		var leave func()
		if leave, err = c.enter(); err == nil {
			leave()
		}
	}
	if err == nil && c.holds(os.Getpid()) {
		err = errors.New("the group cannot be left")
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// run is the id of the run whose group it is.
func (c *cgroup) run() string { return strings.TrimPrefix(filepath.Base(c.dir), cgroupPrefix) }

func (c *cgroup) control() string {
	if c.version == 2 {
		return "cgroup.freeze"
	}
	return "freezer.state"
}

func (c *cgroup) describe(r *report) {
	r.Freezer, r.Cgroup, r.Version = c.String(), c.dir, c.version
}

// enter moves this process into the group, since a child starts where its parent
// is, and leave moves it back.
func (c *cgroup) enter() (func(), error) {
	if err := write(c.dir, "cgroup.procs", "0"); err != nil {
		return nil, fmt.Errorf("enter the run's cgroup: %w", err)
	}
	return func() { _ = write(c.home, "cgroup.procs", "0") }, nil
}

func (c *cgroup) holds(pid int) bool {
	return slices.Contains(c.members(), pid)
}

func (c *cgroup) members() (pids []int) {
	raw, _ := os.ReadFile(filepath.Join(c.dir, "cgroup.procs"))
	for word := range strings.FieldsSeq(string(raw)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (c *cgroup) freeze(within time.Duration) error {
	value := "1"
	if c.version == 1 {
		value = "FROZEN"
	}
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if err := write(c.dir, c.control(), value); err != nil {
			return fmt.Errorf("freeze: %w", err)
		}
		if c.frozen() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("freeze within %s: %w", within, errStillRunning)
		}
	}
}

func (c *cgroup) frozen() bool {
	if c.version == 1 {
		raw, err := os.ReadFile(filepath.Join(c.dir, "freezer.state"))
		return err == nil && strings.TrimSpace(string(raw)) == "FROZEN"
	}
	raw, err := os.ReadFile(filepath.Join(c.dir, "cgroup.events"))
	return err == nil && strings.Contains(string(raw), "frozen 1")
}

func (c *cgroup) thaw() error {
	value := "0"
	if c.version == 1 {
		value = "THAWED"
	}
	if err := write(c.dir, c.control(), value); err != nil {
		return fmt.Errorf("thaw: %w", err)
	}
	return nil
}

// kill kills every member. In the older tree the frozen die only when they thaw,
// before they run another instruction.
func (c *cgroup) kill() {
	if c.version == 2 && write(c.dir, "cgroup.kill", "1") == nil {
		return
	}
	var seen []host.Status
	for _, pid := range c.members() {
		if p, err := host.Lookup(pid); err == nil {
			seen = append(seen, p)
		}
	}
	// Still a member after its start time was read: that start time is a member's.
	for _, p := range seen {
		if c.holds(p.PID) {
			_ = p.Signal(syscall.SIGKILL)
		}
	}
	_ = c.thaw()
}

// close removes the group once it is empty. The kernel keeps it busy for a moment
// after its last member has been waited for.
func (c *cgroup) close() {
	for range 100 {
		if err := syscall.Rmdir(c.dir); err == nil || errors.Is(err, syscall.ENOENT) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(value)
	return err
}
