package workspace

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// prepareOwned prepares a workspace. If the test runs as root, the workspace gets its own user.
func prepareOwned(t *testing.T, src string) (*Manager, *Workspace) {
	t.Helper()
	m := open(t)
	if os.Geteuid() == 0 {
		giveUsers(t, m)
	}
	return m, prepare(t, m, Spec{Repo: src})
}

// savedIndexOf returns the index entries that were saved before the command got the workspace.
func savedIndexOf(w *Workspace) map[string]leaf {
	at := &site{Commit: w.Commit}
	at.recall(w.notes(), w.noted)
	return at.savedIndex()
}

// Rule: git can tell from the index alone that a new checkout is unchanged, whichever user owns the
// workspace. So git reads no file of the checkout.
func TestIndexKnowsTheFiles(t *testing.T) {
	_, w := prepareOwned(t, repo(t))
	// diff-files lists the files that git would have to read to know whether they are unchanged.
	if out, err := try(w.Dir, "-c", "safe.directory=*", "diff-files", "--name-only"); err != nil || out != "" {
		t.Errorf("it would read %q, %v", out, err)
	}
	write(t, filepath.Join(w.Dir, "a.txt"), "other\n")
	if out, err := try(w.Dir, "-c", "safe.directory=*", "diff-files", "--name-only"); err != nil || out != "a.txt" {
		t.Errorf("it would read %q, %v; a.txt was written", out, err)
	}
}

// Rule: Salvage finds every change to a file, even a change that keeps size and modification time.
// It reads every file except the files whose change times show that they are untouched.
func TestTouchedFilesAreRead(t *testing.T) {
	src := repo(t)
	const text = "what was there\n"
	for _, name := range []string{"one", "two", "x/same", "y/same"} {
		write(t, filepath.Join(src, name), text)
	}
	write(t, filepath.Join(src, "y/same"), "and elsewhere.\n") // has the same size as text
	commit(t, src, "files")
	m, w := prepareOwned(t, src)
	if handed := savedIndexOf(w); handed["one"].name != "one" {
		t.Fatalf("nothing is known of the files: %v", handed)
	}
	at := func(name string) string { return filepath.Join(w.Dir, name) }
	info, err := os.Stat(at("one"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, at("one"), "what is there!\n")
	if err := os.Chtimes(at("one"), info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(at("two"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, move := range [][2]string{{"x", "z"}, {"y", "x"}, {"z", "y"}} {
		if err := os.Rename(at(move[0]), at(move[1])); err != nil {
			t.Fatal(err)
		}
	}
	quick := salvageOf(t, m, w)
	w.noted = [len(w.noted)]byte{}
	if all := salvageOf(t, m, w); !bytes.Equal(quick.Patch, all.Patch) || quick.Files != 4 {
		t.Errorf("%d files, want 4:\n%s\nreading all of them:\n%s", quick.Files, quick.Patch, all.Patch)
	}
}

// Rule: if the saved state of the checkout was changed, Salvage does not use it. A command that
// runs as the user of this process could change that state to hide its work.
func TestChangedNotesAreIgnored(t *testing.T) {
	m, w := prepareOwned(t, repo(t))
	write(t, filepath.Join(w.Dir, "a.txt"), "other\n")
	file := filepath.Join(w.notes(), "index")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	hash := len(w.Commit) / 2
	all, err := parseIndex(raw, hash)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(w.Dir, l.name), &st); err != nil {
			t.Fatal(err)
		}
		for at, to := range map[int]uint32{
			atCtime: seconds(st.Ctim), atCtime + 4: nanos(st.Ctim), atMtime: seconds(st.Mtim),
			atMtime + 4: nanos(st.Mtim),
			atInode:     low(st.Ino), atSize: low(st.Size),
		} {
			l.set(at, to)
		}
		if !l.untouched(&st) {
			t.Fatalf("%s does not look untouched", l.name)
		}
	}
	body := raw[:len(raw)-hash]
	if err := os.WriteFile(file, append(body, checksum(body, hash)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := salvageOf(t, m, w); s.Files != 1 {
		t.Errorf("%d files changed, want 1:\n%s", s.Files, s.Patch)
	}
}

// Rule: untouched compares every property of a file. If a file system records times only in whole
// seconds, untouched returns false for every file, because two writes in the same second get the
// same time.
func TestUntouchedComparesEveryProperty(t *testing.T) {
	_, w := prepareOwned(t, repo(t))
	l := savedIndexOf(w)["a.txt"]
	var was unix.Stat_t
	if err := unix.Lstat(filepath.Join(w.Dir, l.name), &was); err != nil {
		t.Fatal(err)
	}
	if !l.untouched(&was) {
		t.Fatal("a.txt does not look untouched")
	}
	for what, change := range map[string]func(*unix.Stat_t){
		"the file":                   func(st *unix.Stat_t) { st.Ino++ },
		"its kind":                   func(st *unix.Stat_t) { st.Mode ^= unix.S_IFREG ^ unix.S_IFLNK },
		"its size":                   func(st *unix.Stat_t) { st.Size++ },
		"when it was written":        func(st *unix.Stat_t) { st.Mtim.Nsec ^= 1 },
		"the second of that":         func(st *unix.Stat_t) { st.Mtim.Sec++ },
		"when it was changed":        func(st *unix.Stat_t) { st.Ctim.Nsec ^= 1 },
		"the second of the change":   func(st *unix.Stat_t) { st.Ctim.Sec++ },
		"that fractions are counted": func(st *unix.Stat_t) { st.Ctim.Nsec = 0; l.set(atCtime+4, 0) },
	} {
		had := l.at(atCtime + 4)
		st := was
		if change(&st); l.untouched(&st) {
			t.Errorf("%s does not count", what)
		}
		l.set(atCtime+4, had)
	}
}

// Rule: parseIndex never panics, and refuses an index with a wrong checksum.
func FuzzLeaves(f *testing.F) {
	entry := make([]byte, statBytes+20+2, 72)
	entry = append(append(entry, "name"...), make([]byte, 6)...)
	for _, body := range []string{"", "DIRC\x00\x00\x00\x02\x00\x00\x00\x01" + string(entry),
		"DIRC\x00\x00\x00\x03\xff\xff\xff\xff" + string(entry), "DIRC\x00\x00\x00\x04\x00\x00\x00\x00"} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		raw := append(bytes.Clone(body), checksum(body, 20)...)
		all, err := parseIndex(raw, 20)
		for _, l := range all {
			if err != nil || l.name == "" || len(l.stat) != statBytes || len(l.object) != 20 {
				t.Errorf("%+v, %v", l, err)
			}
		}
		if _, err := parseIndex(append(raw, 0), 20); err == nil {
			t.Error("a wrong checksum was accepted")
		}
	})
}
