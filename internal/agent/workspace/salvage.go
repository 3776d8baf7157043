package workspace

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Salvage is what a command changed, in a form that can be kept.
type Salvage struct {
	// Bundle is a git bundle of the commits and of where HEAD and the refs stand, of
	// the stashes, of what is staged and of what is under way, without what the checked
	// out commit holds already; nil if all of it is as it was.
	Bundle []byte
	// Patch is a binary patch from HEAD to the tracked and the new, not ignored
	// files; nil if there is nothing. Without a Bundle it starts at the commit that
	// was checked out.
	Patch []byte
	// Home is a tar.gz of HOME, without what is known to be a cache; nil if it holds
	// nothing, or if it is not to be kept.
	Home []byte
	// Commits counts those of HEAD and the branches in the bundle. Files, Insertions
	// and Deletions count what was changed altogether, committed or not.
	Commits, Files, Insertions, Deletions int
	// Lost says what could not be kept and why, in words; empty if nothing.
	Lost string
}

// Empty reports that nothing was changed, as far as can be told.
func (s Salvage) Empty() bool {
	return len(s.Bundle) == 0 && len(s.Patch) == 0 && len(s.Home) == 0 && s.Lost == ""
}

// salvage is one Salvage under way.
type salvage struct {
	g     *git
	at    *site
	repo  *repository // nil if it cannot be used
	proof *private    // knows the base, and what came out of the bundle
	from  string      // the commit that the patch starts from; "" for no files at all
	out   Salvage
	// What is lost of the .git, of the files and of HOME.
	lost, unread, homeless losses

	gone  bool                        // the base has not got what was checked out
	trees map[string]string           // of commits
	lists map[string]map[string]entry // the files of trees
}

// salvageSite reads what was changed in a workspace, and runs nothing that it names.
func salvageSite(ctx context.Context, g *git, at *site) (Salvage, error) {
	if err := at.directories(); err != nil {
		return Salvage{}, err
	}
	s := &salvage{
		g: g, at: at, from: at.Commit, trees: make(map[string]string), lists: make(map[string]map[string]entry),
	}
	if err := s.home(ctx); err != nil { // first: it is soon done
		s.homeless.add("HOME (%v)", err)
	}
	if err := s.work(ctx); err != nil {
		return Salvage{}, err
	}
	s.out.Lost = joinLosses(&s.lost, &s.unread, &s.homeless)
	return s.out, nil
}

// work reads what is in the checkout.
func (s *salvage) work(ctx context.Context) (err error) {
	s.repo, err = readRepository(ctx, filepath.Join(s.at.Dir, ".git"), s.at.stood(), &s.lost)
	defer s.repo.close()
	if err != nil {
		s.lost.add("its commits, because its .git cannot be used (%v); the patch holds the files as they were left",
			err)
	}
	if s.proof, err = s.known(ctx); err != nil {
		return err
	}
	defer func() { s.proof.remove() }()
	var index []leaf
	if s.repo != nil {
		if index, err = s.commits(ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			s.lost.add("its commits (%v); the patch holds the files as they were left", err)
		}
	}
	return s.files(ctx, index)
}

// known makes a git directory that knows what was checked out, and no more.
func (s *salvage) known(ctx context.Context) (*private, error) {
	p, err := newPrivate(s.g, s.at, s.at.Objects)
	if err == nil && s.proof == nil { // the first
		s.gone = !p.has(ctx, s.at.Commit)
	}
	if err != nil || !s.gone {
		return p, err
	}
	// The base was made anew from a source without it.
	if s.repo == nil {
		return nil, fmt.Errorf("commit %s is gone from the base and from the workspace", s.at.Commit)
	}
	err = p.borrow(s.at.Objects, s.repo.objects)
	return p, err
}

// tree gives the tree of a commit, which is asked for once.
func (s *salvage) tree(ctx context.Context, p *private, commit string) (string, error) {
	if known, ok := s.trees[commit]; ok && commit != "" {
		return known, nil
	}
	tree, err := p.tree(ctx, commit)
	if err == nil {
		s.trees[commit] = tree
	}
	return tree, err
}

// commits makes the bundle, and proves that it can be restored. It gives the index of
// the checkout.
func (s *salvage) commits(ctx context.Context) (index []leaf, err error) {
	c := s.changed(ctx, s.repo)
	reader, err := newPrivate(s.g, s.at, s.at.Objects, s.repo.objects)
	if err != nil {
		return nil, err
	}
	defer reader.remove()
	index, err = readIndex(ctx, reader, s.repo)
	if err != nil {
		s.lost.add("what was staged (the index: %v)", err)
	}
	var staged *staged
	if err == nil {
		if staged, err = s.staged(ctx, reader, index); err != nil {
			if ctx.Err() != nil {
				return index, err
			}
			s.lost.add("what was staged (%v)", err)
		}
	}
	if !c.any && staged == nil {
		return index, nil
	}
	pieces, err := s.pieces(ctx, reader, s.repo, c, staged)
	if err != nil {
		return index, err
	}
	k := &packing{s: s, reader: reader, change: c}
	in, err := k.best(ctx, pieces)
	if err != nil || len(pieces) > 0 && !slices.ContainsFunc(in, func(p piece) bool { return !p.minor }) {
		k.proof.remove()
		return index, err
	}
	s.proof.remove()
	s.proof, s.from, s.out.Bundle, s.out.Commits = k.proof, k.from, k.bundle, k.count
	return index, nil
}

// staged compares the index with HEAD.
func (s *salvage) staged(ctx context.Context, reader *private, index []leaf) (*staged, error) {
	at, p := s.repo.head.commit, reader
	if at != "" && at != s.at.Commit && !reader.has(ctx, at) {
		at = s.at.Commit
	}
	if at == s.at.Commit {
		p = s.proof
	}
	tree, err := s.tree(ctx, p, at)
	if err != nil {
		return nil, err
	}
	tracked, err := s.list(ctx, p, tree)
	if err != nil {
		return nil, err
	}
	return stage(ctx, reader, index, tree, tracked, &s.lost)
}

// list gives the files of a tree, which is read once.
func (s *salvage) list(ctx context.Context, p *private, tree string) (map[string]entry, error) {
	if known, ok := s.lists[tree]; ok {
		return known, nil
	}
	all, err := p.list(ctx, tree)
	if err == nil {
		s.lists[tree] = all
	}
	return all, err
}

// count compares the end with the beginning.
func (s *salvage) count(ctx context.Context, to string) error {
	out, err := s.proof.git(ctx, command{args: []string{
		"diff-tree", "-r", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", s.at.Commit, to,
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

// addAll names several things of one kind at once.
func (l *losses) addAll(what string, names []string) {
	if len(names) > 0 {
		l.add("%s %s", what, listed(names))
	}
}

// listed names the first of several things.
func listed(names []string) string {
	const most = 8
	if n := len(names); n > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}

// mib writes a limit for people.
func mib(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

func joinLosses(all ...*losses) string {
	var text []string
	for _, l := range all {
		if s := l.String(); s != "" {
			text = append(text, s)
		}
	}
	return strings.Join(text, "; ")
}

func (l *losses) String() string {
	s := strings.Join(l.text, "; ")
	if l.more > 0 {
		s += fmt.Sprintf("; and %d more", l.more)
	}
	return s
}
