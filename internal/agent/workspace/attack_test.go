//go:build linux

package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// armedRepository makes a repository in which every setting and every hook that can name a program
// for git names the given program.
func armedRepository(t *testing.T, program string) string {
	t.Helper()
	src := repo(t)
	for _, name := range []string{
		"filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.fsmonitor", "core.pager",
		"core.sshCommand", "core.gitProxy",
		"core.alternateRefsCommand", "uploadpack.packObjectsHook", "diff.external", "pager.status", "core.askPass",
		"credential.helper",
	} {
		run(t, src, "config", name, program)
	}
	write(t, filepath.Join(src, ".gitattributes"), "* filter=evil\n")
	for _, hook := range []string{"post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc",
		"fsmonitor-watchman"} {
		write(t, filepath.Join(src, ".git", "hooks", hook), "#!/bin/sh\n"+program+"\n")
		_ = os.Chmod(filepath.Join(src, ".git", "hooks", hook), 0o755)
	}
	write(t, filepath.Join(src, "a.txt"), "changed\n") // so that git status must read the file
	return src
}

// Rule: if another user has put a repository into a shared directory, such as the directory for
// temporary files, root executes no program that the configuration of that repository names.
func TestSourceInASharedDirectory(t *testing.T) {
	asRoot(t)
	m := open(t)
	giveUsers(t, m)
	program, seen := witness(t)
	src := armedRepository(t, program)
	shared := publicDir(t)
	for _, name := range []string{".git", "a.txt", ".gitattributes"} {
		chownAll(t, filepath.Join(src, name), stranger)
		// mv and not os.Rename: the shared directory may be on another file system
		if out, err := exec.Command("mv", filepath.Join(src, name), shared).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	w, err := m.Prepare(t.Context(), allowedOnly(Spec{ID: "run_1", Repo: shared}))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Remove(context.Background())
	if as := seen(); strings.Contains("\n"+as, "\n0\n") {
		t.Errorf("the other user's program ran as root; it ran as %q", as)
	}
}

// Rule: if Prepare runs as root while a user keeps replacing a repository by a symbolic link to a
// repository of root, root executes no program of that user, and the job of that user cannot read
// any file of root's repository.
func TestSourceThatIsSwapped(t *testing.T) {
	asRoot(t)
	m := open(t)
	giveUsers(t, m)
	program, seen := witness(t)
	private := repo(t) // below a directory that only root may enter
	write(t, filepath.Join(private, "private.txt"), "of root\n")
	commit(t, private, "of root")
	place := publicDir(t)
	theirs := filepath.Join(place, "repo")
	if err := os.CopyFS(theirs, os.DirFS(armedRepository(t, program))); err != nil {
		t.Fatal(err)
	}
	chownAll(t, theirs, stranger)
	link := filepath.Join(place, "link")
	if err := os.Symlink(private, link); err != nil {
		t.Fatal(err)
	}
	stop := swapper(t, theirs, link)
	defer stop()
	for i := range tries {
		w, err := m.Prepare(t.Context(), allowedOnly(Spec{ID: fmt.Sprintf("run_%d", i), Repo: theirs}))
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(w.Dir, "private.txt")); err == nil {
			t.Error("the job can read the repository of root")
		}
		if err := w.Remove(context.Background()); err != nil {
			t.Fatal(err)
		}
		if as := seen(); strings.Contains("\n"+as, "\n0\n") {
			t.Fatalf("after %d tries the other user's program ran as root", i+1)
		}
		if t.Failed() {
			return
		}
	}
}

// tries is how often a test repeats an attack that succeeds only at the right moment.
const tries = 60

// Rule: even if a process keeps replacing files of a workspace by symbolic links to a file that
// only root may read, while Salvage reads the workspace, the patch never contains that file.
func TestFilesThatAreSwapped(t *testing.T) {
	asRoot(t)
	m, src := open(t), repo(t)
	giveUsers(t, m)
	w := prepare(t, m, Spec{Repo: src})
	const text = "only root may read this"
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		file, link := filepath.Join(w.Dir, fmt.Sprintf("file%d", i)), filepath.Join(w.Tmp, fmt.Sprintf("link%d", i))
		write(t, file, strings.Repeat("x", len(text))) // git reads as many bytes as lstat reported
		if err := os.Symlink(secret, link); err != nil {
			t.Fatal(err)
		}
		chownAll(t, file, int(w.User.UID))
		t.Cleanup(swapper(t, file, link))
	}
	for range tries / 10 {
		s, err := m.Salvage(t.Context(), w)
		if err == nil && strings.Contains(string(s.Patch), text) {
			t.Fatal("the patch contains a file that only root may read")
		}
	}
}

// Rule: even if the steward (the helper process that salvages a workspace) runs as the same user as
// the server, it cannot read a file that is hidden from the job. In this test a program takes the
// place of git and tries to read the secret, like a job that replaces a file at exactly the right
// moment.
func TestStewardReadsNothingHiddenFromItsJob(t *testing.T) {
	asRoot(t)
	const text = "only the server may read this"
	place, err := os.MkdirTemp("/run", "belay-attack-") // sandboxes do not hide this directory by default
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(place) })
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(place, "hidden", "secret")
	write(t, secret, text)
	write(t, filepath.Join(place, "bin", "git"), "#!/bin/sh\n[ ! -f a.txt ] || cat '"+secret+
		"' >>a.txt 2>/dev/null\nexec '"+git+"' \"$@\"\n")
	if err := os.Chmod(filepath.Join(place, "bin", "git"), 0o755); err != nil {
		t.Fatal(err)
	}
	for hidden, want := range map[string]bool{"": true, filepath.Dir(secret): false, secret: false} {
		m := open(t)
		w := prepare(t, m, Spec{Repo: repo(t)})
		write(t, filepath.Join(w.Dir, "a.txt"), "of the job\n")
		m.git.bin = filepath.Join(place, "bin", "git")
		switch hidden {
		case "":
		case secret:
			m.Secrets = []string{hidden}
		default:
			m.Hidden = []string{hidden}
		}
		s := salvageOf(t, m, w)
		if !strings.Contains(string(s.Patch), "of the job") {
			t.Errorf("hidden %q: the job's own change is not in the patch: %s, lost %q", hidden, s.Patch, s.Lost)
		}
		if got := strings.Contains(string(s.Patch), text); got != want {
			t.Errorf("hidden %q: the secret is in the patch: %t, want %t", hidden, got, want)
		}
	}
}

// bomb makes a repository of a few kilobytes. Its checkout has the given number of files of one
// mebibyte each.
func bomb(t *testing.T, files int) string {
	t.Helper()
	src := filepath.Join(t.TempDir(), "bomb")
	run(t, "/", "init", "-q", "-b", "main", src)
	sh(t, src, fmt.Sprintf(`blob=$(dd if=/dev/zero bs=1M count=1 2>/dev/null | git hash-object -w --stdin)
tree=$(for i in $(seq 10); do printf '100644 blob %%s\tf%%s\n' $blob $i; done | git mktree)
for n in $(seq %d); do tree=$(for i in $(seq 10); do printf '040000 tree %%s\td%%s\n' $tree $i; done | git mktree); done
git update-ref refs/heads/main $(git commit-tree -m bomb $tree)`, files))
	return src
}

// Rule: a repository of a few kilobytes that unpacks to gigabytes exceeds the quota while git
// unpacks it, and Prepare then fails.
func TestDecompressionBombExceedsQuota(t *testing.T) {
	m := open(t)
	if os.Geteuid() == 0 {
		giveUsers(t, m)
	}
	m.Quota = Quota{Bytes: 64 << 20}
	src := bomb(t, 2) // the checkout has a gigabyte; each further level has ten times as much
	most, stop := measureMost(t, m.dir)
	began := time.Now()
	w, err := m.Prepare(t.Context(), Spec{ID: "run_1", Repo: src})
	stop()
	if err == nil {
		_ = w.Remove(context.Background())
		t.Fatalf("it was unpacked, to %d MiB", *most>>20)
	}
	if text := wantCode(t, err, belay.CodePayloadTooLarge); !strings.Contains(text, "quota of 64.0 MiB") {
		t.Error(text)
	}
	if *most > 256<<20 || time.Since(began) > 30*time.Second {
		t.Errorf("it took %d MiB and %s", *most>>20, time.Since(began))
	}
	if left := jobs(t, m); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// measureMost measures the disk space of a directory again and again, and records the maximum.
func measureMost(t *testing.T, dir string) (most *int64, stop func()) {
	t.Helper()
	most = new(int64)
	done := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				var now int64
				_ = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
					if err != nil {
						return nil //nolint:nilerr // the file was removed meanwhile
					}
					if info, err := d.Info(); err == nil {
						now += info.Sys().(*syscall.Stat_t).Blocks * 512
					}
					return nil
				})
				*most = max(*most, now)
			}
		}
	})
	return most, sync.OnceFunc(func() { close(done); over.Wait() })
}

// Rule: a repository of a few kilobytes with a hundred million names exceeds the memory limit while
// git unpacks it. Prepare then fails, and the error names that limit.
func TestDecompressionBombOfNamesExceedsMemory(t *testing.T) {
	asRoot(t)
	m := open(t)
	giveUsers(t, m)
	m.Limits.Memory = 256 << 20
	src := bomb(t, 7)
	_, err := m.Prepare(t.Context(), Spec{ID: "run_1", Repo: src})
	if text := wantCode(t, err, belay.CodePayloadTooLarge); !strings.Contains(text, "256 MiB of memory") {
		t.Error(text)
	}
	if left := jobs(t, m); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
