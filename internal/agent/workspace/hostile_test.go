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

// stranger is the uid of a user that is neither root nor the user of any job.
const stranger = 1_600_000_001

// asRoot skips the test unless it runs as root, because the test attacks root.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root has rights that others could use")
	}
}

// publicDir makes a directory that every user may enter and write. It lies outside the directory
// for temporary files, because each job and helper has a directory for temporary files of its own.
func publicDir(t *testing.T) string {
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

// witness makes a program that records the id of the user who runs it and copies its input to its
// output. seen returns the recorded ids.
func witness(t *testing.T) (program string, seen func() string) {
	t.Helper()
	dir := publicDir(t)
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

// chownAll makes the user uid the owner of all files in a directory.
func chownAll(t *testing.T, dir string, uid int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, uid))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// swapper exchanges the names of two files again and again until stop is called.
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

// mapped maps a file into this process's memory.
func mapped(t *testing.T, f *os.File) (undo func()) {
	t.Helper()
	data, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = unix.Munmap(data) }
}
