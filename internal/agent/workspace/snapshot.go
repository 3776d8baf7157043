package workspace

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
)

// Bounds of what is read of a work tree.
const (
	// maxUntracked bounds all new files together, and what is read of files with holes,
	// in bytes.
	maxUntracked = 512 << 20
	// maxRules bounds a .gitignore or .gitattributes, which git reads as a whole.
	maxRules = 16 << 20
	// maxUnread bounds the files that git refuses one by one.
	maxUnread = 100
)

// entry is what a tree says about a path.
type entry struct{ mode, object string }

// files makes the patch, and counts.
func (s *salvage) files(ctx context.Context, index []leaf) error {
	from, err := s.tree(ctx, s.proof, s.from)
	if err != nil {
		return err
	}
	to, err := s.snapshot(ctx, from, index)
	if err != nil {
		if len(s.out.Bundle) == 0 {
			return err
		}
		s.unread.add("what was not committed (%v)", err)
		return s.count(context.WithoutCancel(ctx), from)
	}
	if s.out.Patch, err = s.patch(ctx, from, to); err != nil {
		return err
	}
	return s.count(ctx, to)
}

// snapshot is the tree of what the work tree holds now: the files of tree from and of
// the index as far as they exist, and new files that no .gitignore names. git is told
// path by path what to read. It never looks for repositories in there, and would find
// a work tree without one.
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

// take has git read files into an index. Those that it cannot read are named, found by
// halves, and cost no others.
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
		s.unread.add("%s (%v)", names[0], err)
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
