package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The cgroup controllers that a run uses.
const (
	freezing = "freezer"
	pids     = "pids"
	memory   = "memory"
	cpu      = "cpu"
)

// ServiceGroup is the name of the subgroup in which a service may run in cgroup v2 (systemd's
// DelegateSubgroup). In cgroup v2 only a group without processes of its own can pass controllers to
// its children, so this package makes the groups of runs beside ServiceGroup. Without such a
// subgroup, limits in cgroup v2 are enforced by other means.
const ServiceGroup = "belay.server"

// hierarchy is one mounted cgroup tree, with the directory of a process's group in that tree.
type hierarchy struct {
	version int
	home    string
}

func (h hierarchy) String() string { return "cgroup v" + strconv.Itoa(h.version) }

// place returns the directory in which the groups of runs are made.
func (h hierarchy) place() string {
	if h.version == 2 && filepath.Base(h.home) == ServiceGroup {
		return filepath.Dir(h.home)
	}
	return h.home
}

// hierarchies lists the cgroup trees that can freeze processes, version 2 first, each with the
// group of one process. process is the directory of that process in /proc.
func hierarchies(process string) []hierarchy { return controlledBy(process, freezing) }

// allHierarchies lists every cgroup tree in which runs may have a group, without duplicates.
func allHierarchies() (all []hierarchy) {
	for _, controller := range []string{freezing, pids, memory, cpu} {
		for _, h := range controlledBy("/proc/self", controller) {
			if !slices.Contains(all, h) {
				all = append(all, h)
			}
		}
	}
	return all
}

// controlledBy lists the cgroup trees that may have a controller, version 2 first. The tree of
// version 2 is always in the list, because each of its groups has its own set of controllers.
func controlledBy(process, controller string) []hierarchy {
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
		path, ok := membership(string(memberships), version, controller)
		if !ok {
			continue
		}
		if home, ok := mounted(string(mounts), version, controller, path); ok {
			found = append(found, hierarchy{version: version, home: home})
		}
	}
	return found
}

// membership returns the path of a process's group in the tree of the given version. lines is the
// content of /proc/PID/cgroup, with the format "number:controllers:path".
func membership(lines string, version int, controller string) (string, bool) {
	for line := range strings.Lines(lines) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		if version == 2 && f[0] == "0" && f[1] == "" || version == 1 && contains(f[1], controller) {
			return f[2], !strings.Contains(f[2], "..")
		}
	}
	return "", false
}

// mounted returns the directory of a cgroup in this machine's file system. path is the path of the
// cgroup in its cgroup tree, and lines is the content of /proc/self/mountinfo.
func mounted(lines string, version int, controller, path string) (string, bool) {
	for line := range strings.Lines(lines) {
		mount, source, ok := strings.Cut(line, " - ")
		f, s := strings.Fields(mount), strings.Fields(source)
		if !ok || len(f) < 6 || len(s) < 3 {
			continue
		}
		if version == 2 && s[0] != "cgroup2" || version == 1 && (s[0] != "cgroup" || !contains(s[2], controller)) {
			continue
		}
		below, err := filepath.Rel(f[3], path)
		if err != nil || strings.HasPrefix(below, "..") {
			continue // the mount shows a part of the tree without path
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
