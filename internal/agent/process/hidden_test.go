//go:build linux

package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// house is a run with hidden paths, and with some of what is below them left visible.
//
//	house/secret           hidden: a file
//	house/home/            hidden
//	house/home/key
//	house/home/bin/        readable
//	house/home/bin/tool
//	house/home/bin/key     hidden: a file
//	house/home/work/       writable
//	house/home/work/file
//	house/home/work/vault/ hidden
//	house/plain
//	house/link             to house/home
func house(t *testing.T, kind Isolation) (c Command, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "house")
	at := func(name string) string { return filepath.Join(dir, name) }
	fill(t, at("secret"), at("home/key"), at("home/bin/tool"), at("home/bin/key"), at("home/work/file"), at("home/work/vault/key"), at("plain"))
	if err := os.WriteFile(at("home/bin/tool"), []byte("#!/bin/sh\necho tool works\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("home"), at("link")); err != nil {
		t.Fatal(err)
	}
	c, _ = shell(t, kind, "")
	c.Dir, c.Writable = at("home/work"), []string{at("home/work")}
	c.Hidden = []string{at("home"), at("secret"), at("home/bin/key"), at("absent")}
	if kind != Subreaper {
		c.Hidden = append(c.Hidden, at("home/work/vault"))
	}
	c.Readable = []string{at("home/bin"), at("home/absent")}
	c.Insist = []Wall{WallHidden}
	return c, dir
}

// besieged attacks what is hidden in a house.
func besieged(t *testing.T, c Command, dir string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	secrets := []string{"secret", "home/key", "link/key", "home/bin/key"}
	if c.Isolation != Subreaper {
		secrets = append(secrets, "home/work/vault/key")
	}
	lines := []string{"write " + at("home/new"), "write " + at("home/bin/new"), "write " + at("home/bin/tool")}
	r := repelled(t, c, lines...)
	for _, name := range secrets {
		// Through what other processes see, too.
		for _, from := range []string{"", "/proc/1/root", "/proc/self/root", "/proc/self/cwd/../../.."} {
			line := "cat " + from + at(name) + " 2>&1; true"
			c.Helper, c.Args = false, []string{"/bin/sh", "-c", line}
			out := new(transcript)
			c.Output = out.take
			if _, err := Run(t.Context(), c); err != nil || strings.Contains(out.stdout.String(), filepath.Base(name)+"\n") {
				t.Errorf("%s: %q, %v", line, out, err)
			}
		}
	}
	open(t, c, "read "+at("home/bin/tool"), "list "+at("home/bin"), "write new", "read file", "read "+at("plain"), "read /etc/passwd")
	c.Helper, c.Args = false, []string{at("home/bin/tool")}
	out := new(transcript)
	c.Output = out.take
	if r, err := Run(t.Context(), c); err != nil || out.String() != "tool works\n" {
		t.Errorf("the tool: %q, %+v, %v", out, r, err)
	}
	if r.Walls.Hidden == "" {
		t.Errorf("%+v", r.Walls)
	}
	holds(t, at("home/work/new"), "attacked")
}

// Rule: what is hidden from a run it cannot read, list or change, by any way, and what
// is visible below it works as it is meant to.
func TestWallHidden(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, dir := house(t, kind)
		besieged(t, c, dir)
	})
}

// Rule: hidden is hidden also where nothing is sealed.
func TestWallHiddenWithoutASeal(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, dir := house(t, kind)
		c.Writable, c.Dir = nil, "/"
		repelled(t, c, "read "+dir+"/home/key", "write "+dir+"/home/new/x", "write "+dir+"/home/bin/tool")
		if kind == Subreaper { // elsewhere they are empty
			repelled(t, c, "read "+dir+"/secret", "write "+dir+"/secret", "read "+dir+"/home/bin/key")
		}
		open(t, c, "read "+dir+"/home/bin/tool", "write "+dir+"/plain", "read /etc/passwd")
	})
}

// Rule: a directory of root's with mode 0700, as the server's data, is as if it were
// empty to a run of a user of its own, whose workspace is below it.
func TestWallHiddenFromAUser(t *testing.T) {
	user := tenant(t)
	c, dir := house(t, PIDNamespace)
	passable(t, dir)
	for _, at := range []string{"home/work", "home/work/file"} {
		if err := os.Chown(filepath.Join(dir, at), int(user.UID), int(user.GID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "home"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.User = user
	besieged(t, c, dir)
	c.Hidden = nil // then its mode hides it, and the way to the workspace is made all the same
	c.Insist = []Wall{WallSeal, WallUser}
	repelled(t, c, "read "+dir+"/home/key", "write "+dir+"/home/new")
	open(t, c, "write new", "read "+dir+"/home/bin/tool", "read "+dir+"/secret")
}

// Rule: a program that is visible by a symbolic link runs by its name, and by that of
// the link.
func TestWallHiddenBehindALink(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, dir := house(t, kind)
		if err := os.MkdirAll(dir+"/home/.local/bin", 0o755); err != nil {
			t.Fatal(err)
		}
		link := dir + "/home/.local/bin/tool"
		if err := os.Symlink("../../bin/tool", link); err != nil {
			t.Fatal(err)
		}
		c.Readable = []string{link}
		for _, path := range []string{link, dir + "/home/bin/tool"} {
			out := new(transcript)
			c.Args, c.Output = []string{path}, out.take
			if r, err := Run(t.Context(), c); err != nil || out.String() != "tool works\n" {
				t.Errorf("%s: %q, %+v, %v", path, out, r, err)
			}
		}
		repelled(t, c, "read "+dir+"/home/key", "write "+link)
	})
}

// Rule: the covers of what is hidden are no place to write, for the same user either.
func TestWallHiddenIsEmpty(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		if kind == Subreaper {
			t.Skip("without a mount namespace nothing covers what is hidden")
		}
		c, dir := house(t, kind)
		c.without = []string{byLandlock}
		repelled(t, c, "write "+dir+"/home/new", "mkdir "+dir+"/home/new", "unmount "+dir+"/home", "unmount "+dir+"/secret", "remount "+dir+"/home")
		c.Args, c.Helper = []string{"/bin/sh", "-c", "ls -A " + dir + "/home; wc -c <" + dir + "/secret; unshare -Urm umount " + dir + "/home && echo UNCOVERED"}, false
		out := new(transcript)
		c.Output = out.take
		if _, err := Run(t.Context(), c); err != nil || out.stdout.String() != "bin\nwork\n0\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
}

// Rule: a directory that is handed on can be read though it is hidden, and not written.
func TestWallHiddenIsHandedOn(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, dir := house(t, kind)
		c.Files = []*os.File{openDir(t, dir+"/home"), openDir(t, c.Dir)}
		open(t, c, "read /proc/self/fd/3/key", "list /proc/self/fd/3", "write /proc/self/fd/4/new")
		repelled(t, c, "write /proc/self/fd/3/key", "write /proc/self/fd/3/new")
	})
}

// Rule: without mounts nothing is hidden below a directory in which the run may write, and
// that is said.
func TestWallHiddenBelowTheWritable(t *testing.T) {
	c, dir := house(t, Subreaper)
	c.Hidden = append(c.Hidden, filepath.Join(dir, "home/work/vault"))
	c.Args = []string{"true"}
	var missing *WallError
	if _, err := Run(t.Context(), c); !errors.As(err, &missing) || missing.Wall != WallHidden || !strings.Contains(missing.Reason, "vault") {
		t.Errorf("%v", err)
	}
	c.Insist = nil
	if r, err := Run(t.Context(), c); err != nil || r.Walls.Hidden != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// Rule: the paths beside hidden ones are all there is but the listing above them.
func TestBeside(t *testing.T) {
	if got, _ := beside("/", nil); len(got) != 1 || got[0] != "/" {
		t.Errorf("with nothing hidden: %q", got)
	}
	_, dir := house(t, Subreaper)
	visible, listed := beside("/", []string{dir + "/home/key", dir + "/secret"})
	within := make(map[string]bool)
	for _, path := range visible {
		if rest, ok := strings.CutPrefix(path, dir+"/"); ok {
			within[rest] = true
		}
		if strings.HasPrefix(dir, path+"/") {
			t.Errorf("%s is above what is hidden", path)
		}
	}
	if !slices.Contains(listed, dir) || slices.Contains(listed, dir+"/home/bin") {
		t.Errorf("listed: %q", listed)
	}
	if len(within) != 3 || !within["plain"] || !within["home/bin"] || !within["home/work"] {
		t.Errorf("visible: %v", within)
	}
}
