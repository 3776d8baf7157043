//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// mount tries to mount a file system, and to make read-only mounts writable. Mounts that it has
// made writable stay writable for the attacks that run later.
func mount(*spec) (string, error) {
	var open []string
	if err := os.MkdirAll("mountpoint", 0o700); err != nil {
		return "", bare(err)
	}
	err := unix.Mount("tmpfs", "mountpoint", "tmpfs", 0, "size=64k")
	if err == nil {
		open = append(open, "mounted")
		_ = unix.Unmount("mountpoint", unix.MNT_DETACH)
	}
	for _, dir := range []string{"/", "/tmp", "/var/tmp", "/etc"} {
		if unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND, "") == nil {
			open = append(open, "remounted "+dir)
		}
		if unix.MountSetattr(unix.AT_FDCWD, dir, unix.AT_RECURSIVE,
			&unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}) == nil {
			open = append(open, "changed "+dir)
		}
	}
	if len(open) > 0 {
		return strings.Join(open, ", "), nil
	}
	return "", bare(err)
}

// userNamespace tries to become root in a user namespace. From there, a process can reach much more
// of the kernel than an ordinary user can.
func userNamespace(*spec) (string, error) {
	cmd := again("mount")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		if errno := syscall.Errno(0); errors.As(err, &errno) {
			return "", errno
		}
		return "", fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// mountInside mounts a file system in its own mount namespace.
func mountInside([]string) error {
	dir, err := os.MkdirTemp("", "mount")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(dir) }()
	how := "made, and mounted in it"
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		how = "made, nothing mounted in it"
	} else if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		return err
	}
	_, err = fmt.Fprintln(os.Stdout, how)
	return err
}

// outside tries to create files outside of the workspace. The test checks afterwards whether the
// files exist, because the attacker cannot know: a private directory of the job may cover the real
// directory.
func outside(s *spec) (string, error) {
	var written []string
	last := errNothing
	for _, path := range s.Outside {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			last = bare(err)
			continue
		}
		written = append(written, path)
		_ = f.Close()
	}
	if len(written) == 0 {
		return "", last
	}
	return strings.Join(written, " "), nil
}

// base tries to open files of the base clones for writing, because the server makes the workspaces
// of other jobs from these clones. It uses their own paths, and the hard links to them in this
// job's repository.
func base(s *spec) (string, error) {
	last := errNothing
	clones, _ := filepath.Glob(s.Base + "/*/objects")
	for _, dir := range clones {
		f, err := os.OpenFile(dir+"/walls", os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			return "a file was added", errors.Join(f.Close(), os.Remove(f.Name()))
		}
		last = bare(err)
	}
	files := 0
	err := filepath.WalkDir(".git/objects", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // a file that cannot be seen is not attacked
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // a file that cannot be read is not attacked
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Nlink < 2 {
			return nil
		}
		files++
		_ = os.Chmod(path, 0o600)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		_ = os.Chmod(path, info.Mode().Perm())
		if err != nil {
			last = bare(err)
			return nil
		}
		return errors.Join(errShared, f.Close())
	})
	if errors.Is(err, errShared) {
		return "a shared object can be overwritten", nil
	}
	return "", fmt.Errorf("%d shared objects: %w", files, last)
}

var errShared = errors.New("a shared object was opened")

// setUID tries to run a set-user-id program of root.
func setUID(s *spec) (string, error) {
	if os.Geteuid() == 0 {
		return "the job is root already", nil
	}
	if s.SetUID == "" {
		return "", errNothing
	}
	out, err := exec.Command(s.SetUID, "euid").Output() //nolint:noctx // the program ends at once
	if err != nil {
		return "", bare(err)
	}
	if uid := strings.TrimSpace(string(out)); uid != "0" {
		return "", errors.New("the program runs as the user of the job")
	}
	return "the program runs as root", nil
}
