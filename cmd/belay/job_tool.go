package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// mostTools is how many versions of this program one directory keeps for jobs.
const mostTools = 5

// giveTool gives the jobs this program, with which agents ask people, and returns its path.
func giveTool(j *jobs, dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	var tool string
	if err == nil {
		tool, err = jobTool(filepath.Join(dir, "tools"))
	}
	if err != nil {
		return "", fmt.Errorf("give the jobs the program belay: %w", err)
	}
	j.Walls.Readable = append(slices.Clone(j.Walls.Readable), tool)
	return tool, nil
}

// jobTool returns the path of a file below dir with this program, which every user may execute. It
// makes the file if necessary. The program itself may be where jobs cannot read it.
func jobTool(dir string) (string, error) {
	const self = "/proc/self/exe"
	info, err := os.Stat(self)
	if err != nil {
		return "", err
	}
	made, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("%s has no inode", self)
	}
	path := filepath.Join(dir, fmt.Sprintf("belay-%x-%x", made.Ino, info.ModTime().UnixNano()))
	if has, err := os.Lstat(path); err == nil && has.Mode().IsRegular() && has.Size() == info.Size() {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the users of jobs must get to the file
		return "", err
	}
	dropTools(dir)
	if exe, err := os.Executable(); err == nil && info.Mode()&0o005 == 0o005 && os.Link(exe, path) == nil {
		return path, nil
	}
	return path, copyTool(self, path)
}

// copyTool copies an executable file.
func copyTool(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), ".new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(out.Name()) }() // fails after the rename
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Chmod(0o755)
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	return err
}

// dropTools removes all but the newest versions, of which other processes on this machine may use
// some.
func dropTools(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	type tool struct {
		name string
		made int64
	}
	var all []tool
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), "belay-") {
			all = append(all, tool{e.Name(), info.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(all, func(a, b tool) int { return cmp.Compare(b.made, a.made) })
	for _, t := range all[min(len(all), mostTools-1):] {
		_ = os.Remove(filepath.Join(dir, t.name)) // a process that runs it keeps it
	}
}
