package workspace

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// namesIn lists the names of the files in an archive.
func namesIn(t *testing.T, archive []byte) (names []string) {
	t.Helper()
	if len(archive) == 0 {
		return nil
	}
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	in := tar.NewReader(z)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

// Rule: Restore restores HOME with contents, modes, times and the symbolic links that stay in HOME.
// It omits caches and the files that Belay itself wrote.
func TestHomeComesBack(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	if s := salvageOf(t, m, w); s.Home != nil {
		t.Errorf("of an untouched HOME: %v", namesIn(t, s.Home))
	}
	at := func(name string) string { return filepath.Join(w.Home, name) }
	write(t, at(".claude/projects/-work-repo/session.jsonl"), `{"type":"user"}`)
	write(t, at(".claude.json"), "{}")
	write(t, at(".netrc"), "machine example.org")
	write(t, at("bin/tool"), "#!/bin/sh\n")
	write(t, at("na me/\xff\xfe"), "odd")
	for name, mode := range map[string]os.FileMode{".netrc": 0o600, "bin/tool": 0o755, "bin": 0o700} {
		if err := os.Chmod(at(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": "bin/tool", "bin/up": "../.netrc", "whole": at("bin")} {
		if err := os.Symlink(target, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".cache/x", ".npm/_cacache/x", "node_modules/x/y", "go/pkg/mod/x",
		"deep/node_modules/x", ".cargo/registry/x"} {
		write(t, at(name), "again and again")
	}
	write(t, at("tagged/CACHEDIR.TAG"), cacheTag+"\n")
	write(t, at("tagged/x"), "again")
	when := time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)
	if err := os.Chtimes(at(".claude.json"), when, when); err != nil {
		t.Fatal(err)
	}
	s := salvageOf(t, m, w)
	if s.Lost != "" || s.Bundle != nil || s.Patch != nil {
		t.Errorf("lost %q, bundle %d, patch %d", s.Lost, len(s.Bundle), len(s.Patch))
	}
	if again := salvageOf(t, m, w); !bytes.Equal(s.Home, again.Home) {
		t.Error("the same HOME gives another archive")
	}
	again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil {
		t.Fatal(err)
	}
	want := contents(t, w.Home)
	for name := range want {
		if slices.ContainsFunc([]string{".cache", ".npm", "node_modules", "go", "deep", ".cargo", "tagged"},
			func(dir string) bool { return strings.HasPrefix(name, dir+"/") }) {
			delete(want, name)
		}
	}
	want["whole"] = "-> bin"
	if diff := cmp.Diff(want, contents(t, again.Home)); diff != "" {
		t.Errorf("(-salvaged +restored):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(again.Home, ".netrc"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Join(again.Home, ".claude.json")); err != nil || !info.ModTime().Equal(when) {
		t.Errorf("%v, %v", info.ModTime(), err)
	}
	if twice := salvageOf(t, m, again); !slices.Equal(namesIn(t, s.Home), namesIn(t, twice.Home)) {
		t.Errorf("salvaged again: %v, then %v", namesIn(t, s.Home), namesIn(t, twice.Home))
	}
	m.KeepHome = false
	if s := salvageOf(t, m, w); s.Home != nil {
		t.Error("HOME was kept although KeepHome is off")
	}
}

// Rule: Salvage does not save a link that leads out of HOME, a file of another user, a file that
// blocks its reader, or a file beyond the limits. It names each such file as lost and saves all
// other files.
func TestHostileHome(t *testing.T) {
	src, m := repo(t), open(t)
	if os.Geteuid() == 0 {
		giveUsers(t, m)
	}
	w := prepare(t, m, Spec{Repo: src})
	at := func(name string) string { return filepath.Join(w.Home, name) }
	outside := t.TempDir()
	write(t, filepath.Join(outside, "secret"), "secret\n")
	write(t, at("kept"), "kept\n")
	fails := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"shadow": "/etc/shadow", "up": "../../../../etc/shadow", "dir": outside, "sly": "kept/../../owner.json",
		"checkout": "../checkout", "self": "self",
	} {
		fails(os.Symlink(target, at(name)))
	}
	fails(unix.Mkfifo(at("pipe"), 0o600))
	huge, err := os.Create(at("huge"))
	fails(err)
	fails(huge.Truncate(1 << 40))
	fails(huge.Close())
	for i := range 3 {
		f, err := os.Create(at(fmt.Sprint("large", i)))
		fails(err)
		fails(f.Truncate(12 << 20))
		fails(f.Close())
	}
	deep := w.Home
	for range maxHomeDepth + 5 {
		deep = filepath.Join(deep, "d")
	}
	fails(os.MkdirAll(deep, 0o700))
	fails(os.Mkdir(at("zz"), 0o700))
	for i := range maxHomeEntries {
		fails(os.WriteFile(at(fmt.Sprint("zz/", i)), nil, 0o600))
	}
	want := []string{
		"checkout (it leads out of HOME)", "dir (it leads out of HOME)", "huge (1048576 MiB)",
		"pipe (not a regular file)", "shadow (it leads out of HOME)",
		"large0 (HOME has more than 32 MiB)", "more than 64 directories in each other",
		"only 20000 files of HOME are looked at",
	}
	if w.User != nil {
		for _, name := range []string{".", "huge", "kept", "large0", "large1", "large2", "pipe"} {
			fails(os.Lchown(at(name), int(w.User.UID), int(w.User.GID)))
		}
		for _, name := range []string{"checkout", "dir", "shadow", "up", "sly", "self"} {
			fails(os.Lchown(at(name), int(w.User.UID), int(w.User.GID)))
		}
		fails(os.Link(filepath.Join(outside, "secret"), at("hard")))
		fails(unix.Mknod(at("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))))
		fails(os.Lchown(at("device"), int(w.User.UID), int(w.User.GID)))
		want = append(want, "hard (it belongs to another user)", "device (not a regular file)")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at2 := &site{Home: w.Home, MostHome: maxHome, Own: w.User != nil}
	if w.User != nil {
		at2.User = w.User.UID
	}
	root, err := os.OpenRoot(w.Home)
	fails(err)
	defer root.Close()
	h := &packer{ctx: ctx, at: at2, root: root, lost: &losses{}}
	h.look(".")
	h.fit()
	archive, err := h.pack()
	fails(err)
	left := strings.Join(h.left, "\n")
	for _, text := range want {
		if !strings.Contains(left, text) {
			t.Errorf("%q is not named in\n%s", text, left)
		}
	}
	names := namesIn(t, archive)
	for _, name := range []string{"checkout", "dir", "device", "hard", "huge", "large0", "pipe", "shadow", "up",
		"sly"} {
		if slices.Contains(names, name) {
			t.Errorf("%s is kept", name)
		}
	}
	for _, name := range []string{"kept", "large1", "self"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not kept", name)
		}
	}
	if s := salvageOf(t, m, w); !strings.Contains(s.Lost, "of HOME ") || !slices.Contains(namesIn(t, s.Home), "kept") {
		t.Errorf("lost %q", s.Lost)
	}
}

// Rule: UnpackHome refuses an archive that an attacker has changed, and writes nothing outside
// HOME.
func TestHomeRefuses(t *testing.T) {
	outside := t.TempDir()
	for name, entries := range map[string][]tar.Header{
		"a name above": {{Name: "../x", Typeflag: tar.TypeReg}},
		"a whole name": {{Name: "/x", Typeflag: tar.TypeReg}},
		"a link above": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../../x"}},
		"a whole link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}},
		"through a link": {{Name: "d/l", Typeflag: tar.TypeSymlink, Linkname: "../../" + filepath.Base(outside)},
			{Name: "d/l/x", Typeflag: tar.TypeReg}},
		"a hard link":          {{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
		"a device":             {{Name: "c", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 5}},
		"a pipe":               {{Name: "p", Typeflag: tar.TypeFifo}},
		"a file beyond bounds": {{Name: "f", Typeflag: tar.TypeReg, Size: maxHomeFile + 1}},
		"HOME itself":          {{Name: ".", Typeflag: tar.TypeSymlink, Linkname: "x"}},
	} {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		w := tar.NewWriter(z)
		for _, e := range entries {
			if err := w.WriteHeader(&e); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(make([]byte, e.Size)); err != nil {
				t.Fatal(err)
			}
		}
		_, _ = w.Close(), z.Close()
		home := t.TempDir()
		if err := UnpackHome(home, out.Bytes()); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if left, _ := os.ReadDir(outside); len(left) > 0 {
			t.Fatalf("%s: it wrote %v", name, left)
		}
	}
	for name, archive := range map[string][]byte{"no archive": []byte("hello"), "cut": {0x1f, 0x8b, 8}} {
		if err := UnpackHome(t.TempDir(), archive); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	// UnpackHome removes the setuid bit of a file.
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	_ = w.WriteHeader(&tar.Header{Name: "su", Typeflag: tar.TypeReg, Mode: 0o6755})
	_, _ = w.Close(), z.Close()
	home := t.TempDir()
	if err := UnpackHome(home, out.Bytes()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(home, "su")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
