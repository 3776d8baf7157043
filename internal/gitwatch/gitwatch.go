//go:build linux

// Package gitwatch tells tests who runs git: a git that is first in PATH says as whom it
// runs and on what, and then is the real one.
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

// Sighting is one git.
type Sighting struct {
	UID  int      `json:"uid"`
	Args []string `json:"args"`
	// Shared names what root does not have for itself of the directories at which a git
	// of root's is at work, and above them.
	Shared []string `json:"shared,omitempty"`
}

// Verb is the subcommand, as far as it can be told.
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

// StandIn is the life of the git that stands in. TestMain calls it first; it returns at
// once in a process that was started under another name.
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
	fmt.Fprintln(os.Stderr, "the git that stands in:", err)
	os.Exit(70) //nolint:forbidigo // it stands in for a program
}

// directoriesOf are those that a git is given.
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
		if real, err := filepath.EvalSymlinks(dirs[i]); err == nil && real != dirs[i] { // a descriptor, say
			dirs = append(dirs, real)
		}
	}
	return dirs
}

// shared lists what in directories, or above them, belongs to another user than root or
// can be written by one.
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

// Watch makes the git that stands in, which is the calling test's program. The directory
// is to be first in PATH; seen gives what was seen so far.
func Watch(t testing.TB) (dir string, seen func() []Sighting) {
	t.Helper()
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = os.MkdirTemp("/run", "belay-git-"); err != nil { // where no seal hides it
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

// RootAlone fails the test for each git of root's that was at work on what root does not
// have for itself.
func RootAlone(t testing.TB, all []Sighting) {
	t.Helper()
	for _, s := range Faults(all) {
		t.Errorf("root runs git %s on what is not root's alone: %q\nits arguments: %q", s.Verb(), s.Shared, s.Args)
	}
}

// Faults are the gits of root's that were at work on what root does not have for itself.
func Faults(all []Sighting) []Sighting {
	return slices.DeleteFunc(slices.Clone(all), func(s Sighting) bool { return s.UID != 0 || len(s.Shared) == 0 })
}

// By lists, for each subcommand, the users who ran it.
func By(all []Sighting) map[string][]int {
	did := make(map[string][]int)
	for _, s := range all {
		if verb := s.Verb(); !slices.Contains(did[verb], s.UID) {
			did[verb] = append(did[verb], s.UID)
		}
	}
	return did
}
