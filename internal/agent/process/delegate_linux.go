package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Delegate readies this process's group of the newer cgroup tree for the groups of
// runs: there, only a group without processes can hand controllers down, so this
// process moves into a leaf of its own. It belongs to a program that has its group
// to itself, a service or a container, and is called before anything is started. It
// does nothing where there is nothing to hand down. After an error limits are kept
// by other means, if there are any.
func Delegate() error {
	for _, h := range controlledBy("/proc/self", pids) {
		if h.version != 2 || filepath.Base(h.home) == ownLeaf {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(h.home, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("delegate %s: %w", h.home, err)
		}
		wanted := slices.DeleteFunc(strings.Fields(string(raw)), func(name string) bool {
			return !slices.Contains([]string{pids, memory, cpu}, name)
		})
		if len(wanted) == 0 {
			continue
		}
		if err := delegate(h, wanted); err != nil {
			return fmt.Errorf("delegate %s: %w", h.home, err)
		}
	}
	return nil
}

func delegate(h hierarchy, controllers []string) error {
	home := &cgroup{hierarchy: h, dir: h.home}
	if slices.ContainsFunc(home.members(), func(pid int) bool { return pid != os.Getpid() }) {
		return errors.New("other processes share it")
	}
	leaf := filepath.Join(h.home, ownLeaf)
	if err := os.Mkdir(leaf, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := write(leaf, "cgroup.procs", "0"); err != nil {
		return err
	}
	for _, c := range controllers {
		if err := handDown(h.home, c); err != nil {
			return err
		}
	}
	return nil
}
