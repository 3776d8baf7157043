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

// survey finds what is in a work tree.
type survey struct {
	ctx    context.Context
	at     *site
	ignore *ignorer
	lost   *losses

	tracked map[string]entry // what is known; without an object if only the index knows it
	dirs    map[string]bool  // directories in which something is known
	handed  map[string]leaf  // files as they were handed over, as far as known
	absent  map[string]bool  // files that are not to be in the work tree
	left    int64            // bytes that may still be read of new files

	found []string         // to be read
	large map[string]int64 // to be read if they are what is known
	keep  map[string]bool  // to be taken over as they are known
	same  map[string]entry // nobody has touched them since they were handed over
}

// newSurvey knows what is tracked: by a tree, and by an index.
func newSurvey(ctx context.Context, s *salvage, tracked map[string]entry, index []leaf) *survey {
	t := &survey{
		ctx: ctx, at: s.at, lost: &s.unread, left: maxUntracked, handed: s.at.handed(),
		tracked: make(map[string]entry, len(tracked)), dirs: make(map[string]bool), absent: make(map[string]bool),
		large: make(map[string]int64), keep: make(map[string]bool), same: make(map[string]entry),
	}
	for name, e := range tracked {
		t.track(name, e)
		if e.mode == submodule {
			t.keep[name] = true // nobody looks into it
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

// walk looks at what is in a directory, named from the root of the work tree. Without
// rules it cannot be told which new files are ignored: none is kept then.
func (t *survey) walk(dir string, rules bool) error {
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	entries, err := readDir(filepath.Join(t.at.Dir, dir))
	if err != nil {
		t.unreadable(dir, fmt.Sprintf("what is in %q (%v)", dir, err))
		return nil
	}
	for _, e := range entries {
		err := checkRules(e)
		if err == nil {
			continue
		}
		if e.Name() == ".gitattributes" {
			t.unreadable(dir, fmt.Sprintf("what was changed in %q, because of .gitattributes there (%v)", dir, err))
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
			err = t.file(name, e, rules)
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
		return bare(err)
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
			t.lost.add("what was changed in %s, which is a submodule", name)
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

// ignored tells whether something new is not to be kept.
func (t *survey) ignored(name string, rules bool) (bool, error) {
	if !rules {
		return true, nil
	}
	return t.ignore.match(t.ctx, name)
}

// gone tells whether a submodule's directory is not there any more, or not one.
func (t *survey) gone(name string) bool {
	info, err := os.Lstat(filepath.Join(t.at.Dir, name))
	return errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir()
}

func (t *survey) missing(name string) bool {
	_, err := os.Lstat(filepath.Join(t.at.Dir, name))
	return err != nil
}

// unreadable keeps what is known below a directory that cannot be looked into.
func (t *survey) unreadable(dir, what string) {
	t.lost.add("%s", what)
	for name, e := range t.tracked {
		if e.object != "" && (dir == "" || strings.HasPrefix(name, dir+"/")) {
			t.keep[name] = true
		}
	}
}

// file decides about a file or a symbolic link.
func (t *survey) file(name string, e fs.DirEntry, rules bool) error {
	known, tracked := t.tracked[name]
	if !tracked {
		if ignored, err := t.ignored(name, rules); err != nil || ignored {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(t.at.Dir, name), &st); err != nil {
		return nil //nolint:nilerr // it is gone
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

// slack is by how much a file may be longer than what it takes on disk without having
// holes: some file systems keep short ones elsewhere.
const slack = 64 << 10

// closed says why a file cannot be read; "" if it can.
func (t *survey) closed(name string, st *unix.Stat_t) string {
	if t.at.Own && st.Uid != t.at.User {
		return "belongs to somebody else" // through a hard link it may have been brought here to be read
	}
	f, err := os.OpenFile(filepath.Join(t.at.Dir, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "cannot be read"
	}
	_ = f.Close()
	return ""
}

// lose names a file and leaves it as it is known.
func (t *survey) lose(name, format string, args ...any) {
	t.lost.add(format, args...)
	if t.tracked[name].object != "" {
		t.keep[name] = true
	}
}

// judgeLarge has those of the large files read that may be what they were: of the size
// that is known. Others would be too much.
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

// maxDir bounds the entries of one directory.
const maxDir = 500_000

// readDir lists a directory by name, and follows no link to one.
func readDir(name string) ([]fs.DirEntry, error) {
	d, err := os.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, bare(err)
	}
	defer d.Close()
	entries, err := d.ReadDir(maxDir + 1)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, bare(err)
	case len(entries) > maxDir:
		return nil, fmt.Errorf("more than %d files", maxDir)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}
