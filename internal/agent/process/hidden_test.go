//go:build linux

package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/host"
)

// hiddenFiles makes a directory "house" with files, and a run from which some of the files are
// hidden. Some hidden paths have visible paths below them.
//
//	house/secret           hidden: a file
//	house/room/            hidden
//	house/room/key
//	house/room/bin/        readable
//	house/room/bin/tool
//	house/room/bin/key     hidden: a file
//	house/room/work/       writable
//	house/room/work/file
//	house/room/work/vault/ hidden
//	house/plain
//	house/link             to house/room
func hiddenFiles(t *testing.T, kind Isolation) (c Command, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "house")
	at := func(name string) string { return filepath.Join(dir, name) }
	fill(t, at("secret"), at("room/key"), at("room/bin/tool"), at("room/bin/key"), at("room/work/file"),
		at("room/work/vault/key"), at("plain"))
	if err := os.WriteFile(at("room/bin/tool"), []byte("#!/bin/sh\necho tool works\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("room"), at("link")); err != nil {
		t.Fatal(err)
	}
	c, _ = shell(t, kind, "")
	c.Dir, c.Writable = at("room/work"), []string{at("room/work")}
	c.Hidden = []string{at("room"), at("secret"), at("room/bin/key"), at("absent")}
	if kind != Subreaper {
		c.Hidden = append(c.Hidden, at("room/work/vault"))
	}
	c.Readable = []string{at("room/bin"), at("room/absent")}
	c.Insist = []Wall{WallHidden}
	return c, dir
}

// checkHidden tries to read and change the hidden paths that hiddenFiles made, and checks that the
// visible paths can be used.
func checkHidden(t *testing.T, c Command, dir string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	secrets := []string{"secret", "room/key", "link/key", "room/bin/key"}
	if c.Isolation != Subreaper {
		secrets = append(secrets, "room/work/vault/key")
	}
	lines := []string{"write " + at("room/new"), "write " + at("room/bin/new"), "write " + at("room/bin/tool")}
	r := repelled(t, c, lines...)
	for _, name := range secrets {
		// Try to read the hidden files also through the root and working directories of other
		// processes.
		for _, from := range []string{"", "/proc/1/root", "/proc/self/root", "/proc/self/cwd/../../.."} {
			line := "cat " + from + at(name) + " 2>&1; true"
			c.Helper, c.Args = false, []string{"/bin/sh", "-c", line}
			out := new(transcript)
			c.Output = out.take
			if _, err := Run(t.Context(), c); err != nil || strings.Contains(out.stdout.String(), filepath.Base(name)+
				"\n") {
				t.Errorf("%s: %q, %v", line, out, err)
			}
		}
	}
	permitted(t, c, "read "+at("room/bin/tool"), "list "+at("room/bin"), "write new", "read file", "read "+at("plain"),
		"read /etc/passwd")
	c.Helper, c.Args = false, []string{at("room/bin/tool")}
	out := new(transcript)
	c.Output = out.take
	if r, err := Run(t.Context(), c); err != nil || out.String() != "tool works\n" {
		t.Errorf("the tool: %q, %+v, %v", out, r, err)
	}
	if r.Walls.Hidden == "" {
		t.Errorf("%+v", r.Walls)
	}
	holds(t, at("room/work/new"), "attacked")
}

// Rule: a run cannot read, list or change hidden paths in any way. It can use visible paths below
// hidden paths as its Command allows.
func TestWallHidden(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, dir := hiddenFiles(t, kind)
		checkHidden(t, c, dir)
	})
}

// Rule: Command.Hidden also works for a run that is not sealed (that may write in every directory).
func TestWallHiddenWithoutASeal(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, dir := hiddenFiles(t, kind)
		c.Writable, c.Dir = nil, "/"
		repelled(t, c, "read "+dir+"/room/key", "write "+dir+"/room/new/x", "write "+dir+"/room/bin/tool")
		// in a mount namespace an empty file covers the secret, so reading the secret succeeds but
		// returns nothing
		if kind == Subreaper {
			repelled(t, c, "read "+dir+"/secret", "write "+dir+"/secret", "read "+dir+"/room/bin/key")
		}
		permitted(t, c, "read "+dir+"/room/bin/tool", "write "+dir+"/plain", "read /etc/passwd")
	})
}

// Rule: if a directory belongs to root and has the mode 0700, such as the data directory of the
// server, it looks empty to a run that has its own user and a workspace below that directory.
func TestWallHiddenFromAUser(t *testing.T) {
	user := tenant(t)
	c, dir := hiddenFiles(t, PIDNamespace)
	passable(t, dir)
	for _, at := range []string{"room/work", "room/work/file"} {
		if err := os.Chown(filepath.Join(dir, at), int(user.UID), int(user.GID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "room"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.User = user
	checkHidden(t, c, dir)
	c.Hidden = nil // now only the mode hides the directory; the run can still reach its workspace
	c.Insist = []Wall{WallSeal, WallUser}
	repelled(t, c, "read "+dir+"/room/key", "write "+dir+"/room/new")
	permitted(t, c, "write new", "read "+dir+"/room/bin/tool", "read "+dir+"/secret")
}

// Rule: if the run's user may not pass through a directory above its workspace, the run gets a path
// to the workspace through empty directories, and all hidden files in these directories stay
// hidden.
func TestWallHiddenBelowADirectoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run commands as another user")
	}
	closed := filepath.Join(t.TempDir(), "closed")
	data := filepath.Join(closed, "data")
	dir := filepath.Join(data, "jobs", "checkout")
	fill(t, filepath.Join(data, "secret"), filepath.Join(closed, "beside"), filepath.Join(dir, "file"))
	user := host.User{UID: 0x70000000, GID: 0x70000000}
	if err := errors.Join(os.Chmod(closed, 0o700), os.Chown(dir, int(user.UID), int(user.GID))); err != nil {
		t.Fatal(err)
	}
	for _, hidden := range [][]string{{data}, {closed, data}, {filepath.Join(data, "secret"),
		filepath.Join(data, "jobs")}} {
		c, out := shell(t, Auto, `id -u; cat file > copy && echo wrote; cat "$1/secret" "$1/../beside"`)
		c.Args = append(c.Args, "sh", data)
		c.Dir, c.User, c.Writable, c.Hidden, c.Insist = dir, &user, []string{dir}, hidden, []Wall{WallHidden, WallSeal,
			WallUser}
		r, err := Run(t.Context(), c)
		if err != nil || out.stdout.String() != "1879048192\nwrote\n" || r.Isolation != PIDNamespace {
			t.Errorf("%q hidden: %+v, %v\n%s", hidden, r, err, out)
		}
	}
}

// Rule: if a program in Command.Readable is a symbolic link, the run can execute it by the link and
// by its real path.
func TestWallHiddenBehindALink(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, dir := hiddenFiles(t, kind)
		if err := os.MkdirAll(dir+"/room/.local/bin", 0o755); err != nil {
			t.Fatal(err)
		}
		link := dir + "/room/.local/bin/tool"
		if err := os.Symlink("../../bin/tool", link); err != nil {
			t.Fatal(err)
		}
		c.Readable = []string{link}
		for _, path := range []string{link, dir + "/room/bin/tool"} {
			out := new(transcript)
			c.Args, c.Output = []string{path}, out.take
			if r, err := Run(t.Context(), c); err != nil || out.String() != "tool works\n" {
				t.Errorf("%s: %q, %+v, %v", path, out, r, err)
			}
		}
		repelled(t, c, "read "+dir+"/room/key", "write "+link)
	})
}

// Rule: a run cannot write to the empty files and directories that cover hidden paths, even if the
// run's user owns them.
func TestWallHiddenIsEmpty(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		if kind == Subreaper {
			t.Skip("without a mount namespace hidden paths are not covered")
		}
		c, dir := hiddenFiles(t, kind)
		c.without = []string{byLandlock}
		repelled(t, c, "write "+dir+"/room/new", "mkdir "+dir+"/room/new", "unmount "+dir+"/room",
			"unmount "+dir+"/secret", "remount "+dir+"/room")
		c.Args, c.Helper = []string{
			"/bin/sh", "-c", "ls -A " + dir + "/room; wc -c <" + dir + "/secret; unshare -Urm umount " + dir +
				"/room && echo UNCOVERED",
		}, false
		out := new(transcript)
		c.Output = out.take
		if _, err := Run(t.Context(), c); err != nil || out.stdout.String() != "bin\nwork\n0\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
}

// Rule: a command can read a hidden directory that it gets as a descriptor, and cannot write to it.
func TestWallHiddenPassedAsADescriptor(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, dir := hiddenFiles(t, kind)
		c.Files = []*os.File{openDir(t, dir+"/room"), openDir(t, c.Dir)}
		permitted(t, c, "read /proc/self/fd/3/key", "list /proc/self/fd/3", "write /proc/self/fd/4/new")
		repelled(t, c, "write /proc/self/fd/3/key", "write /proc/self/fd/3/new")
	})
}

// Rule: without a mount namespace a path below a writable directory cannot be hidden. If the
// command insists on WallHidden, Start returns an error that names the path.
func TestWallHiddenBelowTheWritable(t *testing.T) {
	c, dir := hiddenFiles(t, Subreaper)
	c.Hidden = append(c.Hidden, filepath.Join(dir, "room/work/vault"))
	c.Args = []string{"true"}
	var missing *WallError
	if _, err := Run(t.Context(), c); !errors.As(err, &missing) || missing.Wall != WallHidden ||
		!strings.Contains(missing.Reason, "vault") {
		t.Errorf("%v", err)
	}
	c.Insist = nil
	if r, err := Run(t.Context(), c); err != nil || r.Walls.Hidden != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// Rule: beside returns two lists. The paths in the first list together contain everything except
// the hidden paths. The second list has the directories that the run may list although hidden files
// lie below them; no hidden directory lies below them.
func TestBesideReturnsAllButTheHiddenPaths(t *testing.T) {
	if got, _ := beside("/", nil); len(got) != 1 || got[0] != "/" {
		t.Errorf("with nothing hidden: %q", got)
	}
	_, dir := hiddenFiles(t, Subreaper)
	visible, listed := beside("/", []string{dir + "/room/key", dir + "/secret"})
	within := make(map[string]bool)
	for _, path := range visible {
		if rest, ok := strings.CutPrefix(path, dir+"/"); ok {
			within[rest] = true
		}
		if strings.HasPrefix(dir, path+"/") {
			t.Errorf("%s is above a hidden path", path)
		}
	}
	if !slices.Contains(listed, dir) || slices.Contains(listed, dir+"/room/bin") {
		t.Errorf("listed: %q", listed)
	}
	if len(within) != 3 || !within["plain"] || !within["room/bin"] || !within["room/work"] {
		t.Errorf("visible: %v", within)
	}
}
