package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// gates lead into the cgroups of a run and out again. Their files are open, so that a
// thread that can open none can still pass: what it starts in between is in.
type gates struct {
	doors []door
	undo  []func()
}

// door is the way into one cgroup and back.
type door struct {
	in, out *os.File
	of      string
}

// gates opens the gates of a run.
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
	// The freezer's group has been entered before, and is that of the newer tree.
	for _, b := range s.bounds.groups {
		// In the older tree one thread can go alone, and nothing of the supervisor is
		// counted. In the newer tree it is, for the moment of the start.
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

// enter has what this thread starts next be within the bounds; leave ends that.
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
