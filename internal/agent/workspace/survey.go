package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// survey is the state of a search through a work tree that finds the files that the snapshot must
// read.
type survey struct {
	ctx    context.Context
	at     *site
	ignore *ignorer
	lost   *losses

	tracked map[string]entry // the tracked files; an entry has no object if only the index has the file
	dirs    map[string]bool  // directories that contain tracked files
	handed  map[string]leaf  // the entries of the index when the command got the checkout
	absent  map[string]bool  // tracked files with the flag skip-worktree, which need not exist on disk
	left    int64            // number of bytes that new files may still have

	found []string         // files to read
	large map[string]int64 // large files, with their sizes; they are read only if the size is unchanged
	keep  map[string]bool  // files for which the snapshot uses the entry in tracked
	same  map[string]entry // files that are untouched since the checkout was handed over
}

// newSurvey makes a survey with the files that a tree and an index already track.
func newSurvey(ctx context.Context, s *salvage, tracked map[string]entry, index []leaf) *survey {
	t := &survey{
		ctx: ctx, at: s.at, lost: &s.filesLost, left: maxUntracked, handed: s.at.savedIndex(),
		tracked: make(map[string]entry, len(tracked)), dirs: make(map[string]bool), absent: make(map[string]bool),
		large: make(map[string]int64), keep: make(map[string]bool), same: make(map[string]entry),
	}
	for name, e := range tracked {
		t.track(name, e)
		if e.mode == submodule {
			t.keep[name] = true // the snapshot does not read submodules
		}
	}
	for _, l := range index {
		if _, ok := t.tracked[l.name]; !ok && storable(l.name) {
			t.track(l.name, entry{})
		}
		if l.more&moreSkipped != 0 {
			t.absent[l.name] = true
		}
	}
	for name := range t.absent {
		if t.tracked[name].object != "" && t.missing(name) {
			t.keep[name] = true
		}
	}
	return t
}

func (t *survey) track(name string, e entry) {
	t.tracked[name] = e
	for dir := path.Dir(name); dir != "." && !t.dirs[dir]; dir = path.Dir(dir) {
		t.dirs[dir] = true
	}
}

// walk surveys a directory; dir is relative to the root of the work tree. rules is false below a
// directory with an unreadable .gitignore: new files below such a directory are not kept, because
// they cannot be distinguished from ignored files.
func (t *survey) walk(dir string, rules bool) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	entries, err := readDir(filepath.Join(t.at.Dir, dir))
	if err != nil {
		t.unreadable(dir, fmt.Sprintf("the contents of %q (%v)", dir, err))
		return nil
	}
	for _, e := range entries {
		err := checkRules(e)
		if err == nil {
			continue
		}
		if e.Name() == ".gitattributes" {
			t.unreadable(dir, fmt.Sprintf("the changes in %q, because of .gitattributes there (%v)", dir, err))
			return nil
		}
		if rules {
			t.lost.add("new files in %q, because of .gitignore there (%v)", dir, err)
		}
		rules = false
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case strings.EqualFold(e.Name(), ".git"):
		case !storable(e.Name()):
			t.lost.add("%s, a name that git does not take", name)
		case e.IsDir():
			err = t.directory(name, rules)
		case e.Type().IsRegular(), e.Type()&fs.ModeSymlink != 0:
			err = t.judgeFile(name, e, rules)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRules returns an error if git cannot read a .gitignore or .gitattributes completely.
func checkRules(e fs.DirEntry) error {
	if e.Name() != ".gitignore" && e.Name() != ".gitattributes" || e.IsDir() || e.Type()&fs.ModeSymlink != 0 {
		return nil // git ignores directories and symbolic links with these names
	}
	info, err := e.Info()
	switch {
	case err != nil:
		return withoutPath(err)
	case !info.Mode().IsRegular():
		return errNotRegular
	case info.Size() > maxRules:
		return fmt.Errorf("it has %d bytes", info.Size())
	}
	return nil
}

func (t *survey) directory(name string, rules bool) error {
	if e, ok := t.tracked[name]; ok && e.mode == submodule {
		if !t.missing(name + "/.git") {
			t.lost.add("the changes in %s, which is a submodule", name)
		}
		return nil
	}
	if !t.dirs[name] {
		if ignored, err := t.ignored(name, rules); err != nil || ignored {
			return err
		}
		if !t.missing(name + "/.git") {
			t.lost.add("%s, which is a repository of its own", name)
			return nil
		}
	}
	return t.walk(name, rules)
}

// ignored reports whether .gitignore files exclude a new file or directory.
func (t *survey) ignored(name string, rules bool) (bool, error) {
	if !rules {
		return true, nil
	}
	return t.ignore.match(t.ctx, name)
}

// gone reports whether the directory of a submodule no longer exists, or is no directory any more.
func (t *survey) gone(name string) bool {
	info, err := os.Lstat(filepath.Join(t.at.Dir, name))
	return errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir()
}

func (t *survey) missing(name string) bool {
	_, err := os.Lstat(filepath.Join(t.at.Dir, name))
	return err != nil
}

// unreadable records an unreadable directory as lost, and keeps the known versions of the files
// below it.
func (t *survey) unreadable(dir, what string) {
	t.lost.add("%s", what)
	for name, e := range t.tracked {
		if e.object != "" && (dir == "" || strings.HasPrefix(name, dir+"/")) {
			t.keep[name] = true
		}
	}
}

// judgeFile decides whether the snapshot reads a file (or symbolic link) or keeps its known
// version, or whether the file is recorded as lost.
func (t *survey) judgeFile(name string, e fs.DirEntry, rules bool) error {
	known, tracked := t.tracked[name]
	if !tracked {
		if ignored, err := t.ignored(name, rules); err != nil || ignored {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(t.at.Dir, name), &st); err != nil {
		return nil //nolint:nilerr // the file was removed
	}
	if was, ok := t.handed[name]; ok && was.untouched(&st) {
		t.same[name] = was.entry()
		return nil
	}
	if !e.Type().IsRegular() {
		t.found = append(t.found, name)
		return nil
	}
	if why := t.closed(name, &st); why != "" {
		t.lose(name, "%s, which %s", name, why)
		return nil
	}
	size, holes := st.Size, st.Size > 512*st.Blocks+slack
	switch {
	case known.object != "" && size > t.at.Most:
		t.large[name] = size
		return nil
	case (known.object == "" || holes) && (size > t.at.Most || size > t.left):
		kind := "a new file"
		if known.object != "" {
			kind = "a file"
		}
		t.lose(name, "%s, %s of %s", name, kind, mib(size))
		return nil
	case known.object == "" || holes:
		t.left -= size
	}
	t.found = append(t.found, name)
	return nil
}

// slack is how much smaller, in bytes, the disk space of a file may be than its size before the
// file counts as sparse. Some file systems store small files in the inode, without disk space.
const slack = 64 << 10

// closed returns the reason why a file cannot be read; "" if the file can be read.
func (t *survey) closed(name string, st *unix.Stat_t) string {
	if t.at.Own && st.Uid != t.at.User {
		return "belongs to another user" // the command may have hard-linked another user's file
	}
	f, err := os.OpenFile(filepath.Join(t.at.Dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "cannot be read"
	}
	_ = f.Close()
	return ""
}

// lose records the changes of a file as lost. The snapshot then keeps the known version of the
// file.
func (t *survey) lose(name, format string, args ...any) {
	t.lost.add(format, args...)
	if t.tracked[name].object != "" {
		t.keep[name] = true
	}
}

// judgeLarge decides about large files. A file that has the same size as its known version is read,
// because its content may be unchanged. Every other large file is recorded as lost.
func (t *survey) judgeLarge(ctx context.Context, p *private) error {
	names := make([]string, 0, len(t.large))
	var objects []string
	for name := range t.large {
		names = append(names, name)
	}
	if slices.Sort(names); len(names) == 0 {
		return nil
	}
	for _, name := range names {
		objects = append(objects, t.tracked[name].object)
	}
	out, err := p.git(ctx, command{stdin: lines(objects), args: []string{"cat-file", "--batch-check=%(objectsize)"}})
	if err != nil {
		return err
	}
	sizes := strings.Split(string(out), "\n")
	for i, name := range names {
		if was, err := strconv.ParseInt(sizes[min(i, len(sizes)-1)], 10, 64); err == nil && was == t.large[name] {
			t.found = append(t.found, name)
		} else {
			t.lose(name, "%s, a file of %s", name, mib(t.large[name]))
		}
	}
	return nil
}

// maxDir is the maximum number of files in one directory.
const maxDir = 500_000

// readDir lists a directory in the order of names. It does not follow name if name is a symbolic
// link.
func readDir(name string) ([]fs.DirEntry, error) {
	d, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer d.Close()
	entries, err := d.ReadDir(maxDir + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, withoutPath(err)
	case len(entries) > maxDir:
		return nil, fmt.Errorf("more than %d files", maxDir)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}
