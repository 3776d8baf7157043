//go:build linux

package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const nobody = 65534

// Rule: the most important tests of this package also pass if they do not run as root. This test
// itself runs as root, and starts them again as the user nobody.
func TestWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("every test of this run is without root")
	}
	dir, err := os.MkdirTemp("", "belay-workspace-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", strings.Join([]string{
		"^TestRemove$", "^TestSweep$", "^TestObjectsAreCopied$", "^TestUnreadable$",
		"^TestDecompressionBombExceedsQuota$",
		"^TestPatternsAndLinks$",
		"^TestRemoteThatHangs$", "^TestSalvageNamesWhatIsLost$", "^TestCredentials$",
		"^TestSalvageAndRestore$/^(commits_and_changes|modes_and_links)$",
		"^TestHostileCheckoutRunsNoProgram$/^filters$",
		"^TestSourcesThatHang$/^(HEAD|config|packed-refs|a_branch)$",
		"^TestWarmBaseServesOnlyCallersWithAccess$", "^TestSalvagePatchBeyondLimit$",
		"^TestRemovedFilesCount$", "^TestQuota$",
	}, "|"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	} else {
		t.Logf("%d tests as nobody", strings.Count(string(out), "--- PASS: "))
	}
}

// Rule: Salvage names files that the command has made unreadable as lost, and keeps the versions of
// these files that git already knew.
func TestUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything; TestWithoutRoot runs this as nobody")
	}
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	write(t, filepath.Join(w.Dir, "new"), "new\n")
	write(t, filepath.Join(w.Dir, "secret"), "secret\n")
	for _, name := range []string{"secret", "a.txt", "dir"} {
		if err := os.Chmod(filepath.Join(w.Dir, name), 0); err != nil {
			t.Fatal(err)
		}
	}
	s := salvageOf(t, m, w)
	if s.Files != 1 {
		t.Errorf("%d files changed, want the new one only:\n%s", s.Files, s.Patch)
	}
	if want := `a.txt, which cannot be read; the contents of "dir" (permission denied); secret, which cannot be read`; s.Lost != want {
		t.Errorf("lost %q, want %q", s.Lost, want)
	}
}

// Rule: Prepare can check out a repository of another user, because the caller named it, and runs
// no program from that repository's configuration.
func TestSourceOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	src, m := repo(t), open(t)
	ran := filepath.Join(t.TempDir(), "ran")
	run(t, src, "config", "filter.evil.clean", "echo ran >>"+ran+"; cat")
	write(t, filepath.Join(src, ".gitattributes"), "* filter=evil\n")
	err := filepath.WalkDir(src, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, nobody, nobody)
	})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(src, "a.txt"), "changed\n")
	w := prepare(t, m, Spec{Repo: src})
	if want := run(t, src, "rev-parse", "main"); w.Commit != want || w.Branch != "main" {
		t.Errorf("commit %s on %q, want %s on main", w.Commit, w.Branch, want)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a filter of that user's ran")
	}
}
