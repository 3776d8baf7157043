//go:build linux

// Package gitwatch shows tests which user runs git. It puts a stand-in for git first in PATH; the
// stand-in reports its user and its directories to the test and then executes the real git.
package gitwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Sighting is one run of git.
type Sighting struct {
	UID  int      `json:"uid"`
	Args []string `json:"args"`
	// Shared lists, if root ran git, the files and directories that another user could change, among
	// the working directory and the .git directory of git, their contents and their parents.
	Shared []string `json:"shared,omitempty"`
}

// Verb returns the subcommand of git, or "" if it cannot be recognized.
func (s Sighting) Verb() string {
	for i := 0; i < len(s.Args); i++ {
		switch arg := s.Args[i]; {
		case arg == "-c" || arg == "-C":
			i++
		case !strings.HasPrefix(arg, "-"):
			return arg
		}
	}
	return ""
}

// StandIn is the main function of the stand-in. TestMain calls it first. In a process that was
// started under another name than git, it returns immediately.
func StandIn() {
	if filepath.Base(os.Args[0]) != "git" {
		return
	}
	self, err := os.Executable()
	at := filepath.Dir(self)
	s := Sighting{UID: os.Geteuid(), Args: os.Args[1:]}
	if s.UID == 0 {
		s.Shared = shared(directoriesOf(os.Args[1:])...)
	}
	var dialer net.Dialer
	conn, derr := dialer.DialContext(context.Background(), "unix", filepath.Join(at, "socket"))
	if err = errors.Join(err, derr); err == nil {
		err = errors.Join(json.NewEncoder(conn).Encode(s), conn.Close())
	}
	real, rerr := os.ReadFile(filepath.Join(at, "real"))
	if err = errors.Join(err, rerr); err == nil {
		err = syscall.Exec(string(real), append([]string{"git"}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "the stand-in for git:", err)
	os.Exit(70) //nolint:forbidigo // it is the main function of a program
}

// directoriesOf returns the directories that git gets in its arguments and its environment.
func directoriesOf(args []string) []string {
	cwd, _ := os.Getwd()
	dirs := []string{cwd, os.Getenv("GIT_DIR"), os.Getenv("GIT_WORK_TREE"), os.Getenv("GIT_COMMON_DIR"),
		os.Getenv("GIT_OBJECT_DIRECTORY")}
	dirs = append(dirs, filepath.SplitList(os.Getenv("GIT_ALTERNATE_OBJECT_DIRECTORIES"))...)
	for i, arg := range args {
		arg = strings.TrimPrefix(arg, "file://")
		for _, option := range []string{"--git-dir=", "--work-tree="} {
			if dir, ok := strings.CutPrefix(arg, option); ok {
				dirs = append(dirs, dir)
			}
		}
		if i > 0 && args[i-1] == "-C" || filepath.IsAbs(arg) {
			dirs = append(dirs, arg)
		}
	}
	dirs = slices.DeleteFunc(dirs, func(dir string) bool { return dir == "" })
	for i, dir := range dirs {
		if !filepath.IsAbs(dir) {
			dirs[i] = filepath.Join(cwd, dir)
		}
		// the directory's name is a link or a descriptor
		if real, err := filepath.EvalSymlinks(dirs[i]); err == nil && real != dirs[i] {
			dirs = append(dirs, real)
		}
	}
	return dirs
}

// shared lists files in directories, or above them, that belong to a user other than root or that
// such a user can write.
func shared(dirs ...string) (found []string) {
	look := func(path string) {
		var st syscall.Stat_t
		if syscall.Lstat(path, &st) != nil {
			return
		}
		kind := st.Mode & syscall.S_IFMT
		open := st.Mode&0o002 != 0 && st.Mode&syscall.S_ISVTX == 0 && (kind == syscall.S_IFDIR ||
			kind == syscall.S_IFREG)
		if st.Uid != 0 || open {
			found = append(found, fmt.Sprintf("%s (user %d, mode %o)", path, st.Uid, st.Mode&0o7777))
		}
	}
	for _, dir := range dirs {
		for up := filepath.Dir(dir); ; up = filepath.Dir(up) {
			look(up)
			if up == filepath.Dir(up) {
				break
			}
		}
		if dir == "/" {
			continue
		}
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			look(path)
			return nil
		})
	}
	return found
}

// Watch makes the stand-in, a copy of the calling test's program, in the directory dir. The caller
// puts dir first in PATH. seen returns the runs of git so far.
func Watch(t testing.TB) (dir string, seen func() []Sighting) {
	t.Helper()
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = os.MkdirTemp("/run", "belay-git-"); err != nil { // no sandbox of jobs hides this directory
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var config net.ListenConfig
	socket, err := config.Listen(t.Context(), "unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	self, err := os.ReadFile("/proc/self/exe")
	for name, data := range map[string][]byte{"git": self, "real": []byte(real)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	for name, mode := range map[string]os.FileMode{"git": 0o755, "real": 0o644, "socket": 0o777, "": 0o755} {
		err = errors.Join(err, os.Chmod(filepath.Join(dir, name), mode))
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []Sighting
	go func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			var s Sighting
			if json.NewDecoder(conn).Decode(&s) == nil {
				mu.Lock()
				all = append(all, s)
				mu.Unlock()
			}
			_ = conn.Close()
		}
	}()
	return dir, func() []Sighting {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// RootAlone fails the test for each run of git by root on files that do not belong to root alone.
func RootAlone(t testing.TB, all []Sighting) {
	t.Helper()
	for _, s := range Faults(all) {
		t.Errorf("root runs git %s on files not of root alone: %q\nits arguments: %q", s.Verb(), s.Shared, s.Args)
	}
}

// Faults returns the runs of git by root on files that do not belong to root alone.
func Faults(all []Sighting) []Sighting {
	return slices.DeleteFunc(slices.Clone(all), func(s Sighting) bool { return s.UID != 0 || len(s.Shared) == 0 })
}

// By returns, for each subcommand, the users who ran it.
func By(all []Sighting) map[string][]int {
	did := make(map[string][]int)
	for _, s := range all {
		if verb := s.Verb(); !slices.Contains(did[verb], s.UID) {
			did[verb] = append(did[verb], s.UID)
		}
	}
	return did
}
