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

// cgroupPrefix is the beginning of the name of a run's cgroup; the run id follows.
const cgroupPrefix = "belay-"

// cgroup is the control group of one run; it freezes and kills the run's processes.
type cgroup struct {
	hierarchy
	dir string
}

// newCgroup makes the group of a run. It checks that this process can enter and leave the new
// group: a supervisor that cannot leave the group would freeze itself together with the run.
func newCgroup(h hierarchy, id string) (*cgroup, error) {
	c := &cgroup{hierarchy: h, dir: filepath.Join(h.place(), cgroupPrefix+id)}
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

// run returns the id of the run that the group belongs to.
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

// enter moves this process into the group, so that the child process that it starts next also
// belongs to the group. The returned function moves this process back.
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

// kill kills every process in the group. In cgroup v1 a frozen process dies only when it is thawed,
// but it then dies before it runs another instruction.
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
	// The start time was read before this check. If a process with this pid is still in the group,
	// the start time belongs to that process and not to a later process with the same pid.
	for _, p := range seen {
		if c.holds(p.PID) {
			_ = p.Signal(syscall.SIGKILL)
		}
	}
	_ = c.thaw()
}

// close removes the group once the group is empty. The kernel may report the group as busy for a
// moment after its last process has ended.
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
