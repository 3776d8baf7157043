package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// trap is a workspace that a hostile command has changed, with a program that records each of its
// executions. The command tries to make Belay execute that program.
type trap struct {
	t        *testing.T
	dir      string // the checkout
	program  string // a shell script
	outside  string // a directory outside the workspace
	sideline string // a second repository, outside the workspace
}

func (c trap) git(args ...string) { c.t.Helper(); run(c.t, c.dir, args...) }
func (c trap) file(name, text string) {
	c.t.Helper()
	write(c.t, filepath.Join(c.dir, name), text)
}

func (c trap) replace(name, target string) {
	c.t.Helper()
	remove(c.t, filepath.Join(c.dir, name))
	if err := os.MkdirAll(filepath.Dir(filepath.Join(c.dir, name)), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(c.dir, name)); err != nil {
		c.t.Fatal(err)
	}
}

// hole makes a sparse file of a given size.
func (c trap) hole(name string, size int64) {
	c.t.Helper()
	remove(c.t, filepath.Join(c.dir, name))
	f, err := os.Create(filepath.Join(c.dir, name))
	if err == nil {
		err = f.Truncate(size)
		_ = f.Close()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c trap) fifo(name string) {
	c.t.Helper()
	remove(c.t, filepath.Join(c.dir, name))
	if err := os.MkdirAll(filepath.Dir(filepath.Join(c.dir, name)), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(c.dir, name), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// traps are changes by which a command tries to make a later git run a program, or read or write a
// file. The field lost is a text that must be in Lost of the salvage, and the patch must contain
// the change of a.txt.
var traps = map[string]struct {
	set   func(c trap)
	lost  string
	bites []string // arguments with which plain git would run the program
}{
	"fsmonitor": {set: func(c trap) {
		c.git("config", "core.fsmonitor", c.program)
	}, lost: "the settings core.fsmonitor", bites: []string{"status"}},
	"hooks": {set: func(c trap) {
		for _, hook := range []string{"post-index-change", "reference-transaction", "post-checkout", "pre-commit",
			"post-rewrite", "fsmonitor-watchman"} {
			write(c.t, filepath.Join(c.dir, ".git", "hooks", hook), "#!/bin/sh\n"+c.program+"\n")
			_ = os.Chmod(filepath.Join(c.dir, ".git", "hooks", hook), 0o755)
		}
	}, lost: "the hooks fsmonitor-watchman, post-checkout", bites: []string{"add", "-A"}},
	"hooks path": {set: func(c trap) {
		write(c.t, filepath.Join(c.outside, "post-index-change"), "#!/bin/sh\n"+c.program+"\n")
		_ = os.Chmod(filepath.Join(c.outside, "post-index-change"), 0o755)
		c.git("config", "core.hooksPath", c.outside)
	}, lost: "core.hookspath", bites: []string{"add", "-A"}},
	"filters": {set: func(c trap) {
		c.file(".gitattributes", "* filter=evil\n")
		c.git("config", "filter.evil.clean", c.program)
		c.git("config", "filter.evil.smudge", c.program)
		c.git("config", "filter.evil.process", c.program)
		c.git("config", "filter.evil.required", "true")
	}, lost: "filter.evil.clean", bites: []string{"add", "-A"}},
	"attributes of its own": {set: func(c trap) {
		c.git("config", "filter.evil.clean", c.program)
		c.file(".git/info/attributes", "* filter=evil diff=evil merge=evil\n")
		c.git("config", "diff.evil.command", c.program)
		c.git("config", "diff.evil.textconv", c.program)
		c.git("config", "merge.evil.driver", c.program)
	}, lost: "the attributes in .git/info/attributes", bites: []string{"diff", "HEAD"}},
	"diff drivers": {set: func(c trap) {
		c.file(".gitattributes", "* diff=evil\n")
		c.git("config", "diff.evil.command", c.program)
		c.git("config", "diff.evil.textconv", c.program)
		c.git("config", "diff.external", c.program)
	}, lost: "diff.external", bites: []string{"diff", "HEAD"}},
	"included configuration": {set: func(c trap) {
		write(c.t, filepath.Join(c.outside, "config"), "[core]\n\tfsmonitor = "+c.program+"\n[diff]\n\texternal = "+
			c.program+"\n")
		c.git("config", "include.path", filepath.Join(c.outside, "config"))
	}, lost: "include.path", bites: []string{"status"}},
	"more programs": {set: func(c trap) {
		for _, name := range []string{
			"core.sshCommand", "core.pager", "core.editor", "core.gitProxy", "core.askPass",
			"core.alternateRefsCommand", "gpg.program",
			"uploadpack.packObjectsHook", "credential.helper", "pager.diff", "alias.update-index", "trailer.x.command",
			"sequence.editor",
		} {
			c.git("config", name, c.program)
		}
		c.git("config", "commit.gpgSign", "true")
		c.git("config", "core.worktree", c.outside)
	}, lost: "core.askpass"},
	"configuration of the work tree": {set: func(c trap) {
		c.git("config", "extensions.worktreeConfig", "true")
		c.git("config", "--worktree", "core.fsmonitor", c.program)
	}, lost: "extensions.worktreeconfig", bites: []string{"status"}},
	"promisor remote": {set: func(c trap) {
		c.git("config", "extensions.partialClone", "evil")
		c.git("config", "remote.evil.url", "ext::"+c.program)
		c.git("config", "remote.evil.promisor", "true")
		c.git("config", "protocol.ext.allow", "always")
		spoil(c.t, filepath.Join(c.dir, ".git", "objects"))
	}, lost: "remote.evil.url"},
	"nested repository": {set: func(c trap) {
		c.git("init", "-q", "nested")
		write(c.t, filepath.Join(c.dir, "nested", "f"), "x")
		run(c.t, filepath.Join(c.dir, "nested"), "add", "f")
		commit(c.t, filepath.Join(c.dir, "nested"), "x")
		run(c.t, filepath.Join(c.dir, "nested"), "config", "core.fsmonitor", c.program)
		run(c.t, filepath.Join(c.dir, "nested"), "config", "filter.evil.clean", c.program)
		write(c.t, filepath.Join(c.dir, "nested", ".gitattributes"), "* filter=evil\n")
	}, lost: "nested, which is a repository of its own"},
	"submodule": {set: func(c trap) {
		c.git("clone", "-q", ".", "sub")
		run(c.t, filepath.Join(c.dir, "sub"), "config", "core.fsmonitor", c.program)
		run(c.t, filepath.Join(c.dir, "sub"), "config", "filter.evil.clean", c.program)
		c.git("-c", "advice.addEmbeddedRepo=false", "add", "sub")
		c.git("commit", "-q", "-m", "a submodule")
		write(c.t, filepath.Join(c.dir, "sub", ".gitattributes"), "* filter=evil\n")
		write(c.t, filepath.Join(c.dir, "sub", "a.txt"), "dirty\n")
		write(c.t, filepath.Join(c.dir, ".gitmodules"), "[submodule \"sub\"]\n\tpath = sub\n\turl = ext::"+c.program+
			"\n")
	}, lost: "the changes in sub, which is a submodule", bites: []string{"status"}},
	"nested repository that blocks": {set: func(c trap) {
		c.file("nested/.git/refs/x", "")
		c.file("nested/.git/objects/x", "")
		c.fifo("nested/.git/HEAD")
	}, lost: "nested, which is a repository of its own"},
	"alternates": {set: func(c trap) {
		c.file(".git/objects/info/alternates", filepath.Join(c.sideline, ".git", "objects")+"\n")
		c.file(".git/refs/heads/stolen", run(c.t, c.sideline, "rev-parse", "HEAD")+"\n")
	}, lost: "it refers to objects in another place"},
	"objects elsewhere": {set: func(c trap) {
		c.replace(".git/objects", filepath.Join(c.sideline, ".git", "objects"))
		c.file(".git/HEAD", run(c.t, c.sideline, "rev-parse", "HEAD")+"\n")
	}, lost: "neither a file nor a directory"},
	"an object elsewhere": {set: func(c trap) {
		c.replace(".git/objects/pack", filepath.Join(c.sideline, ".git", "objects", "pack"))
	}, lost: "neither a file nor a directory"},
	".git as a file": {set: func(c trap) {
		remove(c.t, filepath.Join(c.dir, ".git"))
		c.file(".git", "gitdir: "+filepath.Join(c.sideline, ".git")+"\n")
	}, lost: ".git cannot be used (it is not a directory)"},
	".git elsewhere": {set: func(c trap) {
		c.replace(".git", filepath.Join(c.sideline, ".git"))
	}, lost: ".git cannot be used (it is not a directory)"},
	"no .git": {set: func(c trap) {
		remove(c.t, filepath.Join(c.dir, ".git"))
	}, lost: ".git cannot be used"},
	"common directory elsewhere": {set: func(c trap) {
		c.file(".git/commondir", filepath.Join(c.sideline, ".git")+"\n")
	}},
	"HEAD elsewhere": {set: func(c trap) {
		c.replace(".git/HEAD", filepath.Join(c.sideline, ".git", "HEAD"))
	}, lost: "the value of HEAD (path escapes from parent)"},
	"HEAD that blocks": {set: func(c trap) {
		c.fifo(".git/HEAD")
	}, lost: "the value of HEAD (not a regular file)"},
	"packed-refs that blocks": {set: func(c trap) {
		c.fifo(".git/packed-refs")
	}, lost: "the refs in packed-refs (not a regular file)"},
	"a ref that blocks": {set: func(c trap) {
		c.fifo(".git/refs/heads/x")
	}, lost: "refs/heads/x (not a regular file)"},
	"an index that blocks": {set: func(c trap) {
		c.fifo(".git/index")
	}, lost: "the staged changes (the index: not a regular file)"},
	"a pack that blocks": {set: func(c trap) {
		c.fifo(".git/objects/pack/pack-1.pack")
	}, lost: ".git cannot be used"},
	"HEAD of nonsense": {set: func(c trap) {
		c.file(".git/HEAD", "ref: refs/heads/../../../x\n")
	}, lost: "the value of HEAD (it leads to no branch)"},
	"HEAD without objects": {set: func(c trap) {
		c.file(".git/HEAD", strings.Repeat("ab", 20)+"\n")
	}, lost: "which is no commit that can be read"},
	"an index of nonsense": {set: func(c trap) {
		c.file(".git/index", "DIRC\x00\x00\x00\x02\xff\xff\xff\xff")
	}, lost: "the staged changes (the index: it is not an index"},
	"a branch of nonsense": {set: func(c trap) {
		c.file(".git/refs/heads/bad", strings.Repeat("ab", 20)+"\n")
	}, lost: "branch bad, which leads to no commit"},
	"refs elsewhere": {set: func(c trap) {
		c.replace(".git/refs", filepath.Join(c.sideline, ".git", "refs"))
	}, lost: "the refs in refs (path escapes from parent)"},
	"rules that block": {set: func(c trap) {
		c.fifo(".gitignore")
	}, lost: `new files in "", because of .gitignore there (not a regular file)`},
	"rules elsewhere": {set: func(c trap) {
		write(c.t, filepath.Join(c.outside, "rules"), "*\n")
		c.replace(".gitignore", filepath.Join(c.outside, "rules"))
	}},
	"a directory elsewhere": {set: func(c trap) {
		write(c.t, filepath.Join(c.outside, "secret"), "secret\n")
		write(c.t, filepath.Join(c.outside, "b.txt"), "secret\n")
		c.replace("dir", c.outside)
		c.replace("other", c.outside)
	}},
	"devices and pipes": {set: func(c trap) {
		c.fifo("dir/b.txt")
		c.fifo("pipe")
	}},
	"a tree that would write into .git": {set: func(c trap) {
		sh(c.t, c.dir, `blob=$(echo evil | git hash-object -w --stdin)
hooks=$(printf '100755 blob %s\tpost-checkout\n' $blob | git mktree)
dotgit=$(printf '040000 tree %s\thooks\n' $hooks | git mktree)
tree=$(printf '040000 tree %s\t.git\n' $dotgit | git mktree)
git update-ref HEAD $(git commit-tree -m evil -p HEAD $tree)`)
	}, lost: "the bundle of these parts cannot be restored"},
	"a commit of another content": {set: func(c trap) {
		write(c.t, filepath.Join(c.dir, "more"), "x")
		commit(c.t, c.dir, "more")
		sh(c.t, c.dir, `id=$(git rev-parse HEAD:more); file=.git/objects/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-)
other=$(echo evil | git hash-object -w --stdin); chmod u+w $file
cp .git/objects/$(echo $other | cut -c1-2)/$(echo $other | cut -c3-) $file`)
	}, lost: "its commits ("},
	"grafts and replacements": {set: func(c trap) {
		c.git("replace", "HEAD", "HEAD~")
		c.file(".git/MERGE_HEAD", run(c.t, c.dir, "rev-parse", "HEAD")+"\n")
		c.file(".git/shallow", run(c.t, c.dir, "rev-parse", "HEAD")+"\n")
		c.file(".git/info/grafts", run(c.t, c.dir, "rev-parse", "HEAD")+"\n")
	}, lost: "which would replace objects"},
	"a ref elsewhere": {set: func(c trap) {
		c.replace(".git/refs/heads/stolen", filepath.Join(c.sideline, ".git", "refs", "heads", "main"))
	}, lost: "refs/heads/stolen (path escapes from parent)"},
	"refs of control characters": {set: func(c trap) {
		packed, _ := os.ReadFile(filepath.Join(c.dir, ".git", "packed-refs"))
		c.file(".git/packed-refs", string(packed)+run(c.t, c.dir, "rev-parse", "HEAD")+" refs/heads/a\x1b[31mred\x07\n")
	}, lost: "refs/heads/a[31mred (it is not the name of a ref)"},
	"a packed-refs of 8 GB": {set: func(c trap) {
		c.hole(".git/packed-refs", 8<<30)
	}, lost: "the refs in packed-refs (more than"},
	"a HEAD of 8 GB": {set: func(c trap) { c.hole(".git/HEAD", 8<<30) }, lost: "the value of HEAD (more than"},
	"an index of 8 GB": {set: func(c trap) {
		c.hole(".git/index", 8<<30)
	}, lost: "the staged changes (the index: more than"},
	"a configuration of 8 GB": {set: func(c trap) {
		c.hole(".git/config", 8<<30)
	}, lost: "the settings in .git/config (more than"},
	"a tracked file of 30 GB": {set: func(c trap) {
		c.hole("dir/b.txt", 30<<30)
	}, lost: "dir/b.txt, a file of 30720 MiB"},
	"rules of 8 GB": {set: func(c trap) {
		c.hole(".gitignore", 8<<30)
	}, lost: `new files in "", because of .gitignore there (it has`},
	"attributes that block": {set: func(c trap) {
		c.fifo("dir/.gitattributes")
	}, lost: `the changes in "dir", because of .gitattributes there`},
	"a branch in a circle": {set: func(c trap) {
		c.file(".git/refs/heads/main", "ref: refs/heads/main\n")
	}, lost: "refs/heads/main, which leads to no ref; the value of HEAD (its branch cannot be read)"},
	"a directory that is a ref": {set: func(c trap) {
		packed, _ := os.ReadFile(filepath.Join(c.dir, ".git", "packed-refs"))
		c.file(".git/packed-refs", string(packed)+run(c.t, c.dir, "rev-parse", "HEAD")+" refs/heads/main/below\n")
	}, lost: "refs/heads/main/below, because there is also refs/heads/main"},
	"too many refs": {set: func(c trap) {
		packed, _ := os.ReadFile(filepath.Join(c.dir, ".git", "packed-refs"))
		var b strings.Builder
		at := run(c.t, c.dir, "rev-parse", "HEAD")
		for i := range maxRefs + 10 {
			fmt.Fprintf(&b, "%s refs/tags/t%05d\n", at, i)
		}
		c.file(".git/packed-refs", string(packed)+b.String())
	}, lost: "one of more than 10000 refs"},
	"too many files of refs": {set: func(c trap) {
		for i := range maxRefFiles + 10 {
			if err := os.WriteFile(filepath.Join(c.dir, ".git", "refs", "tags", fmt.Sprint("t", i, ".lock")), nil,
				0o600); err != nil {
				c.t.Fatal(err)
			}
		}
	}, lost: "only the first 50000 were checked"},
	"a stash of a blob": {set: func(c trap) {
		c.file(".git/refs/stash", run(c.t, c.dir, "rev-parse", "HEAD:a.txt")+"\n")
	}, lost: "stash@{0}, which leads to no commit that can be read"},
	"stashes elsewhere": {set: func(c trap) {
		c.git("stash", "-q")
		c.file("a.txt", "changed\n")
		c.replace(".git/logs/refs/stash", filepath.Join(c.outside, "log"))
		write(c.t, filepath.Join(c.outside, "log"), "secret\n")
	}, lost: "the list of stashes (path escapes from parent)"},
	"stashes that block": {set: func(c trap) {
		c.fifo(".git/logs/refs/stash")
	}, lost: "the list of stashes (not a regular file)"},
	"stashes of 1 GB": {set: func(c trap) {
		c.git("stash", "-q")
		c.file("a.txt", "changed\n")
		c.hole(".git/logs/refs/stash", 1<<30)
	}, lost: "the oldest stashes, because their list is too long"},
	"a stash without its files": {set: func(c trap) {
		c.file("dir/b.txt", "stashed\n")
		c.git("stash", "-q")
		c.file("a.txt", "changed\n")
		c.git("tag", "beside")
		blob := run(c.t, c.dir, "rev-parse", "stash@{0}:dir/b.txt")
		remove(c.t, filepath.Join(c.dir, ".git", "objects", blob[:2], blob[2:]))
	}, lost: "stash@{0} ("},
	"a merge elsewhere": {set: func(c trap) {
		write(c.t, filepath.Join(c.outside, "secret"), "secret\n")
		c.replace(".git/MERGE_HEAD", filepath.Join(c.outside, "secret"))
	}, lost: ".git/MERGE_HEAD (path escapes from parent)"},
	"a rebase elsewhere": {set: func(c trap) {
		c.replace(".git/rebase-merge", c.outside)
	}, lost: ".git/rebase-merge (path escapes from parent)"},
	"a rebase that blocks": {set: func(c trap) {
		c.fifo(".git/rebase-merge/onto")
	}, lost: ".git/rebase-merge/onto (not a regular file)"},
	"a rebase in a pipe": {set: func(c trap) { c.fifo(".git/rebase-merge") }, lost: ".git/rebase-merge ("},
	"a rebase of odd names": {set: func(c trap) {
		c.file(".git/rebase-merge/-x \x1b[0m", "x")
	}, lost: "which is not a file of git"},
	"an index of absurd entries": {set: func(c trap) {
		var all []leaf
		blob := run(c.t, c.dir, "rev-parse", "HEAD:a.txt")
		for _, e := range []special{
			{entry: entry{modeFile, blob}, name: "../../outside"}, {entry: entry{modeFile, blob}, name: ".git/hooks/x"},
			{entry: entry{modeFile, blob}, name: "/etc/x"},
			{entry: entry{modeFile, blob}, name: "dir/.GIT /x"}, {entry: entry{modeFile, blob}, name: "git~1/x"},
			{entry: entry{"40000", blob}, name: "tree"},
			{entry: entry{"0", blob}, name: "none"}, {entry: entry{
				modeFile, strings.Repeat("ab", 20),
			}, name: "missing"}, {entry: entry{modeFile, blob}, name: "staged"},
		} {
			all = append(all, e.leaf())
		}
		c.file(".git/index", string(encode(all, 20)))
	}, lost: "the staged version of ../../outside, which cannot be read"},
	"a file that cannot be converted": {set: func(c trap) {
		c.file(".gitattributes", "*.bad text working-tree-encoding=UTF-16\n")
		c.file("x.bad", "no byte order mark")
	}, lost: "x.bad (git update-index: "},
	"names that git does not take": {set: func(c trap) {
		c.file("git~1/x", "x")
	}, lost: "git~1, a name that git does not take"},
	"a spoilt commit-graph": {set: func(c trap) {
		c.file("more", "x")
		c.git("add", "more")
		c.git("commit", "-q", "-m", "more")
		c.git("commit-graph", "write", "--reachable")
		spoil(c.t, filepath.Join(c.dir, ".git", "objects", "info"))
	}},
}

// Rule: after a hostile command, Salvage and Restore execute no program that the workspace names,
// read and write nothing outside the workspace, and never block.
func TestHostileCheckoutRunsNoProgram(t *testing.T) {
	src, m := repo(t), open(t)
	for name, tt := range sampled(traps) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, m, Spec{Repo: src})
			c := trap{t: t, dir: w.Dir, outside: t.TempDir(), sideline: repo(t)}
			ran := filepath.Join(t.TempDir(), "ran")
			c.program = filepath.Join(t.TempDir(), "program")
			write(t, c.program, "#!/bin/sh\necho \"$0 $@\" >>"+ran+"\ncat\n")
			_ = os.Chmod(c.program, 0o755)
			write(t, filepath.Join(c.sideline, "secret"), "secret\n")
			commit(t, c.sideline, "secret")
			c.file("a.txt", "changed\n")
			tt.set(c)
			remove(t, ran) // preparing the trap may itself run the program
			before := snapshotOf(t, c.outside, c.sideline, src, w.root)
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			s, err := m.Salvage(ctx, w)
			if raw, _ := os.ReadFile(ran); len(raw) > 0 {
				t.Errorf("the program ran: %s", raw)
			}
			if diff := cmp.Diff(before, snapshotOf(t, c.outside, c.sideline, src, w.root)); diff != "" {
				t.Errorf("it touched (-before +after):\n%s", diff)
			}
			if err != nil {
				t.Fatal(err)
			}
			if tt.lost == "" && s.Lost != "" || !strings.Contains(s.Lost, tt.lost) {
				t.Errorf("lost %q, want %q", s.Lost, tt.lost)
			}
			if !strings.Contains(string(s.Patch), "+changed") {
				t.Errorf("the patch misses the change:\n%s", s.Patch)
			}
			if strings.Contains(string(s.Patch), "+secret") {
				t.Errorf("the patch contains a file from outside:\n%s", s.Patch)
			}
			again := prepare(t, m, Spec{Repo: src, Commit: w.Commit})
			if err := m.Restore(ctx, again, s); err != nil {
				t.Fatal(err)
			}
			if raw, _ := os.ReadFile(filepath.Join(again.Dir, "a.txt")); string(raw) != "changed\n" {
				t.Errorf("restored %q", raw)
			}
			if raw, _ := os.ReadFile(ran); len(raw) > 0 {
				t.Errorf("the program ran during the restore: %s", raw)
			}
			if tt.bites != nil {
				_, _ = try(w.Dir, tt.bites...)
				if raw, _ := os.ReadFile(ran); len(raw) == 0 {
					t.Errorf("plain git %v did not run the program either, so this case proves nothing", tt.bites)
				}
			}
		})
	}
}

// snapshotOf returns the mode, size and modification time of every file in the given directories.
func snapshotOf(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			// the time is ignored for a pack, because git updates it when it finds an object in the pack
			if all[path] = fmt.Sprint(info.Mode(), info.Size()); filepath.Ext(path) != ".pack" {
				all[path] += info.ModTime().String()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Rule: if the command has replaced the checkout by a symbolic link, Salvage returns an error.
func TestSalvageRefusesReplacedWorkspace(t *testing.T) {
	src, m := repo(t), open(t)
	w := prepare(t, m, Spec{Repo: src})
	other := repo(t)
	remove(t, w.Dir)
	if err := os.Symlink(other, w.Dir); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Salvage(t.Context(), w); err == nil ||
		!strings.Contains(err.Error(), "is not the directory that Belay made") {
		t.Errorf("error %v", err)
	}
	if err := w.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := run(t, other, "status", "--porcelain"); got != "" {
		t.Errorf("touched: %s", got)
	}
}

// Rule: while Prepare makes a workspace, git runs no program that the commit's .gitattributes or
// the user's git configuration name.
func TestPrepareRunsNothing(t *testing.T) {
	home, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	program := filepath.Join(home, "program")
	write(t, program, "#!/bin/sh\necho \"$0 $@\" >>"+ran+"\ncat\n")
	_ = os.Chmod(program, 0o755)
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	template := filepath.Join(home, "template", "hooks")
	for _, hook := range []string{"post-checkout", "post-index-change", "reference-transaction"} {
		write(t, filepath.Join(template, hook), "#!/bin/sh\n"+program+"\n")
		_ = os.Chmod(filepath.Join(template, hook), 0o755)
	}
	write(t, filepath.Join(home, ".gitconfig"), fmt.Sprintf(`[filter "evil"]
	clean = %[1]s
	smudge = %[1]s
[core]
	fsmonitor = %[1]s
	sshCommand = %[1]s
[uploadpack]
	packObjectsHook = %[1]s
[init]
	templateDir = %[2]s
`, program, filepath.Dir(template)))
	for name, value := range map[string]string{
		"GIT_EXTERNAL_DIFF": program, "GIT_SSH_COMMAND": program, "GIT_DIR": home, "GIT_WORK_TREE": home,
		"GIT_EXEC_PATH":    "",
		"GIT_TEMPLATE_DIR": filepath.Dir(template), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor",
		"GIT_CONFIG_VALUE_0": program,
	} {
		t.Setenv(name, value)
	}
	src := repo(t)
	write(t, filepath.Join(src, ".gitattributes"), "* filter=evil\n")
	commit(t, src, "attributes")
	for _, hook := range []string{"post-checkout", "reference-transaction"} {
		write(t, filepath.Join(src, ".git", "hooks", hook), "#!/bin/sh\n"+program+"\n")
		_ = os.Chmod(filepath.Join(src, ".git", "hooks", hook), 0o755)
	}
	m := open(t)
	w := prepare(t, m, Spec{Repo: src})
	if raw, err := os.ReadFile(ran); err == nil {
		t.Errorf("the program ran: %s", raw)
	}
	if hooks, err := os.ReadDir(filepath.Join(w.Dir, ".git", "hooks")); err == nil && len(hooks) > 0 {
		t.Errorf("hooks came along: %v", hooks)
	}
}
