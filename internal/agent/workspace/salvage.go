package workspace

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Salvage is what a command changed, in a form that can be kept.
type Salvage struct {
	// Bundle is a git bundle of the commits and of where HEAD and the branches
	// stand, without what the checked out commit holds already; nil if they stand
	// where they stood.
	Bundle []byte
	// Patch is a binary patch from HEAD to the tracked and the new, not ignored
	// files; nil if there is nothing. Without a Bundle it starts at the commit that
	// was checked out.
	Patch []byte
	// Commits counts those in the bundle. Files, Insertions and Deletions count what
	// was changed altogether, committed or not.
	Commits, Files, Insertions, Deletions int
	// Lost says what could not be kept and why, in words; empty if nothing.
	Lost string
}

// Empty reports that nothing was changed, as far as can be told.
func (s Salvage) Empty() bool { return len(s.Bundle) == 0 && len(s.Patch) == 0 && s.Lost == "" }

// salvage is what a steward does for Salvage.
func (m *Manager) salvage(ctx context.Context, w *Workspace) (Salvage, error) {
	s := salvage{m: m, w: w, from: w.Commit}
	defer func() { s.proof.remove() }()
	if err := s.all(ctx); err != nil {
		return Salvage{}, err
	}
	s.out.Lost = s.lost.String()
	return s.out, nil
}

// salvage is one Salvage under way.
type salvage struct {
	m     *Manager
	w     *Workspace
	proof *private // knows the base, and what came out of the bundle
	from  string   // the commit that the patch starts from; "" for no files at all
	out   Salvage
	lost  losses
}

func (s *salvage) all(ctx context.Context) error {
	repo, err := readRepository(filepath.Join(s.w.Dir, ".git"))
	if err != nil {
		s.lost.add("its commits, because its .git cannot be used (%v); the patch holds the files as they were left", err)
		repo = nil
	}
	if s.proof, err = s.m.private(ctx, s.w, s.w.objects); err != nil {
		return err
	}
	if !s.proof.has(ctx, s.w.Commit) { // the base was made anew from a source without it
		if repo == nil {
			return fmt.Errorf("commit %s is gone from the base and from the workspace", s.w.Commit)
		}
		if err := s.proof.borrow(s.w.objects, repo.objects); err != nil {
			return err
		}
	}
	if repo != nil && repo.moved(s.w) {
		if err := s.commits(ctx, repo); err != nil {
			if ctx.Err() != nil {
				return err
			}
			s.lost.add("its commits (%v); the patch holds the files as they were left", err)
			s.out.Bundle, s.out.Commits, s.from = nil, 0, s.w.Commit
		}
	}
	return s.files(ctx, repo)
}

// commits makes the bundle and proves that it can be restored.
func (s *salvage) commits(ctx context.Context, repo *repository) error {
	reader, err := s.m.private(ctx, s.w, s.w.objects, repo.objects)
	defer reader.remove()
	if err != nil {
		return err
	}
	if err := reader.adopt(ctx, repo, &s.lost); err != nil {
		return err
	}
	bundle, count, err := reader.bundle(ctx, s.w.Commit, repo)
	if errors.Is(err, errLimit) {
		return fmt.Errorf("%d in a bundle beyond the limit of %d MiB", count, s.m.MaxSalvage>>20)
	}
	if err != nil {
		return err
	}
	if _, err := unbundle(ctx, &s.m.git, s.proof.dir, s.w.Commit, bundle); err != nil {
		return fmt.Errorf("the bundle of them is not sound: %w", err)
	}
	s.out.Bundle, s.out.Commits, s.from = bundle, count, repo.head.commit
	return nil
}

// files makes the patch, and counts.
func (s *salvage) files(ctx context.Context, repo *repository) error {
	from, err := s.proof.tree(ctx, s.from)
	if err != nil {
		return err
	}
	to, err := s.snapshot(ctx, from, repo)
	if err != nil {
		if ctx.Err() != nil || len(s.out.Bundle) == 0 {
			return err
		}
		s.lost.add("what was not committed (%v)", err)
		to = from
	}
	patch, err := s.proof.git(ctx, command{limit: s.m.MaxSalvage, args: []string{
		"diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", from, to,
	}})
	switch {
	case errors.Is(err, errLimit):
		s.lost.add("what was not committed: its patch is beyond the limit of %d MiB", s.m.MaxSalvage>>20)
	case err != nil:
		return err
	case len(patch) > 0:
		s.out.Patch = patch
	}
	return s.count(ctx, to)
}

// count compares the end with the beginning.
func (s *salvage) count(ctx context.Context, to string) error {
	out, err := s.proof.git(ctx, command{args: []string{
		"diff-tree", "-r", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", s.w.Commit, to,
	}})
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		f := strings.SplitN(line, "\t", 3)
		if len(f) != 3 {
			continue
		}
		s.out.Files++
		added, _ := strconv.Atoi(f[0]) // a dash for a binary file
		removed, _ := strconv.Atoi(f[1])
		s.out.Insertions += added
		s.out.Deletions += removed
	}
	return nil
}

// losses collects what could not be kept, and names the first of it.
type losses struct {
	text []string
	more int
}

func (l *losses) add(format string, args ...any) {
	const most = 8
	if len(l.text) == most {
		l.more++
		return
	}
	l.text = append(l.text, printable(fmt.Sprintf(format, args...)))
}

func (l *losses) String() string {
	s := strings.Join(l.text, "; ")
	if l.more > 0 {
		s += fmt.Sprintf("; and %d more", l.more)
	}
	return s
}
