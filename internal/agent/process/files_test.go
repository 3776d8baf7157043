//go:build linux

package process

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Rule: a command has the files in Command.Files as its descriptors from 3 on, and no other files
// open.
func TestFilesOfACommand(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "note"), []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
		d := openDir(t, dir)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		c, said := shell(t, kind, "cat /proc/self/fd/3/note; echo into the pipe >&4; ls /proc/self/fd | wc -l")
		c.Files = []*os.File{d, w}
		if _, err := Run(t.Context(), c); err != nil {
			t.Fatal(err, said)
		}
		_ = w.Close()
		got := make([]byte, 64)
		n, _ := r.Read(got)
		if string(got[:n]) != "into the pipe\n" {
			t.Errorf("the pipe got %q", got[:n])
		}
		// the command has six files open: the descriptors 0 to 4, and the directory that ls reads
		if said.String() != "hello6\n" {
			t.Errorf("the command said %q", said)
		}
	})
}

// Rule: only the command has the files in Command.Files open. When it closes one of these
// descriptors, no process has the file open any more, because the supervisor has closed its own
// copy.
func TestOnlyTheCommandKeepsItsFilesOpen(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		c, said := shell(t, kind, "exec 3>&-; read _ <&4")
		c.Files = []*os.File{w, in}
		tree := begin(t, t.Context(), c)
		_, _ = w.Close(), in.Close()
		_ = r.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("read %d, %v; %s", n, err, said)
		}
		_ = out.Close() // ends the command, which waits for its input
		if _, err := wait(t, tree); err != nil {
			t.Error(err)
		}
	})
}

func openDir(t *testing.T, dir string) *os.File {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// Rule: reopen refuses a directory that was replaced after it was opened.
func TestADirectoryThatWasReplacedIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := openDir(t, dir)
	at := directoriesOf([]*os.File{d})[0]
	if err := os.Rename(dir, dir+".gone"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", dir); err != nil {
		t.Fatal(err)
	}
	if err := reopen(int(d.Fd()), at); err == nil {
		t.Error("a symbolic link was followed")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := reopen(int(d.Fd()), at); err == nil {
		t.Error("another directory was taken for the one that was opened")
	}
}

// Rule: a sealed command (a command that may write only in Command.Writable) can read a directory
// in Command.Files and cannot write to it.
func TestASealAppliesToADirectoryThatWasPassedOn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can seal the file system")
	}
	dir, own := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "note"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, said := shell(t, PIDNamespace, "cat /proc/self/fd/3/note; echo more >/proc/self/fd/3/note || echo refused")
	c.Files, c.Writable = []*os.File{openDir(t, dir)}, []string{own}
	end, err := Run(t.Context(), c)
	if err != nil || !end.Sealed {
		t.Fatal(end, err, said)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "note")); string(got) != "hello" {
		t.Errorf("the note contains %q; the command said %q", got, said)
	}
}

// Rule: a command with Helper set runs a function of this program.
func TestHelper(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, said := shell(t, kind, "")
		c.Args, c.Helper = []string{"test-helper", "hello"}, true
		end, err := Run(t.Context(), c)
		if err != nil || end.Code != 7 || said.String() != "helped hello\n" {
			t.Errorf("got %d %q, %v", end.Code, said, err)
		}
	})
}
