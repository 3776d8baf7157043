package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// restoreSite applies the saved work of a command to a fresh workspace. In a workspace for a person
// it omits the parts that would run programs or hide changes, and left describes these parts.
func restoreSite(ctx context.Context, g *git, at *site, s Salvage) (left []string, err error) {
	r := &restore{g: g, at: at, dir: filepath.Join(at.Dir, ".git")}
	if len(s.Bundle)+len(s.Patch) > 0 && at.Commit == "" {
		return nil, errors.New("it has no repository")
	}
	if len(s.Bundle) > 0 {
		if err := r.restoreCommits(ctx, s.Bundle); err != nil {
			return nil, fmt.Errorf("the commits: %w", err)
		}
	}
	if len(s.Patch) > 0 {
		if err := r.restoreFiles(ctx, s.Patch); err != nil {
			return nil, fmt.Errorf("the uncommitted changes: %w", err)
		}
	}
	if r.record != nil && r.record.modern {
		if err := r.restoreRest(ctx); err != nil {
			return nil, fmt.Errorf("the staged changes and the operation in progress: %w", err)
		}
	}
	if err := unpackHome(at.Home, s.Home); err != nil {
		return nil, fmt.Errorf("HOME: %w", err)
	}
	return r.left, nil
}

// restore is the state of one call of restoreSite.
type restore struct {
	g      *git
	at     *site
	dir    string // the path of .git
	record *record
	left   []string
}

func (r *restore) git(ctx context.Context, c command) (string, error) {
	c.dir = r.dir
	out, err := r.g.run(ctx, c)
	return strings.TrimSpace(string(out)), err
}

// restoreCommits unpacks a bundle and sets the refs, HEAD and the work tree.
func (r *restore) restoreCommits(ctx context.Context, bundle []byte) (err error) {
	if r.record, err = unbundle(ctx, r.g, r.dir, r.at.Commit, bundle); err != nil {
		return err
	}
	had, err := r.git(ctx, command{args: []string{"for-each-ref", "--format=%(refname)"}})
	if err != nil {
		return err
	}
	// HEAD is detached first, because the branch of HEAD may be deleted, and HEAD would then have no
	// commit.
	if _, err := r.git(ctx, command{args: []string{"update-ref", "--no-deref", "HEAD", r.at.Commit}}); err != nil {
		return err
	}
	if err := r.update(ctx, "delete %s\n", r.refsToDelete(strings.Fields(had)), "--no-deref"); err != nil {
		return err
	}
	var updates []string
	for _, ref := range sortedKeys(r.record.refs) {
		updates = append(updates, ref+" "+r.record.refs[ref])
	}
	if err := r.update(ctx, "update %s\n", updates, "--no-deref"); err != nil {
		return err
	}
	for _, ref := range sortedKeys(r.record.links) {
		if _, err := r.git(ctx, command{args: []string{"symbolic-ref", ref, r.record.links[ref]}}); err != nil {
			return err
		}
	}
	return r.setHead(ctx, r.record.head)
}

func (r *restore) update(ctx context.Context, form string, lines []string, more ...string) error {
	if len(lines) == 0 {
		return nil
	}
	var text strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&text, form, line)
	}
	_, err := r.git(ctx, command{
		stdin: strings.NewReader(text.String()), args: slices.Concat([]string{"update-ref"}, more, []string{"--stdin"}),
	})
	return err
}

// refsToDelete returns the refs that restore must delete before it writes the refs of the record
// (the saved state of git): branches that the record lacks, refs that the record lists as deleted,
// and refs whose names conflict with refs of the record.
func (r *restore) refsToDelete(had []string) (all []string) {
	dirs := make(map[string]bool)
	is := func(ref string) bool { return r.record.refs[ref] != "" || r.record.links[ref] != "" }
	for _, ref := range slices.Concat(sortedKeys(r.record.refs), sortedKeys(r.record.links)) {
		for dir := path.Dir(ref); dir != "."; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	for _, ref := range had {
		below := false
		for dir := path.Dir(ref); dir != "."; dir = path.Dir(dir) {
			below = below || is(dir)
		}
		switch {
		case is(ref) && r.record.links[ref] == "":
		case is(ref), dirs[ref], below, strings.HasPrefix(ref, heads), slices.Contains(r.record.gone, ref):
			all = append(all, ref)
		}
	}
	return all
}

// setHead sets HEAD to h, and resets the index and the work tree to that commit.
func (r *restore) setHead(ctx context.Context, h head) error {
	var calls [][]string
	if h.ref != "" {
		calls = append(calls, []string{"symbolic-ref", "HEAD", h.ref})
	} else {
		calls = append(calls, []string{"update-ref", "--no-deref", "HEAD", h.commit})
	}
	for _, args := range append(calls, []string{"reset", "--quiet", "--hard"}) {
		if _, err := r.git(ctx, command{tree: r.at.Dir, args: args}); err != nil {
			return err
		}
	}
	return nil
}

// restoreFiles sets the files of the work tree to HEAD plus the patch, and the index to HEAD. It
// applies the patch to git trees and not to files, so that line endings and symbolic links in the
// work tree cannot change the result.
func (r *restore) restoreFiles(ctx context.Context, patch []byte) error {
	index := filepath.Join(r.at.Scratch, "index")
	from := "HEAD^{tree}"
	if _, err := r.git(ctx, command{args: []string{"rev-parse", "--verify", "--quiet", from}}); err != nil {
		empty, err := r.git(ctx, command{stdin: bytes.NewReader(nil), args: []string{"mktree"}})
		if err != nil {
			return err
		}
		from = empty
	}
	if _, err := r.git(ctx, command{index: index, args: []string{"read-tree", from}}); err != nil {
		return err
	}
	if _, err := r.git(ctx, command{
		tree: r.at.Dir, index: index, stdin: bytes.NewReader(patch), args: []string{
			"apply", "--cached", "--binary", "--whitespace=nowarn", "-",
		},
	}); err != nil {
		return err
	}
	to, err := r.git(ctx, command{index: index, args: []string{"write-tree"}})
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"read-tree", "-m", "-u", from, to}, // updates files and index
		{"read-tree", from},                 // resets the index alone
	} {
		if _, err := r.git(ctx, command{tree: r.at.Dir, args: args}); err != nil {
			return err
		}
	}
	if err := r.refresh(ctx); err != nil || r.record != nil && r.record.modern {
		return err
	}
	return r.stageIgnored(ctx, from, to)
}

// refresh records the present state of the files in the index, so that git need not read the files
// to know that they are unchanged.
func (r *restore) refresh(ctx context.Context) error {
	_, err := r.git(ctx, command{tree: r.at.Dir, args: []string{"update-index", "-q", "--refresh"}})
	if exitCode(err) == 1 { // exit code 1 means that there are changes
		return nil
	}
	return err
}

// stageIgnored stages new files that .gitignore names. It is for work that was saved without its
// index: the command had added these files with git add --force. If they were not staged, the next
// Salvage would take them for build output and omit them.
func (r *restore) stageIgnored(ctx context.Context, from, to string) error {
	added, err := r.git(ctx, command{
		args: []string{"diff-tree", "-r", "-z", "--no-renames", "--diff-filter=A", "--name-only", from, to},
	})
	if err != nil || added == "" {
		return err
	}
	names := "./" + strings.ReplaceAll(strings.TrimSuffix(added, "\x00"), "\x00", "\x00./") + "\x00"
	ignored, err := r.git(ctx, command{
		tree: r.at.Dir, stdin: strings.NewReader(names), args: []string{"check-ignore", "--no-index", "-z", "--stdin"},
	})
	if exitCode(err) == 1 { // exit code 1 means that no file is ignored
		return nil
	}
	if err != nil {
		return err
	}
	_, err = r.git(ctx, command{
		tree: r.at.Dir, stdin: strings.NewReader(ignored), args: []string{"update-index", "--add", "-z", "--stdin"},
	})
	return err
}

// restoreRest restores everything except commits and files of the work tree: the index, settings,
// an operation in progress, and reflogs.
func (r *restore) restoreRest(ctx context.Context) error {
	if err := r.restoreIndex(ctx); err != nil {
		return err
	}
	if err := r.restoreSettings(ctx); err != nil {
		return err
	}
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if r.at.Person {
		if left := removeUnsafe(r.record.files); len(left) > 0 {
			r.left = append(r.left, "of the operation in progress "+strings.Join(left, ", ")+
				", which could run programs as you")
		}
	}
	for _, name := range sortedNames(r.record.files) {
		if err := put(root, name, r.record.files[name]); err != nil {
			return err
		}
	}
	if err := root.RemoveAll("logs"); err != nil { // removes the reflogs of making and restoring this workspace
		return err
	}
	for ref, entries := range r.record.logs {
		if err := put(root, "logs/"+ref, logText(entries)); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file below root and makes its parent directories.
func put(root *os.Root, name string, data []byte) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	return root.WriteFile(name, data, 0o600)
}

// restoreIndex restores the index.
func (r *restore) restoreIndex(ctx context.Context) error {
	s := r.record.index
	if s == nil {
		return nil
	}
	if _, err := r.git(ctx, command{tree: r.at.Dir, args: []string{"read-tree", s.tree}}); err != nil {
		return err
	}
	if r.at.Person {
		// Entries that are special only because of --assume-unchanged or --skip-worktree are
		// omitted, because these flags would hide changes from the person.
		s.special = slices.DeleteFunc(s.special, func(e special) bool { return e.whole() })
	}
	if len(s.special) > 0 {
		file := filepath.Join(r.dir, "index")
		raw, err := readRegular(file, maxIndex)
		if err == nil {
			raw, err = merge(raw, r.at.hash(), s.special)
		}
		if err == nil {
			err = writeFile(file, raw)
		}
		if err != nil {
			return err
		}
	}
	return r.refresh(ctx)
}

// restoreSettings restores the settings that Salvage has kept.
func (r *restore) restoreSettings(ctx context.Context) error {
	if r.record.settings == nil {
		return nil
	}
	file := filepath.Join(r.dir, "config")
	out, err := r.git(ctx, command{args: []string{"config", "--file", file, "--no-includes", "--list", "-z"}})
	if err != nil {
		return err
	}
	return writeFile(file, withSettings(parseSettings([]byte(out)), r.record.settings))
}
