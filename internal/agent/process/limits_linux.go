package process

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// helperSpace is the address space, in bytes, that a helper (a Go program) reserves for itself and
// the processes that it starts. The helper uses only a small part of this address space. A limit on
// memory must leave a helper that much address space.
const helperSpace = 2 << 30

// period is the period in which the kernel applies a CPU quota.
const period = 100 * time.Millisecond

// bounds are the cgroups and resource limits that enforce the limits of a run. The supervisor sets
// the bounds but is not limited by them, because it must be able to act when the run has reached
// its limits.
type bounds struct {
	limits   Limits
	enforced Enforced
	groups   []bound
	rlimits  []rlimit
}

// rlimit is a resource limit that the kernel enforces on a process or a user.
type rlimit struct {
	resource int
	value    uint64
}

// bound is a cgroup that enforces one limit.
type bound struct {
	controller string
	hierarchy
	dir string
}

// newBounds sets up the limits of a run by cgroups. It sets resource limits (setrlimit) instead if
// a cgroup controller is missing or if the order requires resource limits.
func newBounds(o order) *bounds {
	b := &bounds{limits: o.Limits}
	if o.Bounds != byRlimit {
		b.enforced.Pids = b.group(o.ID, pids, o.Limits.Pids > 0)
		b.enforced.Memory = b.group(o.ID, memory, o.Limits.Memory > 0)
		b.enforced.CPU = b.group(o.ID, cpu, o.Limits.CPU > 0)
	}
	b.limit(&b.enforced.FileSize, unix.RLIMIT_FSIZE, o.Limits.FileSize)
	space := o.Limits.Memory
	if o.Helper && space > 0 {
		space = max(space, helperSpace)
	}
	b.limit(&b.enforced.Memory, unix.RLIMIT_AS, space)
	// RLIMIT_NPROC counts all processes of a user, including processes outside the run. So it is
	// used only if the run has its own user, or a user namespace in which the count begins at zero.
	if o.User != nil && o.User.UID != 0 || o.Isolation == UserNamespace {
		b.limit(&b.enforced.Pids, unix.RLIMIT_NPROC, int64(o.Limits.Pids))
	}
	b.noteUnenforced()
	return b
}

// limit adds a resource limit if value is set and no cgroup enforces the limit.
func (b *bounds) limit(by *string, resource int, value int64) {
	if value > 0 && *by == "" {
		*by = byRlimit
		b.rlimits = append(b.rlimits, rlimit{resource, uint64(value)})
	}
}

// noteUnenforced marks the limits that no means enforces as Unenforced.
func (b *bounds) noteUnenforced() {
	for _, l := range []struct {
		wanted bool
		by     *string
	}{
		{b.limits.Pids > 0, &b.enforced.Pids}, {b.limits.Memory > 0, &b.enforced.Memory},
		{b.limits.CPU > 0, &b.enforced.CPU}, {b.limits.FileSize > 0, &b.enforced.FileSize},
	} {
		if l.wanted && *l.by == "" {
			*l.by = Unenforced
		}
	}
}

// group makes the cgroup of the run under a controller, if wanted is true. It returns the version
// of that cgroup as text; "" if it made no cgroup.
func (b *bounds) group(id, controller string, wanted bool) string {
	if !wanted {
		return ""
	}
	for _, h := range controlledBy("/proc/self", controller) {
		g := bound{controller: controller, hierarchy: h, dir: filepath.Join(h.place(), cgroupPrefix+id)}
		if g.make(b.limits) == nil {
			b.groups = append(b.groups, g)
			return h.String()
		}
	}
	return ""
}

// make makes the cgroup and writes its limit. The cgroup may already exist, because the freezer or
// another limit uses the same cgroup.
func (g *bound) make(l Limits) error {
	if g.version == 2 {
		if err := enableController(g.place(), g.controller); err != nil {
			return err
		}
	}
	err := os.Mkdir(g.dir, 0o750)
	made := err == nil
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, s := range settings(g.version, g.controller, l) {
		err := write(g.dir, s.file, s.value)
		if err != nil && !(s.optional && (errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission))) {
			if made {
				_ = syscall.Rmdir(g.dir)
			}
			return err
		}
	}
	return nil
}

// enableController lets the cgroups directly below dir use a cgroup v2 controller.
func enableController(dir, controller string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	for have := range strings.FieldsSeq(string(raw)) {
		if have == controller {
			return nil
		}
	}
	return write(dir, "cgroup.subtree_control", "+"+controller)
}

// setting is a value to write to a file of a cgroup.
type setting struct {
	file, value string
	optional    bool
}

func settings(version int, controller string, l Limits) []setting {
	bytes := strconv.FormatInt(l.Memory, 10)
	quota := strconv.Itoa(int(math.Round(l.CPU * float64(period.Microseconds()))))
	span := strconv.FormatInt(period.Microseconds(), 10)
	switch {
	case controller == pids:
		return []setting{{file: "pids.max", value: strconv.Itoa(l.Pids)}}
	case controller == memory && version == 2:
		return []setting{{file: "memory.max", value: bytes}, {file: "memory.swap.max", value: "0", optional: true}}
	case controller == memory:
		return []setting{
			{file: "memory.limit_in_bytes", value: bytes},
			{file: "memory.memsw.limit_in_bytes", value: bytes, optional: true},
		}
	case version == 2:
		return []setting{{file: "cpu.max", value: quota + " " + span}}
	}
	return []setting{{file: "cpu.cfs_period_us", value: span}, {file: "cpu.cfs_quota_us", value: quota}}
}

// exceeded describes in words each limit that the run has reached.
func (b *bounds) exceeded() string {
	var said []string
	for _, g := range b.groups {
		switch {
		case g.controller == pids && g.count("pids.events", "max") > 0:
			said = append(said, fmt.Sprintf("the kernel refused, %d times, more than %d processes at a time",
				g.count("pids.events", "max"), b.limits.Pids))
		case g.controller == memory:
			file := "memory.oom_control"
			if g.version == 2 {
				file = "memory.events"
			}
			if n := g.count(file, "oom_kill"); n > 0 {
				said = append(said, fmt.Sprintf(
					"the kernel killed %d of its processes, because together they used more than %s of memory", n,
					bytesText(b.limits.Memory)))
			}
		}
	}
	return strings.Join(said, "; ")
}

// count reads a file of the cgroup with a name and a number on each line, and returns the number
// beside the given name.
func (g *bound) count(file, name string) int {
	raw, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

// close removes the groups once all of them are empty.
func (b *bounds) close() {
	for _, g := range b.groups {
		(&cgroup{dir: g.dir}).close()
	}
}
