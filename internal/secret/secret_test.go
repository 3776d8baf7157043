//go:build linux

package secret

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/belaydev/belay"
)

// Rule: a file that other users can change is refused. So is a file that other users can read, if
// this user can change its mode. The error says what to do and does not show the secret.
func TestFilesOpenToOthersAreRefused(t *testing.T) {
	dir := t.TempDir()
	for mode, good := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o644: false, 0o640: false, 0o604: false,
		0o620: false, 0o666: false, 0o602: false} {
		path := filepath.Join(dir, "secret")
		_ = os.Remove(path)
		if err := os.WriteFile(path, []byte("s3cret"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		text, err := Read(path, 100)
		if (err == nil) != good || good && string(text) != "s3cret" {
			t.Errorf("%#o: %q, %v", mode, text, err)
		}
		if err != nil && (belay.CodeOf(err) != belay.CodeForbidden ||
			!strings.Contains(err.Error(), "chmod 600 "+path) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%#o: %v", mode, err)
		}
		if warning, err := Check(path); warning != "" || (err == nil) != good {
			t.Errorf("%#o: %q, %v", mode, warning, err)
		}
	}
}

// Rule: pipes, directories and too large files are refused, and reading a pipe does not block.
func TestOnlySmallRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	fifo, large := filepath.Join(dir, "fifo"), filepath.Join(dir, "large")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, 11), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, large, dir, filepath.Join(dir, "none")} {
		if text, err := Read(path, 10); err == nil {
			t.Errorf("%s: %q", path, text)
		}
	}
}

// Rule: ReadDirect refuses a symbolic link, and otherwise reads and refuses the files that Read does.
func TestLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("s3cret"), 0o600), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadDirect(link, 10); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link: %q, %v", text, err)
	}
	if text, err := ReadDirect(file, 10); err != nil || string(text) != "s3cret" {
		t.Errorf("a file: %q, %v", text, err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := ReadDirect(file, 10); belay.CodeOf(err) != belay.CodeForbidden {
		t.Errorf("a file that others can read: %q, %v", text, err)
	}
}

// Rule: a file that is mounted read-only or belongs to another user, like the secrets in
// containers, is accepted, with a warning if every user can read it.
func TestMountedSecretsAreAccepted(t *testing.T) {
	const nobody = 65534
	if as := os.Getenv("SECRET_TEST_FILE"); as != "" {
		text, err := Read(as, 100)
		warning, err2 := Check(as)
		if string(text) != "s3cret" || err != nil || err2 != nil || !strings.Contains(warning, "every user") {
			t.Errorf("%q, %v; %q, %v", text, err, warning, err2)
		}
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	dir, err := os.MkdirTemp("", "belay-secret-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte("s3cret"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	again := func(script string, uid uint32) {
		t.Helper()
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", script, "sh", dir, exe)
		cmd.Env = append(os.Environ(), "SECRET_TEST_FILE="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		if uid == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
	again(`mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -test.run TestMountedSecretsAreAccepted`, 0)
	exe, err := os.Executable()
	if err == nil {
		err = exec.Command("cp", exe, filepath.Join(dir, "again")).Run()
	}
	if err != nil {
		t.Fatal(err)
	}
	again(`exec "$1/again" -test.run TestMountedSecretsAreAccepted`, nobody)
}
