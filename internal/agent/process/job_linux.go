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

// InJob tells whether the process pid belongs to a supervised run, of this process or
// of any other: it is in a PID namespace below ours, or it is a supervisor, descends
// from one, is in the cgroup of a run, or carries the mark. The run that this very
// process is part of does not count.
//
// With an error the answer is yes: it could not be shown that the process is none of
// a job's. A caller that has the number from a socket keeps a pidfd of the same socket
// and asks it afterwards whether the process still lives, since a number can be given
// out again.
//
// One kind of process can pass for a stranger: that of a [Subreaper] run without
// Landlock and without a cgroup which has killed its supervisor and has dropped its
// mark.
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
		return true, err // /proc counts otherwise than we do
	}
	facts, err := statusOf(pid)
	if err != nil {
		return true, err
	}
	switch {
	case len(strings.Fields(facts["NSpid"])) > 1: // as many numbers as namespaces
		return true, nil
	case facts["NoNewPrivs"] == "0":
		// Every process of a run but its supervisor has given up new privileges, for good.
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
		return false, nil // without root all runs have our user
	}
	value, err := markOf(pid)
	return value != "" && value != os.Getenv(Marker), err
}

// statusOf reads what the kernel says of a process, to everybody.
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

// supervised tells whether a process is a supervisor or descends from one that is
// not above this process as well.
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
			return true, err // its parent ends just now
		}
		at = s.Parent
	}
	return false, nil
}

// grouped tells whether a process is in a run's cgroup, where supervisors that were
// started from here make these.
func grouped(pid int) (bool, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // a kernel without cgroups
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

// groupedAs compares two lists of "number:controllers:path".
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

// ofSystemd tells a unit, such as belay-worker.service, from a run.
func ofSystemd(name string) bool {
	switch filepath.Ext(name) {
	case ".service", ".slice", ".scope", ".socket", ".mount":
		return true
	}
	return false
}

// markOf is the run that a process's environment names, if any.
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
