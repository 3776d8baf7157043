package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// gates are the open files through which a thread enters the cgroups of a run and leaves them. The
// supervisor opens these files early, because the thread can no longer open files when it enters
// the cgroups. A process that the thread starts between enter and leave belongs to the cgroups.
type gates struct {
	doors []door
	undo  []func()
}

// door is the pair of open files through which a thread enters one cgroup and leaves it.
type door struct {
	in, out *os.File
	of      string
}

// gates opens the files to enter and leave the cgroups of a run.
func (s *supervisor) gates() (*gates, error) {
	g := new(gates)
	add := func(dir, home, file, of string) error {
		in, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("open the run's %s cgroup: %w", of, err)
		}
		out, err := os.OpenFile(filepath.Join(home, file), os.O_WRONLY, 0)
		if err != nil {
			return errors.Join(fmt.Errorf("open the way out of the run's %s cgroup: %w", of, err), in.Close())
		}
		g.doors = append(g.doors, door{in: in, out: out, of: of})
		return nil
	}
	if c, ok := s.freezer.(*cgroup); ok {
		if err := add(c.dir, c.home, "cgroup.procs", freezing); err != nil {
			return nil, err
		}
	}
	// With cgroup v2, the group of the freezer may be the same as the group of a limit.
	for _, b := range s.bounds.groups {
		// In cgroup v1 a thread can enter a group without the other threads, so the usage of the
		// supervisor does not count towards the limit. In cgroup v2 the whole supervisor enters, and
		// its usage counts while it starts the command.
		file := "cgroup.procs"
		if b.version == 1 {
			file = "tasks"
		}
		if err := add(b.dir, b.home, file, b.controller); err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

// enter moves this thread into the run's cgroups, so that the limits apply to the process that the
// thread starts next. leave moves the thread back.
func (g *gates) enter() error {
	for _, d := range g.doors {
		if _, err := d.in.WriteString("0"); err != nil {
			g.leave()
			return fmt.Errorf("enter the run's %s cgroup: %w", d.of, err)
		}
		g.undo = append(g.undo, func() { _, _ = d.out.WriteString("0") })
	}
	return nil
}

func (g *gates) leave() {
	for _, f := range g.undo {
		f()
	}
	g.undo = nil
}

func (g *gates) close() {
	for _, d := range g.doors {
		_, _ = d.in.Close(), d.out.Close()
	}
}
