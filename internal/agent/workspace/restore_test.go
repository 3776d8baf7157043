package workspace

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Rule: Restore accepts work that an older version of Belay has saved, which contains only HEAD and
// the branches. Like that version, it stages a new file that .gitignore names, because the command
// had added that file with git add --force.
func TestWorkOfAnOlderVersion(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	sh(t, w.Dir, `echo '*.log' >.gitignore; git add .gitignore; git commit -qm ignore
state=$(printf 'tree %s\nauthor belay <belay@localhost> 0 +0000\ncommitter belay <belay@localhost> 0 +0000\n\nwhere a workspace stood\n\nhead refs/heads/main\nbranch %s refs/heads/main\n' \
  $(git mktree </dev/null) $(git rev-parse HEAD) | git hash-object -t commit -w --stdin)
git update-ref refs/belay/state $state; git bundle create -q ../old.bundle HEAD main refs/belay/state ^`+w.Commit+`
echo loose >a.txt; echo forced >x.log; git add -f x.log; git diff --binary --full-index HEAD >../old.patch`)
	var s Salvage
	for name, to := range map[string]*[]byte{"old.bundle": &s.Bundle, "old.patch": &s.Patch} {
		raw, err := os.ReadFile(filepath.Join(w.root, name))
		if err != nil {
			t.Fatal(err)
		}
		*to = raw
	}
	again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil {
		t.Fatal(err)
	}
	if got := run(t, again.Dir, "status", "--porcelain") + "\n" + run(t, again.Dir, "log", "-1",
		"--format=%s"); got != " M a.txt\nA  x.log\nignore" {
		t.Errorf("restored to\n%s", got)
	}
}

// Rule: even if a workspace has no saved state from before the command, such as a workspace of an
// older version, its work is saved and restored completely.
func TestSalvageWithoutNotes(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	sh(t, w.Dir, "echo x >a.txt; git stash -q; git tag -d light; git tag here; echo y >dir/b.txt; git add dir/b.txt")
	for _, name := range []string{"index", "refs", "config"} {
		remove(t, filepath.Join(w.notes(), name))
	}
	s := salvageOf(t, m, w)
	again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil || s.Lost != "" {
		t.Fatalf("%v, lost %q", err, s.Lost)
	}
	for _, args := range [][]string{{"stash", "list", "--format=%H %gs"}, {"status", "--porcelain"},
		{"log", "--all", "--format=%H"}, {"rev-parse", "here"}} {
		if diff := cmp.Diff(run(t, w.Dir, args...), run(t, again.Dir, args...)); diff != "" {
			t.Errorf("%v (-salvaged +restored):\n%s", args, diff)
		}
	}
}

// Rule: Restore succeeds even if the source has got new refs since the work was saved, whose names
// conflict with saved refs.
func TestRestoreBesideNewRefs(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	sh(t, w.Dir, "git tag deep/er; git tag flat; git update-ref refs/remotes/origin/topic HEAD; git update-ref "+
		"refs/remotes/origin/main HEAD~")
	s := salvageOf(t, m, w)
	sh(t, src, "git tag deep; git tag flat/ter; git branch topic/of/another; git branch new; git branch -D "+
		"feature/x; git commit -q --allow-empty -m more")
	prepare(t, m, Spec{ID: "fetches", Repo: src})
	again := prepare(t, m, Spec{ID: "again", Repo: src, Ref: "main", Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil {
		t.Fatal(err)
	}
	got := run(t, again.Dir, "for-each-ref", "--format=%(refname)")
	want := "refs/heads/main\nrefs/remotes/origin/HEAD\nrefs/remotes/origin/main\nrefs/remotes/origin/new\nrefs/remotes/origin/topic\nrefs/tags/deep/er\nrefs/tags/flat\nrefs/tags/light\nrefs/tags/v1.0"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := run(t, again.Dir, "rev-parse", "origin/main"); got != run(t, w.Dir, "rev-parse", "HEAD~") {
		t.Errorf("origin/main is at %s", got)
	}
}

// Rule: Salvage and Restore also work for a repository whose object names are SHA-256.
func TestSalvageOfSHA256(t *testing.T) {
	src, m := filepath.Join(t.TempDir(), "source"), open(t)
	run(t, "", "init", "-q", "-b", "main", "--object-format=sha256", src)
	write(t, filepath.Join(src, "a.txt"), "one\n")
	commit(t, src, "first")
	w := prepare(t, m, Spec{Repo: src})
	sh(t, w.Dir, `echo 1 >a.txt; git stash -q; git tag -a -m x here; echo 2 >a.txt; git add a.txt; echo 3 >a.txt; echo n >new; git add -N new
git checkout -q -b other; git commit -q --allow-empty -m c`)
	if s, _ := salvageAndRestore(t, m, w); s.Lost != "" {
		t.Errorf("lost: %s", s.Lost)
	}
}

// Rule: a checkout for a person contains no operation in progress that would run a program, and no
// index flag that would hide a change. CheckOut names the omitted parts.
func TestCheckOutForAPerson(t *testing.T) {
	src, m := repo(t), open(t)
	ran := filepath.Join(t.TempDir(), "ran")
	for name, tt := range map[string]struct{ script, left string }{
		"a rebase that runs": {"git rebase -q -x 'touch " + ran + "; false' HEAD~ || true; rm -f " + ran,
			"rebase-merge, which could run programs as you"},
		"a rebase": {
			"echo x >a.txt; git commit -qam x; git checkout -q -b t HEAD~; echo y >a.txt; git commit -qam y; git " +
				"rebase -q main || true", "",
		},
		"a bisection": {"git bisect start -q HEAD HEAD~ >/dev/null", "BISECT_LOG, BISECT_NAMES"},
		"hidden": {
			"git update-index --assume-unchanged a.txt --skip-worktree dir/b.txt; echo evil >a.txt; echo evil " +
				">dir/b.txt; echo n >n; git add -N n", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := prepare(t, m, Spec{Repo: src})
			sh(t, w.Dir, tt.script)
			s := salvageOf(t, m, w)
			write(t, filepath.Join(w.Home, "x"), "x")
			dir := filepath.Join(t.TempDir(), "out")
			left, err := m.CheckOut(t.Context(), Spec{Repo: src, Ref: "main", Commit: w.Commit}, dir, s)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(left, "\n"); !strings.Contains(got, tt.left) || tt.left == "" && got != "" {
				t.Errorf("left out %q, want %q", got, tt.left)
			}
			_, _ = try(dir, "rebase", "--continue")
			if _, err := os.Lstat(ran); err == nil {
				t.Error("a program of the operation in progress has run")
			}
			if name == "hidden" {
				if got := run(t, dir, "status", "--porcelain"); got != " M a.txt\n M dir/b.txt\n A n" {
					t.Errorf("status:\n%s", got)
				}
			}
		})
	}
}

// Rule: storable returns false for exactly the names that git refuses in an index.
func TestStorable(t *testing.T) {
	dir := repo(t)
	blob := run(t, dir, "rev-parse", "HEAD:a.txt")
	for _, name := range []string{
		"a", "a/b", "...", "..a", "a..", ".gitx", ".gi", "git", "git~2", "a b", "-", ":x", "x:.git", `back\slash`,
		".gitignore", ".gitmodules", "\xff", "a\u200cb",
		".", "..", "a/..", "../a", "./a", "a/./b", "/a", "a//b", "a/", ".git", ".git/x", "a/.git", ".GIT", ".Git/x",
		"git~1", "GIT~1/x", ".git.", ".git ", ".git . .",
		".git::$INDEX_ALLOCATION", ".git:x", `a\.git`, `a\git~1`, ".g\u200cit", "\u200c.git", ".git\ufeff",
		".\u202agit/x",
	} {
		_, err := try(dir, "-c", "core.protectHFS=true", "-c", "core.protectNTFS=true", "update-index", "--add",
			"--cacheinfo", "100644,"+blob+","+name)
		if (err == nil) != storable(name) {
			t.Errorf("%q: git says %v, we say %v", name, err, storable(name))
		}
		_, _ = try(dir, "reset", "-q")
	}
}

// Rule: unpack accepts only valid names and values, whatever bytes the archive of a record (the
// saved state of git) contains.
func FuzzRecord(f *testing.F) {
	r := &record{
		files: map[string][]byte{
			"MERGE_HEAD": []byte("x"), "rebase-merge/onto": []byte("y"),
		}, settings: []setting{{"user.name", "x"}},
		logs:  map[string][]logEntry{"HEAD": {{strings.Repeat("0", 40), strings.Repeat("1", 40), "a <b> 1 +0000\tx"}}},
		index: &staged{special: []special{{entry: entry{modeFile, strings.Repeat("a", 40)}, stage: 2, name: "x"}}},
	}
	raw, err := r.pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(bytes.ReplaceAll(raw, []byte("MERGE_HEAD"), []byte("../../evil")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := &record{files: make(map[string][]byte), logs: make(map[string][]logEntry), index: &staged{}}
		if r.unpack(raw) != nil {
			return
		}
		for name := range r.files {
			if !isState(name) {
				t.Errorf("a file %q", name)
			}
		}
		for ref, entries := range r.logs {
			if ref != "HEAD" && checkRef(ref) != nil {
				t.Errorf("a log %q", ref)
			}
			for _, e := range entries {
				if !isObject(e.was) || !isObject(e.object) || strings.ContainsAny(e.rest, "\n\x1b\x00") {
					t.Errorf("an entry %q", e)
				}
			}
		}
		for _, s := range r.index.special {
			if !storable(s.name) || s.stage < 0 || s.stage > 3 || !isObject(s.object) {
				t.Errorf("an entry %+v", s)
			}
		}
		if config := string(withSettings(nil, r.settings)); strings.Contains(config, "[alias") ||
			strings.Contains(config, "fsmonitor") || strings.Contains(config, "[filter") {
			t.Errorf("settings %s", config)
		}
	})
}

// Rule: Salvage does not keep settings that name programs, and removes passwords from the other
// settings.
func TestSettings(t *testing.T) {
	for s, want := range map[setting]string{
		{"user.name", "A"}: "A", {"branch.a.b.merge", "refs/heads/x"}: "refs/heads/x",
		{"remote.o.url", "https://u:p@example.org/x"}: "https://example.org/x",
		{"remote.o.url", "ssh://git:p@example.org/x"}: "ssh://git@example.org/x",
		{"remote.o.url", "git@example.org:x"}:         "git@example.org:x", {"remote.o.url", "/srv/x"}: "/srv/x",
		{"remote.o.url", "ext::sh -c x"}: "", {"remote.o.url", "-x"}: "", {"remote.o.url", "../x"}: "",
		{"remote.o.vcs", "x"}: "", {"remote.o.uploadpack", "x"}: "",
		{"core.fsmonitor", "x"}: "", {"core.hookspath", "x"}: "", {"core.editor", "x"}: "",
		{"core.sshcommand", "x"}: "", {"alias.x", "!x"}: "", {"filter.x.clean", "x"}: "",
		{"diff.x.command", "x"}: "", {"diff.external", "x"}: "", {"include.path", "x"}: "",
		{"credential.helper", "x"}: "", {"gpg.program", "x"}: "", {"user.name", "a\nb"}: "",
		{"core.worktree", "/"}: "", {"extensions.worktreeconfig", "true"}: "", {"remote.o.url", "host:-x"}: "",
		{"remote.a\nb.url", "/x"}: "", {"url.x.insteadof", "y"}: "",
		{"protocol.ext.allow", "always"}: "", {"http.proxy", "x"}: "", {"core.askpass", "x"}: "",
		{"sequence.editor", "x"}: "", {"merge.x.driver", "x"}: "", {"http.x.extraheader", "x"}: "",
	} {
		if got, ok := keptValue(s); got != want && ok || ok != (want != "") {
			t.Errorf("%v: %q, %v", s, got, ok)
		}
	}
	config := withSettings([]setting{
		{"core.bare", "false"}, {"user.name", "old"},
	}, []setting{{"branch.a\"b.merge", "x\\y"}, {"alias.x", "!x"}})
	if want := "[core]\n\tbare = \"false\"\n[branch \"a\\\"b\"]\n\tmerge = \"x\\\\y\"\n"; string(config) != want {
		t.Errorf("written as\n%s, want\n%s", config, want)
	}
}
