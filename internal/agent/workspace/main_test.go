package workspace

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent/process"
	"github.com/belaydev/belay/internal/testkit/gitwatch"
)

// open returns a Manager on a new directory.
func open(t *testing.T) *Manager {
	t.Helper()
	m, err := Open(filepath.Join(t.TempDir(), "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// try runs git in dir, with a user name and email for tests.
func try(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = environ()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = errors.New("git " + strings.Join(args, " ") + ": " + err.Error() + ": " + stderr.String())
	}
	return strings.TrimRight(string(out), "\n"), err
}

func environ() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "LC_ALL=C",
		"GIT_ALLOW_PROTOCOL=file",
		"GIT_AUTHOR_NAME=T", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=T",
		"GIT_COMMITTER_EMAIL=t@example.com",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_CONFIG_KEY_1=init.defaultBranch", "GIT_CONFIG_VALUE_1=main",
	}
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := try(dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// sh runs a shell script in dir.
func sh(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir, cmd.Env = dir, environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// write writes a file and makes its parent directories.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// commit commits all files in dir and returns the commit.
func commit(t *testing.T, dir, message string) string {
	t.Helper()
	run(t, dir, "add", "-A")
	run(t, dir, "commit", "-q", "--allow-empty", "-m", message)
	return run(t, dir, "rev-parse", "HEAD")
}

// repo makes a repository with two commits, a second branch and two tags.
func repo(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "source")
	made, err := original()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "update-index", "-q", "--refresh")
	return dir
}

// original makes the repository that repo copies, once for all tests.
var original = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "belay-source-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("sh", "-ec", `git init -q -b main .; mkdir dir; echo one >a.txt; echo b >dir/b.txt
git add -A; git commit -q -m first; git tag light; git tag -a -m 'a tag' v1.0
git checkout -q -b feature/x; echo x >x.txt; git add -A; git commit -q -m 'on the branch'
git checkout -q main; echo two >>a.txt; git commit -q -a -m second; rm -f .git/hooks/*`)
	cmd.Dir, cmd.Env = dir, environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a repository: %w: %s", err, out)
	}
	return dir, nil
})

// TestMain lets the test binary also run as a helper, or as another process that owns a workspace.
func TestMain(m *testing.M) {
	gitwatch.StandIn()
	process.Main(Helper())
	if os.Getenv(holder) != "" {
		hold()
	}
	remove := inMemory()
	code := m.Run()
	if dir, err := original(); err == nil {
		_ = os.RemoveAll(dir)
	}
	remove()
	os.Exit(code)
}

// inMemory makes the tests write their files in memory, unless TMPDIR names a directory or the file
// system in memory is small. The tests make and remove thousands of repositories, and no test needs
// files on a disk. The returned function removes the files.
func inMemory() (remove func()) {
	const memory, room = "/dev/shm", 4 << 30
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(memory, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < room {
		return func() {}
	}
	dir, err := os.MkdirTemp(memory, "belay-workspace-")
	if err != nil {
		return func() {}
	}
	remove = func() { _ = os.RemoveAll(dir) }
	if errors.Join(os.Chmod(dir, 0o755), os.Setenv("TMPDIR", dir)) != nil { // other users must be able to enter dir
		remove()
		return func() {}
	}
	return remove
}

// sampled yields all cases. With -short it yields only a random third of the cases, unless -run
// names a case.
func sampled[V any](cases map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		left := len(cases)
		if testing.Short() && !strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
			left = (left + 2) / 3
		}
		for name, c := range cases { // Go iterates over a map in random order
			if left--; left < 0 || !yield(name, c) {
				return
			}
		}
	}
}

// prepare makes a workspace that is removed when the test ends.
func prepare(t *testing.T, m *Manager, s Spec) *Workspace {
	t.Helper()
	if s.ID == "" {
		s.ID = "run_" + strings.ReplaceAll(time.Now().Format("150405.000000000"), ".", "_")
	}
	w, err := m.Prepare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

func salvageOf(t *testing.T, m *Manager, w *Workspace) Salvage {
	t.Helper()
	s, err := m.Salvage(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantCode fails the test if err does not have the code, and returns err's text.
func wantCode(t *testing.T, err error, code belay.Code) string {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", code)
	}
	if got := belay.CodeOf(err); got != code {
		t.Fatalf("code %s, want %s: %v", got, code, err)
	}
	return err.Error()
}

// contents returns all files in a directory except .git: type, execute bit and content by path.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if rel == ".git" {
			return filepath.SkipDir
		}
		info, err := d.Info()
		if err != nil || d.IsDir() {
			return err
		}
		if d.Type()&os.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			all[rel] = "-> " + target
			return err
		}
		raw, err := os.ReadFile(path)
		all[rel] = string(raw)
		if info.Mode()&0o100 != 0 {
			all[rel] = "x " + all[rel]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
