//go:build linux

package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// stranger is a user of this machine who is neither root nor of any job.
const stranger = 1_600_000_001

// asRoot skips a test that is about what others can make root do.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root has rights that others could use")
	}
}

// public is a directory that everybody can pass and write, away from where jobs and
// helpers have their temporary files.
func public(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "belay-attack-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return dir
}

// witness is a program that notes as whom it runs, and gives its input back.
func witness(t *testing.T) (program string, seen func() string) {
	t.Helper()
	dir := public(t)
	program = filepath.Join(dir, "program")
	note := filepath.Join(dir, "seen")
	write(t, note, "")
	write(t, program, "#!/bin/sh\nid -u >>"+note+"\ncase \"$1\" in pack-objects) exec \"$@\";; esac\ncat\n")
	if err := errors.Join(os.Chmod(note, 0o666), os.Chmod(program, 0o755)); err != nil {
		t.Fatal(err)
	}
	return program, func() string {
		raw, _ := os.ReadFile(note)
		return string(raw)
	}
}

// own gives a tree to a user.
func own(t *testing.T, dir string, uid int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, uid))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// swapper exchanges two names until the test ends it.
func swapper(t *testing.T, a, b string) (stop func()) {
	t.Helper()
	done := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	})
	return sync.OnceFunc(func() { close(done); over.Wait() })
}

// mapped makes a file part of this process's memory.
func mapped(t *testing.T, f *os.File) (undo func()) {
	t.Helper()
	data, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = unix.Munmap(data) }
}
