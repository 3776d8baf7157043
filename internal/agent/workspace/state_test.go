package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// view returns everything that git shows of a checkout: status, stashes, refs, logs, index,
// settings and files.
func view(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, args := range [][]string{
		{"status", "--branch", "--untracked-files=all"}, {"status", "--porcelain=v2", "--branch", "--show-stash", "-z",
			"--untracked-files=all"},
		{"stash", "list", "--format=%gd %H %gs"}, {"tag", "-n99"},
		{"for-each-ref", "--format=%(refname) %(objectname) %(objecttype) %(symref) %(upstream)"},
		{"log", "--all", "--format=%H %D %s"}, {"diff"}, {"diff", "--cached"}, {"ls-files", "--stage", "-t", "-v",
			"-z"},
		{"diff", "--name-status", "--ita-invisible-in-index"}, {"reflog", "show", "--format=%H %gs", "HEAD"},
		{"symbolic-ref", "-q", "HEAD"},
		{"config", "--local", "--list"},
	} {
		out, err := try(dir, args...)
		if err != nil {
			out += "\nfailed"
		}
		all[strings.Join(args, " ")] = out
	}
	settings := strings.Split(all["config --local --list"], "\n")
	slices.Sort(settings)
	all["config --local --list"] = strings.Join(settings, "\n")
	if n := strings.Count(all["stash list --format=%gd %H %gs"], "stash@"); n > 0 {
		out, _ := try(dir, "stash", "show", "-p", "--include-untracked", "stash@{"+string(rune('0'+n-1))+"}")
		all["the oldest stash"] = out
	}
	for _, name := range []string{"MERGE_HEAD", "MERGE_MSG", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge/onto",
		"rebase-merge/git-rebase-todo", "rebase-apply/next", "BISECT_LOG"} {
		raw, _ := os.ReadFile(filepath.Join(dir, ".git", name))
		all[name] = string(raw)
	}
	files := contents(t, dir)
	ignored, _ := try(dir, "ls-files", "--others", "--ignored", "--exclude-standard", "-z")
	for name := range strings.SplitSeq(ignored, "\x00") {
		delete(files, name) // by design, Salvage does not keep files that are ignored and not tracked
	}
	for name, text := range files {
		all["file "+name] = text
	}
	return all
}

// salvageAndRestore saves the changes in a workspace and restores them in a new workspace. It fails
// the test if git shows different states in these two workspaces.
func salvageAndRestore(t *testing.T, m *Manager, w *Workspace) (Salvage, *Workspace) {
	t.Helper()
	s := salvageOf(t, m, w)
	again := prepare(t, m, Spec{Repo: w.Repo, Ref: w.Ref, Commit: w.Commit})
	if err := m.Restore(t.Context(), again, s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(view(t, w.Dir), view(t, again.Dir)); diff != "" {
		t.Errorf("(-salvaged +restored):\n%s", diff)
	}
	if out, err := try(again.Dir, "fsck", "--strict", "--no-dangling"); err != nil {
		t.Errorf("%s %v", out, err)
	}
	return s, again
}

// Rule: Restore reproduces all of git's state: stashes, tags, notes, the index, and an operation in
// progress.
func TestAllStateOfGitIsRestored(t *testing.T) {
	const conflict = `git checkout -q -b theirs HEAD~; echo theirs >a.txt; git commit -qam theirs; echo more >c.txt; git add c.txt; git commit -qm more
git checkout -q main
`
	src, m := repo(t), open(t)
	for name, script := range sampled(map[string]string{
		"stashes": `echo 1 >a.txt; git stash push -qm first; echo 2 >dir/b.txt; echo new >new.txt; git add new.txt; git stash push -q -u
echo 3 >a.txt; git add a.txt; echo 4 >a.txt; git stash push -q -m 'the third: of "three"'; git stash drop -q stash@{1}; echo 5 >a.txt; git stash -q; echo left >a.txt`,
		"tags":            `git tag here; git tag -a -m 'a note' annotated; git tag -d light; git tag -f v1.0 HEAD~ ; git tag blob HEAD:a.txt; git tag tree HEAD:dir; git tag -a -m x ofblob HEAD:a.txt; git tag deep/er here`,
		"notes":           `git notes add -m 'a note'; git notes --ref=review add -m another HEAD~`,
		"remote refs":     `git update-ref refs/remotes/origin/main HEAD~; git update-ref refs/remotes/other/x HEAD; git update-ref -d refs/remotes/origin/feature/x; git symbolic-ref refs/remotes/other/HEAD refs/remotes/other/x`,
		"fetched":         `git commit -q --allow-empty -m mine; git update-ref refs/remotes/origin/main $(git commit-tree -m theirs -p origin/main HEAD^{tree})`,
		"other refs":      `git update-ref refs/pull/7/head HEAD~; git update-ref refs/changes/01/1 $(git commit-tree -m change HEAD^{tree}); git symbolic-ref refs/heads/alias refs/heads/main`,
		"staged":          `echo staged >a.txt; git add a.txt; echo more >>a.txt; echo new >new; git add new; git rm -q --cached dir/b.txt; echo not >not`,
		"staged and gone": `echo s >new; git add new; rm new; echo t >a.txt; git add a.txt; rm a.txt`,
		"partly staged":   `seq 30 >a.txt; git add a.txt; git commit -qm many; sed -i 's/^3$/three/;s/^28$/more/' a.txt; git diff >../p; seq 30 | sed 's/^3$/three/' >../x; cp a.txt ../y; cp ../x a.txt; git add a.txt; cp ../y a.txt`,
		"to be added":     `echo new >new; git add -N new; echo n >gone; git add -N gone; rm gone; echo x >"odd name"; git add -N "odd name"`,
		"flags":           `git update-index --assume-unchanged a.txt; git update-index --skip-worktree dir/b.txt; echo hidden >dir/b.txt`,
		"modes":           `chmod +x a.txt; git add a.txt; chmod -x a.txt; ln -s a.txt link; git add link; rm link; ln -s b link`,
		"a merge":         conflict + `git merge -q theirs || true`,
		"a merge half done": conflict +
			`git merge -q theirs || true; echo resolved >a.txt; git add a.txt; echo after >>a.txt`,
		"a cherry-pick": conflict + `git cherry-pick theirs~ || true`,
		"cherry-picks":  conflict + `git cherry-pick theirs~ theirs || true`,
		"a revert":      `echo 3 >a.txt; git commit -qam three; git revert --no-edit HEAD~ || true`,
		"a rebase":      conflict + `git checkout -q theirs; git rebase -q main || true`,
		"a rebase, half done": conflict +
			`git checkout -q theirs; git rebase -q main || true; echo resolved >a.txt; git add a.txt`,
		"a rebase by patches":  conflict + `git checkout -q theirs; git rebase -q --apply main || true`,
		"a rebase with merges": conflict + `git checkout -q theirs; git rebase -q -r main || true`,
		"a rebase of changes": conflict +
			`git checkout -q theirs; echo z >dir/b.txt; git rebase -q --autostash main || true`,
		"patches":        conflict + `git format-patch -q -1 theirs~ -o ../out; git am -q ../out/*.patch || true`,
		"bisecting":      `git commit -q --allow-empty -m 3; git commit -q --allow-empty -m 4; git bisect start -q; git bisect bad; git bisect good HEAD~3 || true`,
		"settings":       `git checkout -q -b feature origin/feature/x; git commit -q --allow-empty -m ahead; git config user.name Agent; git config user.email agent@example.com; git config pull.rebase true; git remote add fork https://example.org/fork.git; git branch --unset-upstream main`,
		"excluded":       `mkdir -p .git/info; echo '*.tmp' >.git/info/exclude; echo x >x.tmp; echo y >a.txt`,
		"an old index":   `git config index.version 4; git update-index --index-version 4; echo s >a.txt; git add a.txt; echo t >a.txt`,
		"a split index":  `git update-index --split-index; echo s >a.txt; git add a.txt; echo t >a.txt; echo n >n; git add n`,
		"an orphan":      `git checkout -q --orphan fresh; git rm -q --cached dir/b.txt; echo s >a.txt; git add a.txt; echo t >a.txt`,
		"a reset":        `echo 1 >x; git add x; git commit -qm x; git reset -q --hard HEAD~; git commit -q --allow-empty -m y; git commit -q --amend --allow-empty -m z`,
		"added by force": `echo '*.log' >.gitignore; echo f >x.log; git add -f x.log; echo i >y.log; git add .gitignore; git commit -qm i; echo g >>x.log`,
		"detached":       `git checkout -q --detach; git commit -q --allow-empty -m loose; git tag onit; echo s >a.txt; git stash -q`,
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, m, Spec{Repo: src})
			sh(t, w.Dir, script)
			s, again := salvageAndRestore(t, m, w)
			if s.Lost != "" {
				t.Errorf("lost: %s", s.Lost)
			}
			twice := salvageOf(t, m, again)
			if (s.Bundle == nil) != (twice.Bundle == nil) || string(s.Patch) != string(twice.Patch) ||
				s.Commits != twice.Commits {
				t.Errorf("a second salvage differs: %d and %d commits", s.Commits, twice.Commits)
			}
			// After the operation in progress is aborted, the original and the restored checkout must
			// still be equal.
			for _, end := range [][]string{{"rebase", "--abort"}, {"merge", "--abort"}, {"cherry-pick", "--abort"},
				{"revert", "--abort"}, {"am", "--abort"}, {"stash", "pop", "-q"}} {
				_, one := try(w.Dir, end...)
				_, two := try(again.Dir, end...)
				if (one == nil) != (two == nil) {
					t.Errorf("%v: %v, restored %v", end, one, two)
				}
			}
			before, after := view(t, w.Dir), view(t, again.Dir)
			delete(before, "reflog show --format=%H %gs HEAD")
			delete(after, "reflog show --format=%H %gs HEAD")
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("ended (-salvaged +restored):\n%s", diff)
			}
		})
	}
}
