package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxUntracked bounds all untracked files together, in bytes.
const maxUntracked = 512 << 20

// maxRules bounds a .gitignore or .gitattributes, which git reads as a whole.
const maxRules = 16 << 20

// submodule is the mode of a commit in a tree.
const submodule = "160000"

// entry is what a tree says about a path.
type entry struct{ mode, object string }

// snapshot is the tree of what the work tree holds now: the files of tree from and
// of the workspace's index as far as they exist, and new files that no .gitignore
// names. git is told path by path what to read. It never looks for repositories in
// there, and would find a work tree without one.
func (s *salvage) snapshot(ctx context.Context, from string, repo *repository) (string, error) {
	t := &survey{
		w: s.w, root: s.w.Dir, ctx: ctx, lost: &s.lost, each: s.m.MaxSalvage, untracked: maxUntracked,
		handed: s.w.handed(), same: make(map[string]entry),
	}
	if err := t.known(ctx, s.proof, from, repo); err != nil {
		return "", err
	}
	t.ignore = &ignorer{g: &s.m.git, c: command{dir: s.proof.dir, tree: s.w.Dir}}
	defer t.ignore.close()
	if err := t.walk(""); err != nil {
		return "", err
	}
	index := filepath.Join(s.proof.dir, "snapshot.index")
	var kept, found strings.Builder
	for name := range t.keep {
		e := t.tracked[name]
		if e.mode == submodule && t.gone(name) {
			continue
		}
		fmt.Fprintf(&kept, "%s %s\t%s\x00", e.mode, e.object, name)
	}
	for name, e := range t.same {
		fmt.Fprintf(&kept, "%s %s\t%s\x00", e.mode, e.object, name)
	}
	for _, name := range t.found {
		found.WriteString(name + "\x00")
	}
	if _, err := s.proof.git(ctx, command{index: index, stdin: strings.NewReader(kept.String()), args: []string{"update-index", "-z", "--index-info"}}); err != nil {
		return "", err
	}
	if _, err := s.proof.git(ctx, command{
		tree: s.w.Dir, index: index, stdin: strings.NewReader(found.String()), args: []string{"update-index", "--add", "--replace", "-z", "--stdin"},
	}); err != nil {
		return "", err
	}
	out, err := s.proof.git(ctx, command{index: index, args: []string{"write-tree"}})
	return strings.TrimSpace(string(out)), err
}

// survey finds what is in a work tree.
type survey struct {
	ctx    context.Context
	w      *Workspace
	root   string
	ignore *ignorer
	lost   *losses

	tracked   map[string]entry // what is known; without an object if only the index knows it
	dirs      map[string]bool  // directories in which something is known
	handed    map[string]leaf  // files as they were handed over, as far as known
	each      int64            // bytes that a new file may have
	untracked int64            // bytes that they may still have together

	found []string         // to be read
	keep  map[string]bool  // to be taken over as they are known
	same  map[string]entry // nobody has touched them since they were handed over
}

// known asks what is tracked.
func (t *survey) known(ctx context.Context, p *private, from string, repo *repository) error {
	t.tracked, t.dirs, t.keep = make(map[string]entry), make(map[string]bool), make(map[string]bool)
	out, err := p.git(ctx, command{args: []string{"ls-tree", "-r", "-z", "--full-tree", from}})
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(string(out), "\x00") {
		meta, name, ok := strings.Cut(line, "\t")
		if f := strings.Fields(meta); ok && len(f) == 3 {
			t.track(name, entry{mode: f[0], object: f[2]})
			if f[1] == "commit" {
				t.keep[name] = true // a submodule: nobody looks into it
			}
		}
	}
	if repo == nil {
		return nil
	}
	raw, err := readRegular(filepath.Join(repo.dir, "index"), maxIndex)
	if err != nil {
		return nil //nolint:nilerr // without it nothing is known that is both new and ignored
	}
	index := filepath.Join(p.dir, "workspace.index")
	if err := writeFile(index, raw); err != nil {
		return err
	}
	out, err = p.git(ctx, command{index: index, args: []string{"ls-files", "-z", "--cached"}})
	if err != nil {
		return context.Cause(ctx) // not readable: as if it were not there
	}
	for name := range strings.SplitSeq(string(out), "\x00") {
		if _, ok := t.tracked[name]; !ok && name != "" {
			t.track(name, entry{})
		}
	}
	return nil
}

func (t *survey) track(name string, e entry) {
	t.tracked[name] = e
	for dir := path.Dir(name); dir != "." && !t.dirs[dir]; dir = path.Dir(dir) {
		t.dirs[dir] = true
	}
}

// walk looks at what is in a directory, named from the root of the work tree.
func (t *survey) walk(dir string) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	entries, err := os.ReadDir(filepath.Join(t.root, dir))
	if err != nil {
		t.unreadable(dir, err)
		return nil
	}
	for _, e := range entries {
		if err := checkRules(e); err != nil {
			return fmt.Errorf("%s in %q: %w", e.Name(), dir, err)
		}
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case strings.EqualFold(e.Name(), ".git"):
		case e.IsDir():
			err = t.directory(name)
		case e.Type().IsRegular(), e.Type()&fs.ModeSymlink != 0:
			err = t.file(name, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRules makes sure that git can read a file of rules to its end.
func checkRules(e fs.DirEntry) error {
	if e.Name() != ".gitignore" && e.Name() != ".gitattributes" || e.IsDir() || e.Type()&fs.ModeSymlink != 0 {
		return nil // of these git takes no rules
	}
	info, err := e.Info()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case info.Size() > maxRules:
		return fmt.Errorf("it has %d bytes", info.Size())
	}
	return nil
}

func (t *survey) directory(name string) error {
	if e, ok := t.tracked[name]; ok && e.mode == submodule {
		return nil
	}
	if !t.dirs[name] {
		ignored, err := t.ignore.match(t.ctx, name)
		if err != nil || ignored {
			return err
		}
		if _, err := os.Lstat(filepath.Join(t.root, name, ".git")); err == nil {
			t.lost.add("%s, which is a repository of its own", name)
			return nil
		}
	}
	return t.walk(name)
}

func (t *survey) file(name string, e fs.DirEntry) error {
	known, tracked := t.tracked[name]
	if !tracked {
		ignored, err := t.ignore.match(t.ctx, name)
		if err != nil || ignored {
			return err
		}
	}
	if was, ok := t.handed[name]; ok {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(t.root, name), &st) == nil && was.untouched(&st) {
			t.same[name] = was.entry()
			return nil
		}
	}
	if e.Type().IsRegular() {
		f, err := os.Open(filepath.Join(t.root, name))
		if err != nil {
			t.lost.add("%s, which cannot be read", name)
			if known.object != "" {
				t.keep[name] = true
			}
			return nil
		}
		info, err := f.Stat()
		_ = f.Close()
		if err != nil {
			return err
		}
		if t.w.foreign(info) {
			t.lost.add("%s, which belongs to somebody else", name)
			if known.object != "" {
				t.keep[name] = true
			}
			return nil
		}
		if size := info.Size(); known.object == "" && (size > t.each || size > t.untracked) {
			t.lost.add("%s, a new file of %d MiB", name, size>>20)
			return nil
		} else if known.object == "" {
			t.untracked -= size
		}
	}
	t.found = append(t.found, name)
	return nil
}

// gone tells whether a submodule's directory is not there any more, or not one.
func (t *survey) gone(name string) bool {
	info, err := os.Lstat(filepath.Join(t.root, name))
	return errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir()
}

// unreadable keeps what is known below a directory that cannot be looked into.
func (t *survey) unreadable(dir string, err error) {
	t.lost.add("what is in %q (%v)", dir, errors.Unwrap(err))
	for name, e := range t.tracked {
		if e.object != "" && (dir == "" || strings.HasPrefix(name, dir+"/")) {
			t.keep[name] = true
		}
	}
}
