package workspace

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// Limits for reading a work tree.
const (
	// maxUntracked is the maximum size, in bytes, of all new files and all sparse files together.
	maxUntracked = 512 << 20
	// maxRules is the maximum size, in bytes, of a .gitignore or .gitattributes. It is limited
	// because git reads the whole file into memory.
	maxRules = 16 << 20
	// maxUnread is how many files git may be unable to read. If there are more such files, saving
	// the files fails.
	maxUnread = 100
)

// entry is the mode and the object of a file in a tree.
type entry struct{ mode, object string }

// saveFiles makes the patch and counts the changes.
func (s *salvage) saveFiles(ctx context.Context, index []leaf) error {
	from, err := s.tree(ctx, s.proof, s.from)
	if err != nil {
		return err
	}
	to, err := s.snapshot(ctx, from, index)
	if err != nil {
		if len(s.out.Bundle) == 0 {
			return err
		}
		s.filesLost.add("the uncommitted changes (%v)", err)
		return s.count(context.WithoutCancel(ctx), from)
	}
	if s.out.Patch, err = s.patch(ctx, from, to); err != nil {
		return err
	}
	if err := s.describe(ctx, to); err != nil {
		return err
	}
	return s.count(ctx, to)
}

// snapshot returns a tree of the files that are now in the work tree: the known files (those in the
// given tree or in the index) that still exist, and the new files that no .gitignore names. It
// passes each path to git by name, so that git does not search the work tree, where it would find
// nested repositories.
func (s *salvage) snapshot(ctx context.Context, from string, index []leaf) (string, error) {
	tracked, err := s.list(ctx, s.proof, from)
	if err != nil {
		return "", err
	}
	t := newSurvey(ctx, s, tracked, index)
	t.ignore = &ignorer{g: s.g, c: command{dir: s.proof.dir, tree: s.at.Dir}}
	defer t.ignore.close()
	if err := t.walk("", true); err != nil {
		return "", err
	}
	if err := t.judgeLarge(ctx, s.proof); err != nil {
		return "", err
	}
	file := filepath.Join(s.proof.dir, "snapshot.index")
	var kept strings.Builder
	for name := range t.keep {
		if e := t.tracked[name]; e.object != "" && (e.mode != submodule || !t.gone(name)) {
			fmt.Fprintf(&kept, "%s %s\t%s\x00", e.mode, e.object, name)
		}
	}
	for name, e := range t.same {
		fmt.Fprintf(&kept, "%s %s\t%s\x00", e.mode, e.object, name)
	}
	if err := s.proof.updateIndex(ctx, file, kept.String()); err != nil {
		return "", err
	}
	unread, err := s.take(ctx, file, t.found)
	if err != nil {
		return "", err
	}
	kept.Reset()
	for _, name := range unread {
		if e := t.tracked[name]; e.object != "" {
			fmt.Fprintf(&kept, "%s %s\t%s\x00", e.mode, e.object, name)
		}
	}
	if err := s.proof.updateIndex(ctx, file, kept.String()); err != nil {
		return "", err
	}
	return s.proof.line(ctx, command{index: file, args: []string{"write-tree"}})
}

// take adds files to an index. It returns in unread the files that git cannot read, which it finds
// by halving the list.
func (s *salvage) take(ctx context.Context, index string, names []string) (unread []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	_, err = s.proof.git(ctx, command{
		tree: s.at.Dir, index: index, stdin: strings.NewReader(strings.Join(names, "\x00") + "\x00"),
		args: []string{"update-index", "--add", "--replace", "-z", "--stdin"},
	})
	switch {
	case err == nil:
		return nil, nil
	case ctx.Err() != nil:
		return nil, err
	case len(names) == 1:
		s.filesLost.add("%s (%v)", names[0], err)
		return names, nil
	}
	half := len(names) / 2
	for _, part := range [][]string{names[:half], names[half:]} {
		more, err := s.take(ctx, index, part)
		if unread = append(unread, more...); err != nil {
			return nil, err
		}
		if len(unread) > maxUnread {
			return nil, fmt.Errorf("more than %d files cannot be read", maxUnread)
		}
	}
	return unread, nil
}
