package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/belaydev/belay/internal/host"
)

// InJob reports whether the process pid belongs to a supervised run, of this process or of any
// other process. It returns true if the process is in a PID namespace below ours, or is a
// supervisor, descends from a supervisor, is in the cgroup of a run, or has the mark of a run in
// its environment. A run that this process itself belongs to does not count.
//
// If InJob returns an error, the result is true, because InJob could not show that the process
// belongs to no run. A caller that has the pid from a socket should also get a pidfd from that
// socket and check after the call that the process is still alive, because the kernel can reuse a
// pid.
//
// InJob misses one kind of process: in a [Subreaper] run without Landlock and without a cgroup, a
// process that has killed its supervisor and removed its mark.
func InJob(pid int) (bool, error) {
	if pid <= 0 {
		return true, fmt.Errorf("process %d: it is outside of this PID namespace", pid)
	}
	before, err := host.Lookup(pid)
	if err != nil {
		return true, fmt.Errorf("process %d: %w", pid, err)
	}
	in, err := inJob(pid)
	if err != nil {
		return true, fmt.Errorf("process %d: %w", pid, err)
	}
	after, err := host.Lookup(pid)
	switch {
	case err != nil:
		return true, fmt.Errorf("process %d: %w", pid, err)
	case after.Start != before.Start || after.Ended():
		return true, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	return in, nil
}

func inJob(pid int) (bool, error) {
	if _, err := host.Self(); err != nil {
		return true, err // /proc shows the pids of another PID namespace
	}
	facts, err := statusOf(pid)
	if err != nil {
		return true, err
	}
	switch {
	case len(strings.Fields(facts["NSpid"])) > 1: // NSpid has one pid for each namespace
		return true, nil
	case facts["NoNewPrivs"] == "0":
		// Every process of a run except the supervisor has set no_new_privs, which cannot be
		// cleared. So a process without no_new_privs is in a run only if it is a supervisor.
		if _, is := supervises(pid); !is {
			return false, nil
		}
	}
	if in, err := supervised(pid); in || err != nil {
		return true, err
	}
	if in, err := grouped(pid); in || err != nil {
		return true, err
	}
	if os.Geteuid() != 0 && !contains(strings.Join(strings.Fields(facts["Uid"]), ","), strconv.Itoa(os.Geteuid())) {
		return false, nil // a process that is not root can start runs only as its own user
	}
	value, err := markOf(pid)
	return value != "" && value != os.Getenv(Marker), err
}

// statusOf reads /proc/PID/status, which every user may read.
func statusOf(pid int) (map[string]string, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return nil, err
	}
	facts := make(map[string]string)
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			facts[name] = strings.TrimSpace(value)
		}
	}
	return facts, nil
}

// supervised reports whether a process is a supervisor or a descendant of a supervisor. It ignores
// supervisors that are ancestors of the calling process.
func supervised(pid int) (bool, error) {
	ours := make(map[int]bool)
	for at := os.Getpid(); at > 0 && !ours[at]; {
		ours[at] = true
		s, err := host.Lookup(at)
		if err != nil {
			return true, err
		}
		at = s.Parent
	}
	seen := make(map[int]bool)
	for at := pid; at > 0 && !seen[at] && !ours[at]; {
		seen[at] = true
		if _, ok := supervises(at); ok {
			return true, nil
		}
		s, err := host.Lookup(at)
		if err != nil {
			return true, err // at, the parent of the last process, has just ended
		}
		at = s.Parent
	}
	return false, nil
}

// grouped reports whether a process is in the cgroup of a run. It searches only the directory in
// which supervisors of this process make the cgroups of runs.
func grouped(pid int) (bool, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // this kernel has no cgroups
	}
	if err != nil {
		return true, err
	}
	theirs, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return true, err
	}
	return groupedAs(string(own), string(theirs)), nil
}

// groupedAs reports whether a process with the cgroups theirs is in the cgroup of a run that a
// process with the cgroups own has started. Both texts have lines of the form
// "number:controllers:path".
func groupedAs(own, theirs string) bool {
	places := make(map[string]string)
	for line := range strings.Lines(own) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			places[f[0]+":"+f[1]] = f[2]
		}
	}
	for line := range strings.Lines(theirs) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		home, known := places[f[0]+":"+f[1]]
		if !known || f[2] == home {
			continue
		}
		place := home
		if filepath.Base(home) == ServiceGroup {
			place = filepath.Dir(home)
		}
		name, below := strings.CutPrefix(f[2], strings.TrimSuffix(place, "/")+"/"+cgroupPrefix)
		name, _, _ = strings.Cut(name, "/")
		if below && !ofSystemd(name) {
			return true
		}
	}
	return false
}

// ofSystemd reports whether a name belongs to a systemd unit, such as belay-worker.service, and not
// to a run.
func ofSystemd(name string) bool {
	switch filepath.Ext(name) {
	case ".service", ".slice", ".scope", ".socket", ".mount":
		return true
	}
	return false
}

// markOf returns the run id in a process's environment; "" if there is no run id.
func markOf(pid int) (string, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", err
	}
	for entry := range strings.SplitSeq(string(raw), "\x00") {
		if value, ok := strings.CutPrefix(entry, Marker+"="); ok {
			return value, nil
		}
	}
	return "", nil
}
