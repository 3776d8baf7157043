//go:build linux

package process

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// secretText is in every content of the secret files that rotatedFiles makes and rotate changes.
const secretText = "this text is secret"

// rotatedFiles makes a directory "vault" with secret files in the layouts that operators use, and a
// run from which these files are hidden.
//
//	vault/token           secret
//	vault/later           secret: absent
//	vault/far/away/token  secret: its directory is absent
//	vault/pod/token       secret: a link to ..data/token, as in volumes of Kubernetes
//	vault/pod/..data      to ..1
//	vault/pod/..1/token
//	vault/live/key        secret: a link to ../archive/key1, as certbot makes it
//	vault/archive/key1
//	vault/plain
//	vault/sub/file
//	vault/link            to plain
func rotatedFiles(t *testing.T, kind Isolation) (c Command, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "vault")
	at := func(name string) string { return filepath.Join(dir, name) }
	fill(t, at("plain"), at("sub/file"))
	for _, name := range []string{"token", "pod/..1/token", "archive/key1"} {
		renew(t, at(name), "1")
	}
	if err := os.Mkdir(at("live"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"pod/..data": "..1", "pod/token": "..data/token", "live/key": "../archive/key1", "link": "plain",
	} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	c, _ = shell(t, kind, "")
	c.Writable = []string{c.Dir}
	c.Secrets = []string{at("token"), at("later"), at("far/away/token"), at("pod/token"), at("live/key")}
	c.Insist = []Wall{WallHidden}
	return c, dir
}

// renew makes or replaces a file with a secret, by a rename, as most programs do.
func renew(t *testing.T, path, version string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		// every user may read the file, so that no mode of the file protects it
		err = os.WriteFile(path+".new", []byte(secretText+", version "+version+"\n"), 0o644)
	}
	if err = errors.Join(err, os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// rotate replaces the secret files that rotatedFiles has made, in the ways in which operators do.
func rotate(t *testing.T, dir, version string) {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	relink := func(to, link string) error {
		return errors.Join(os.Symlink(to, at(link+".new")), os.Rename(at(link+".new"), at(link)))
	}
	renew(t, at("token"), version)
	renew(t, at("later"), version)
	renew(t, at("far/away/token"), version)
	renew(t, at("pod/.."+version+"/token"), version)
	renew(t, at("archive/key"+version), version)
	err := errors.Join(relink(".."+version, "pod/..data"), relink("../archive/key"+version, "live/key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"token", "later"} {
		err := os.Remove(at(name))
		if err == nil {
			err = os.WriteFile(at(name), []byte(secretText+", made again\n"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// watch looks for secrets below a directory, and in its own directory, until the file "stop" is in
// its own directory. It looks by paths through the root directories of all processes, by directories
// that it opened before, and by links that it made before. It counts its rounds in the file "rounds".
func watch(args []string) error {
	dir, own := args[0], args[1]
	var opened []int
	for _, sub := range []string{".", "far", "far/away", "pod", "pod/..data", "live", "archive"} {
		for _, flags := range []int{unix.O_RDONLY | unix.O_DIRECTORY, unix.O_PATH} {
			if fd, err := unix.Open(filepath.Join(dir, sub), flags|unix.O_CLOEXEC, 0); err == nil {
				opened = append(opened, fd)
			}
		}
	}
	names := []string{"token", "later", "far/away/token", "away/token", "..data/token", "key", "pod/token", "live/key",
		"..1/token", "..2/token", "..3/token", "..4/token", "key1", "key2", "key3", "key4", "archive/key4"}
	for i, name := range names {
		_ = os.Link(filepath.Join(dir, name), filepath.Join(own, fmt.Sprint("linked", i)))
	}
	_ = os.Link(dir, filepath.Join(own, "linked"))
	found := make(map[string]bool)
	see := func(path string) {
		if raw, err := os.ReadFile(path); err == nil && strings.Contains(string(raw), secretText) {
			found[path] = true
		}
	}
	for round := 1; ; round++ {
		_, err := os.Lstat(filepath.Join(own, "stop"))
		roots, _ := filepath.Glob("/proc/[0-9]*/root")
		for _, root := range append(roots, "", "/proc/self/root", "/proc/self/cwd/../../..") {
			for _, name := range names {
				see(root + filepath.Join(dir, name))
			}
		}
		for _, top := range []string{dir, own} {
			_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					see(path)
				}
				return nil
			})
		}
		for _, fd := range opened {
			for _, name := range names {
				see(fmt.Sprintf("/proc/self/fd/%d/%s", fd, name))
				if at, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
					f := os.NewFile(uintptr(at), name)
					raw, _ := io.ReadAll(f)
					found[fmt.Sprintf("descriptor %d: %s", fd, name)] = strings.Contains(string(raw), secretText)
					_ = f.Close()
				}
			}
		}
		_ = os.WriteFile(filepath.Join(own, "rounds"), []byte(strings.Repeat("x", round)), 0o600)
		if err == nil {
			break
		}
	}
	var ways []string
	for way, open := range found {
		if open {
			ways = append(ways, way)
		}
	}
	if len(ways) == 0 {
		return errors.New("it found no secret")
	}
	slices.Sort(ways)
	fmt.Println("found", strings.Join(ways, ", "))
	return nil
}

// checkRotated lets a run look for secrets while they are replaced, and fails the test if the run
// finds one.
func checkRotated(t *testing.T, c Command, dir string) {
	t.Helper()
	out := new(transcript)
	c.ID, c.Args, c.Helper, c.Output = id(t), []string{"attacker"}, true, out.take
	c.Stdin = []byte("watch " + dir + " " + c.Dir + "\n")
	tree := begin(t, t.Context(), c)
	rounds := func(more int64) {
		had := max(0, size(filepath.Join(c.Dir, "rounds")))
		until(t, "it looks for secrets", func() bool { return size(filepath.Join(c.Dir, "rounds")) >= had+more })
	}
	rounds(1)
	for _, version := range []string{"2", "3", "4"} {
		rotate(t, dir, version)
		rounds(2)
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "stop"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := wait(t, tree)
	if err != nil || r.Code != 0 || !strings.Contains(out.String(), ": it found no secret\n") {
		t.Errorf("%+v, %v\n%s", r, err, out)
	}
	holds(t, filepath.Join(dir, "pod/token"), secretText+", version 4\n") // the secrets were there to be found
	holds(t, filepath.Join(dir, "later"), secretText+", made again\n")
	if len(r.Walls.Replaceable) > 0 {
		t.Errorf("replaceable: %q", r.Walls.Replaceable)
	}
	for _, name := range []string{"stop", "rounds"} {
		if err := os.Remove(filepath.Join(c.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// Rule: a run cannot read a secret file, also if the file is replaced, deleted or made while the run
// lasts. The run can use the other files in the same directory.
func TestWallSecretsStayHidden(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		for _, without := range []string{"", byLandlock} {
			if without != "" && kind == Subreaper {
				continue
			}
			c, dir := rotatedFiles(t, kind)
			c.without = []string{without}
			checkRotated(t, c, dir)
			permitted(t, c, "read "+dir+"/plain", "read "+dir+"/sub/file", "read "+dir+"/link", "list "+dir,
				"list "+dir+"/sub", "write "+c.Dir+"/new")
			repelled(t, c, "remove "+dir+"/plain", "mkdir "+dir+"/new", "unmount "+dir, "remount "+dir,
				"rename "+dir+"/sub "+c.Dir+"/stolen", "write "+dir+"/plain", "write "+dir+"/sub/file")
			assault(t, c, "write "+dir+"/token")
			out := new(transcript)
			c.Helper, c.Output, c.Args = false, out.take, []string{"/bin/sh", "-c", `unshare -Urm umount "$0"
				unshare -Urm sh -c 'umount "$0"/*; umount "$0"; cat "$0/token"' "$0"
				unshare -Urm sh -c 'mount --bind "$0/.." /mnt && cat /mnt/vault/token' "$0"; cat "$0/token"`, dir}
			if _, err := Run(t.Context(), c); err != nil || out.stdout.String() != "" {
				t.Errorf("in another user namespace: %s, %v", out, err)
			}
			holds(t, dir+"/token", secretText+", made again\n")
		}
	})
}

// Rule: a run that may write in every directory makes files beside a secret that stay there after the run. The present
// secret is hidden, and Walls.Replaceable names it.
func TestWallSecretsOfARunThatMayWriteEverywhere(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		if kind == Subreaper {
			t.Skip("Landlock cannot hide a file in a directory in which the run may write")
		}
		c, dir := rotatedFiles(t, kind)
		c.Writable, c.Secrets = nil, []string{filepath.Join(dir, "token"), filepath.Join(dir, "later")}
		r := permitted(t, c, "write "+dir+"/new", "mkdir "+dir+"/made", "write "+dir+"/made/new", "read "+dir+"/plain",
			"read "+dir+"/token")
		if size(filepath.Join(dir, "new")) <= 0 || size(filepath.Join(dir, "made/new")) <= 0 {
			t.Error("the files that the run has made are lost")
		}
		got, want := r.Walls.Replaceable, []string{filepath.Join(dir, "later"), filepath.Join(dir, "token")}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		holds(t, dir+"/token", secretText+", version 1\n")
	})
}

// Rule: a secret that does not exist when a run starts stays hidden when it is made, even if nothing
// else near it is hidden.
func TestWallSecretThatIsMadeLater(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		for _, path := range []string{"later", "far/away/token"} {
			c, dir := rotatedFiles(t, kind)
			secret := filepath.Join(dir, path)
			c.Secrets = []string{secret}
			out := new(transcript)
			c.Args, c.Output = []string{"/bin/sh", "-c", `echo > begun; until [ -e stop ]; do sleep 0.01; done; cat "$0/plain" "$1"`, dir, secret}, out.take
			tree := begin(t, t.Context(), c)
			until(t, "it begins", func() bool { return size(filepath.Join(c.Dir, "begun")) > 0 })
			renew(t, secret, "1")
			fill(t, filepath.Join(c.Dir, "stop"))
			if r, err := wait(t, tree); err != nil || strings.Contains(out.String(), secretText) ||
				out.stdout.String() != "plain\n" || len(r.Walls.Replaceable) > 0 {
				t.Errorf("%s: %+v, %v\n%s", path, r, err, out)
			}
		}
	})
}

// Rule: secrets in directories below hidden directories, or in readable ones, stay hidden, and the
// readable and writable paths beside them stay as they are.
func TestWallSecretsBelowOtherPlaces(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, dir := hiddenFiles(t, kind)
		at := func(name string) string { return filepath.Join(dir, name) }
		c.Secrets = []string{at("secret"), at("room/key"), at("room/bin/key"), at("room/bin/later"), at("link/later"),
			at("room/later")}
		checkHidden(t, c, dir)
		out := new(transcript)
		c.Helper, c.Output, c.Args = false, out.take, []string{"/bin/sh", "-c", `echo > begun
			until [ -e stop ]; do sleep 0.01; done
			cd "$0"; cat secret room/key room/bin/key room/bin/later link/later room/later; cat room/bin/tool`, dir}
		tree := begin(t, t.Context(), c)
		until(t, "it begins", func() bool { return size(at("room/work/begun")) > 0 })
		for _, name := range []string{"secret", "room/key", "room/bin/key", "room/bin/later", "room/later"} {
			renew(t, at(name), "2")
		}
		fill(t, at("room/work/stop"))
		if r, err := wait(t, tree); err != nil || out.stdout.String() != "#!/bin/sh\necho tool works\n" ||
			len(r.Walls.Replaceable) > 0 {
			t.Errorf("%+v, %v\n%s", r, err, out)
		}
	})
}

// Rule: secrets also stay hidden from a run with a user of its own, whatever the modes of the files
// are; the run gets no more access to other files than the modes of their directories give it.
func TestWallSecretsStayHiddenFromAUser(t *testing.T) {
	user := tenant(t)
	c, dir := rotatedFiles(t, PIDNamespace)
	passable(t, dir)
	passable(t, c.Dir)
	if err := os.Chown(c.Dir, int(user.UID), int(user.GID)); err != nil {
		t.Fatal(err)
	}
	c.User, c.without = user, []string{byLandlock}
	checkRotated(t, c, dir)
	permitted(t, c, "read "+dir+"/plain", "list "+dir)
	for mode, open := range map[fs.FileMode][]bool{0o711: {true, false}, 0o700: {false, false}, 0o744: {false, true}} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		for i, line := range []string{"read " + dir + "/plain", "list " + dir} {
			if open[i] {
				permitted(t, c, line)
			} else {
				repelled(t, c, line)
			}
		}
	}
}

// Rule: a secret in a directory that no mount can cover, such as the root directory, stays hidden by
// Landlock. Without Landlock, Walls.Replaceable and Open name the secret.
func TestWallSecretsInTheRootDirectory(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		f, err := os.CreateTemp("/", "belay-secret-")
		if err != nil {
			t.Skip("this user cannot write in the root directory")
		}
		t.Cleanup(func() { _ = os.Remove(f.Name()) })
		_ = f.Close()
		renew(t, f.Name(), "1")
		for _, without := range []string{"", byLandlock} {
			if without != "" && kind == Subreaper {
				continue
			}
			c, _ := rotatedFiles(t, kind)
			c.Secrets = []string{f.Name()}
			c.without = []string{without}
			out := new(transcript)
			c.Args, c.Output = []string{"/bin/sh", "-c", "echo > begun; until [ -e stop ]; do sleep 0.01; done; cat $1",
				"sh", f.Name()}, out.take
			tree := begin(t, t.Context(), c)
			until(t, "it begins", func() bool { return size(filepath.Join(c.Dir, "begun")) > 0 })
			renew(t, f.Name(), "2")
			fill(t, filepath.Join(c.Dir, "stop"))
			r, err := wait(t, tree)
			if read := strings.Contains(out.String(), secretText); err != nil || read != (without != "") {
				t.Errorf("without %q: %+v, %v\n%s", without, r, err, out)
			}
			if open := strings.Join(r.Walls.Open(), "; "); (len(r.Walls.Replaceable) > 0) != (without != "") ||
				strings.Contains(open, f.Name()) != (without != "") {
				t.Errorf("without %q: %+v, %s", without, r.Walls, open)
			}
		}
	})
}

// Rule: a directory with more entries than a run gets mounts for also keeps its secrets.
func TestWallSecretsAmongManyFiles(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, dir := rotatedFiles(t, kind)
		for i := range mostBeside {
			fill(t, filepath.Join(dir, fmt.Sprint("many", i)))
		}
		began := time.Now()
		checkRotated(t, c, dir)
		t.Logf("among many files: %s", time.Since(began))
		permitted(t, c, "read "+dir+"/plain", "list "+dir)
	})
}

// Rule: programs can use /etc as before although a secret is in it.
func TestWallSecretInEtc(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		c, _ := rotatedFiles(t, kind)
		c.Secrets = []string{"/etc/shadow"}
		out := new(transcript)
		c.Args, c.Output = []string{"/bin/sh", "-c", `id -un && ls -A /etc | wc -l; wc -c </etc/shadow`}, out.take
		began := time.Now()
		r, err := Run(t.Context(), c)
		entries, _ := os.ReadDir("/etc")
		user, _ := exec.Command("id", "-un").Output()
		if want := fmt.Sprintf("%s%d\n", user, len(entries)); err != nil ||
			strings.TrimSuffix(out.stdout.String(), "0\n") != want {
			t.Errorf("%q, want %q, %+v, %v\n%s", out.stdout.String(), want, r, err, out)
		}
		t.Logf("%d entries: %s", len(entries), time.Since(began))
		repelled(t, c, "write /etc/belay-canary")
	})
}

// Rule: a secret in a directory in which the run may write is hidden as it is, and the run can write
// in the directory.
func TestWallSecretInAWritableDirectory(t *testing.T) {
	each(t, func(t *testing.T, kind Isolation) {
		if kind == Subreaper {
			t.Skip("Landlock cannot hide a file in a directory in which the run may write")
		}
		c, _ := rotatedFiles(t, kind)
		secret := filepath.Join(c.Dir, "secret")
		renew(t, secret, "1")
		c.Secrets = []string{secret}
		r := permitted(t, c, "write new", "read secret")
		if !slices.Equal(r.Walls.Replaceable, c.Secrets) {
			t.Errorf("%+v", r.Walls)
		}
		assault(t, c, "write secret", "remove secret")
		holds(t, secret, secretText+", version 1\n")
	})
}

// Rule: trail follows the links of a secret, and ends at the first directory that does not exist.
func TestTrail(t *testing.T) {
	_, dir := rotatedFiles(t, Subreaper)
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{"loop", "dangling"} {
		to := map[string]string{"loop": "loop", "dangling": "pod/..data/../absent/x"}[link]
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string][]string{
		"token": {"token"}, "later": {"later"}, "far/away/token": {"far"}, "pod/token": {"pod/token", "pod/..1/token"},
		"live/key": {"live/key", "archive/key1"}, "dangling": {"dangling", "pod/absent"},
		"dangling/x": {"dangling", "pod/absent"},
	} {
		got, err := trail(filepath.Join(dir, path))
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], dir+"/")
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q, %v", path, got, want, err)
		}
	}
	if got, err := trail(filepath.Join(dir, "loop")); err == nil {
		t.Errorf("a loop: %q", got)
	}
	for _, path := range []string{"/dev/stdin", "/proc/self/fd/0", "/dev/fd/63"} {
		if got, err := trail(path); err != nil || len(got) > 0 {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}
