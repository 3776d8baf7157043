//go:build linux

package workspace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sighting is what a git that stands in for the real one has seen.
type sighting struct {
	UID  int      `json:"uid"`
	Args []string `json:"args"`
	// Shared names what root does not have for itself of the directories at which a git
	// of root's is at work.
	Shared []string `json:"shared,omitempty"`
}

// standIn is the life of a git that tells as whom it runs, and on what, and then is
// the real one.
func standIn() {
	self, err := os.Executable()
	at := filepath.Dir(self)
	s := sighting{UID: os.Geteuid(), Args: os.Args[1:]}
	if s.UID == 0 {
		s.Shared = shared(directoriesOf(os.Args[1:])...)
	}
	conn, derr := net.Dial("unix", filepath.Join(at, "socket"))
	if err = errors.Join(err, derr); err == nil {
		err = json.NewEncoder(conn).Encode(s)
		_ = conn.Close()
	}
	path, lerr := os.ReadFile(filepath.Join(at, "real"))
	if err = errors.Join(err, lerr); err == nil {
		err = syscall.Exec(string(path), append([]string{"git"}, os.Args[1:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "the git that stands in:", err)
	os.Exit(70)
}

// directoriesOf are those that a git is given.
func directoriesOf(args []string) (dirs []string) {
	cwd, _ := os.Getwd()
	dirs = append(dirs, cwd, os.Getenv("GIT_DIR"), os.Getenv("GIT_WORK_TREE"), os.Getenv("GIT_OBJECT_DIRECTORY"))
	for i, arg := range args {
		for _, option := range []string{"--git-dir=", "--work-tree="} {
			if dir, ok := strings.CutPrefix(arg, option); ok {
				dirs = append(dirs, dir)
			}
		}
		if arg == "-C" && i+1 < len(args) {
			dirs = append(dirs, args[i+1])
		}
		if filepath.IsAbs(arg) {
			dirs = append(dirs, arg)
		}
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return dir == "" })
}

// shared lists what in directories, or above them, belongs to another user than root
// or can be written by one.
func shared(dirs ...string) (found []string) {
	look := func(path string) {
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT == unix.S_IFLNK && st.Uid == 0 {
			return
		}
		if st.Uid != 0 || st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0 && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
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
		if dir == "/" || dir == "/dev/null" {
			continue
		}
		_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
			look(path)
			return nil
		})
	}
	return found
}

// watchGit puts a git first in PATH that tells of every git that belay starts.
func watchGit(t *testing.T) (seen func() []sighting) {
	t.Helper()
	bin, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/run", "belay-git-") // which no seal hides
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "git"), self, 0o755), os.WriteFile(filepath.Join(dir, "real"), []byte(bin), 0o644),
		os.Chmod(dir, 0o755), os.Chmod(filepath.Join(dir, "git"), 0o755), os.Chmod(filepath.Join(dir, "socket"), 0o777),
	); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []sighting
	go func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			var s sighting
			if json.NewDecoder(bufio.NewReader(conn)).Decode(&s) == nil {
				mu.Lock()
				all = append(all, s)
				mu.Unlock()
			}
			_ = conn.Close()
		}
	}()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() []sighting {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// as runs a script as a user, with the real git.
func as(t *testing.T, uid uint32, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	for _, v := range environ() {
		if !strings.HasPrefix(v, "PATH=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/bin:/bin")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// Rule: no git runs with more rights than whoever owns what it works on. In the whole
// life of a job (made from another user's repository, saved, killed, salvaged, restored,
// checked out by a person, removed) no git is root's on a tree that root does not own
// alone; the source is read by its owner, the clone is the keeper's, and the workspace
// its user's.
func TestWhoRunsGit(t *testing.T) {
	asRoot(t)
	src, root := repo(t), repo(t)
	for path := src; path != os.TempDir(); path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	own(t, src, stranger)
	seen := watchGit(t)
	m := open(t)
	lent(t, m)

	w, err := m.Prepare(t.Context(), asked(Spec{ID: "first", Repo: src}))
	if err != nil {
		t.Fatal(err)
	}
	user := w.User.UID
	as(t, user, w.Dir, `echo three >>a.txt; git commit -qam third; echo new >new.txt; git stash -qu; echo more >>a.txt; git tag here`)
	if s := salvageOf(t, m, w); s.Commits != 1 || s.Lost != "" {
		t.Errorf("saved %d commits, lost %q", s.Commits, s.Lost)
	}
	die(t, w)
	other := reopen(t, m)
	lent(t, other)
	if err := other.Sweep(t.Context(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	work, err := other.Work("first")
	if err != nil || work.Commits != 1 || work.Lost != "" {
		t.Fatalf("kept %+v, %v", work, err)
	}
	as(t, stranger, src, "git commit -q --allow-empty -m later")
	next := prepare(t, other, asked(Spec{ID: "next", Repo: src, Commit: work.Commit}))
	if err := other.Restore(t.Context(), next, work.Salvage); err != nil {
		t.Fatal(err)
	}
	prepare(t, other, asked(Spec{ID: "newest", Repo: src}))
	prepare(t, other, Spec{ID: "of-root", Repo: root})

	person := reopen(t, m) // who knows of no keeper
	if _, err := person.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := person.CheckOut(t.Context(), Spec{Repo: src, Commit: work.Commit}, filepath.Join(t.TempDir(), "again"), work.Salvage); err != nil {
		t.Fatal(err)
	}
	person.Now = func() time.Time { return time.Now().Add(100 * 24 * time.Hour) }
	if err := person.Sweep(t.Context(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	did := make(map[string][]int)
	for _, s := range seen() {
		if s.UID == 0 && len(s.Shared) > 0 {
			t.Errorf("root runs git %q on what is not root's alone: %q", s.Args, s.Shared)
		}
		for _, verb := range []string{"upload-pack", "fetch", "ls-remote", "reset", "status", "bundle", "init"} {
			if slices.Contains(s.Args, verb) && !slices.Contains(did[verb], s.UID) {
				did[verb] = append(did[verb], s.UID)
			}
		}
	}
	for verb, want := range map[string][]int{"upload-pack": {stranger, keeperUser}, "fetch": {keeperUser}, "ls-remote": {keeperUser}, "status": {stranger, keeperUser}} {
		for _, uid := range did[verb] {
			if !slices.Contains(want, uid) {
				t.Errorf("git %s was run by user %d", verb, uid)
			}
		}
		if len(did[verb]) == 0 {
			t.Errorf("no git %s was seen: %v", verb, did)
		}
	}
	for _, verb := range []string{"reset", "bundle"} {
		if !slices.Contains(did[verb], int(user)) {
			t.Errorf("no git %s of user %d was seen: %v", verb, user, did)
		}
	}
}
