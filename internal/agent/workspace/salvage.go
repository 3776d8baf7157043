package workspace

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Salvage is the work of a command in a form that can be stored.
type Salvage struct {
	// Bundle is a git bundle of the commits, HEAD and refs, the stashes, the index and an operation
	// in progress (such as a merge), without the objects of the commit that was checked out; nil if
	// none of these changed.
	Bundle []byte
	// Patch is a binary patch from HEAD to the tracked files and the new files that are not
	// ignored; nil if these files did not change. Without a Bundle it starts at the commit that was
	// checked out.
	Patch []byte
	// Home is a tar.gz of HOME without known caches; nil if HOME is empty or Manager.KeepHome is
	// false.
	Home []byte
	// Diff is the difference between the commit that was checked out and all files, for people to
	// read; nil if Patch has the same difference, or if it was not asked for. DiffCut says that Diff
	// is only the beginning.
	Diff    []byte
	DiffCut bool
	// Commits counts the commits of HEAD and the branches in the bundle. Files, Insertions and
	// Deletions count all changes, both committed and uncommitted.
	Commits, Files, Insertions, Deletions int
	// Lost describes the work that could not be kept, with the reasons; empty if nothing was lost.
	Lost string
}

// Empty reports whether Salvage found no change by the command and lost nothing.
func (s Salvage) Empty() bool {
	return len(s.Bundle) == 0 && len(s.Patch) == 0 && len(s.Home) == 0 && s.Lost == ""
}

// salvage is the state of one call of salvageSite, which saves the changes in a workspace.
type salvage struct {
	g     *git
	at    *site
	repo  *repository // the checkout's .git; nil if it is unusable
	proof *private    // a git directory with the objects of the base and of the bundle alone
	from  string      // the commit at which the patch starts; "" for an empty tree
	out   Salvage
	// The work that could not be kept: of .git, of the work tree, and of HOME.
	lost, filesLost, homeLost losses

	gone  bool                        // the base lacks the commit that was checked out
	trees map[string]string           // the tree of each commit that was read
	lists map[string]map[string]entry // the files of each tree that was read
}

// salvageSite reads the changes in a workspace; it runs no program that the workspace names.
func salvageSite(ctx context.Context, g *git, at *site) (Salvage, error) {
	if err := at.checkDirectories(); err != nil {
		return Salvage{}, err
	}
	s := &salvage{
		g: g, at: at, from: at.Commit, trees: make(map[string]string), lists: make(map[string]map[string]entry),
	}
	if err := s.saveHome(ctx); err != nil { // HOME comes first, because it takes little time
		s.homeLost.add("HOME (%v)", err)
	}
	if err := s.saveWork(ctx); err != nil {
		return Salvage{}, err
	}
	s.out.Lost = joinLosses(&s.lost, &s.filesLost, &s.homeLost)
	return s.out, nil
}

// saveWork saves the changes in the checkout.
func (s *salvage) saveWork(ctx context.Context) (err error) {
	s.repo, err = readRepository(ctx, filepath.Join(s.at.Dir, ".git"), s.at.savedHead(), &s.lost)
	defer s.repo.close()
	if err != nil {
		s.lost.add("its commits, because its .git cannot be used (%v); the patch holds the files as they were left",
			err)
	}
	if s.proof, err = s.newProof(ctx); err != nil {
		return err
	}
	defer func() { s.proof.remove() }()
	var index []leaf
	if s.repo != nil {
		if index, err = s.saveCommits(ctx); err != nil {
			if ctx.Err() != nil {
				return err
			}
			s.lost.add("its commits (%v); the patch holds the files as they were left", err)
		}
	}
	return s.saveFiles(ctx, index)
}

// newProof makes a git directory that has only the commit that was checked out and the objects of
// the base (the cached clone). If a bundle can be unpacked there, it can also be restored.
func (s *salvage) newProof(ctx context.Context) (*private, error) {
	p, err := newPrivate(s.g, s.at, s.at.Objects)
	if err == nil && s.proof == nil { // s.proof is nil only in the first call
		s.gone = !p.has(ctx, s.at.Commit)
	}
	if err != nil || !s.gone {
		return p, err
	}
	// The commit is missing in the base (the cached clone), because the source no longer has the
	// commit and the base was made anew from the source.
	if s.repo == nil {
		return nil, fmt.Errorf("commit %s is gone from the base and from the workspace", s.at.Commit)
	}
	err = p.borrow(s.at.Objects, s.repo.objects)
	return p, err
}

// tree returns the name of the tree of a commit, and caches it in s.trees.
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

// saveCommits makes the bundle and unpacks it, which proves that the bundle can be restored. It
// returns the entries of the index of the checkout.
func (s *salvage) saveCommits(ctx context.Context) (index []leaf, err error) {
	c := s.changed(ctx, s.repo)
	reader, err := newPrivate(s.g, s.at, s.at.Objects, s.repo.objects)
	if err != nil {
		return nil, err
	}
	defer reader.remove()
	index, err = readIndex(ctx, reader, s.repo)
	if err != nil {
		s.lost.add("the staged changes (the index: %v)", err)
	}
	var staged *staged
	if err == nil {
		if staged, err = s.compareIndex(ctx, reader, index); err != nil {
			if ctx.Err() != nil {
				return index, err
			}
			s.lost.add("the staged changes (%v)", err)
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

// compareIndex compares the index with HEAD.
func (s *salvage) compareIndex(ctx context.Context, reader *private, index []leaf) (*staged, error) {
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

// list returns the files of a tree, and caches them in s.lists.
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

// count counts the changes between the commit that was checked out and the given tree.
func (s *salvage) count(ctx context.Context, tree string) error {
	out, err := s.proof.git(ctx, command{args: []string{
		"diff-tree", "-r", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", s.at.Commit, tree,
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
		added, _ := strconv.Atoi(f[0]) // git prints a dash for a binary file, which counts as 0
		removed, _ := strconv.Atoi(f[1])
		s.out.Insertions += added
		s.out.Deletions += removed
	}
	return nil
}

// losses describes the work that could not be kept. It has the first few losses as text, and the
// number of all others.
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

// addAll records several losses of one kind with one text that names them.
func (l *losses) addAll(what string, names []string) {
	if len(names) > 0 {
		l.add("%s %s", what, listed(names))
	}
}

// listed joins the first eight names, and adds the number of the remaining names.
func listed(names []string) string {
	const most = 8
	if n := len(names); n > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n-most)
	}
	return strings.Join(names, ", ")
}

// mib formats a number of bytes for messages.
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
