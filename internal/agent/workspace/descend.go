package workspace

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// This file counts and removes files in directories that other users can write. It opens each
// directory from the descriptor of the parent directory, with O_NOFOLLOW and O_DIRECTORY. So a user
// gains nothing by replacing a directory by a symbolic link, because the link is not followed.
// Files on other file systems are neither counted nor removed.

// levels is the maximum number of directories that are open at the same time. A tree may have more
// levels than that.
const levels = 64

const openAsDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

// openDir opens a directory. The caller makes sure that other users cannot change the parents of
// path; they may be able to replace path itself.
func openDir(path string) (*os.File, error) {
	return openDirAt(unix.AT_FDCWD, path, path)
}

func openDirAt(at int, name, path string) (*os.File, error) {
	fd, err := unix.Openat(at, name, openAsDir, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// level is one directory on the way from the top of a tree to the current directory.
type level struct {
	dir  *os.File // nil if it was closed because too many directories are open
	ino  uint64
	subs []string // subdirectories that are still to be visited
}

// descent is the state of a walk over all files below a directory.
type descent struct {
	ctx   context.Context
	dev   uint64
	way   []level
	visit func(st *unix.Stat_t) error
}

// descend calls visit for dir and for every file below dir on the same file system. It may skip a
// file that another process removes or moves during the walk, and a file that this process may not
// read. It returns the first error of visit, or the cause of ctx.
func descend(ctx context.Context, dir *os.File, visit func(st *unix.Stat_t) error) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	if err := visit(&st); err != nil {
		return err
	}
	d := &descent{ctx: ctx, dev: uint64(st.Dev), visit: visit} //nolint:unconvert // 32 bits on other systems
	defer d.close()
	if err := d.enter(dir, &st); err != nil {
		return err
	}
	for len(d.way) > 0 {
		if err := d.step(); err != nil {
			return err
		}
	}
	return nil
}

// close closes the open directories of the walk. It leaves the topmost directory open, which the
// caller of descend closes.
func (d *descent) close() {
	for i := range d.way {
		if i > 0 && d.way[i].dir != nil {
			_ = d.way[i].dir.Close()
		}
	}
}

// enter calls visit for the entries of a directory, which becomes the current directory of the
// walk.
func (d *descent) enter(dir *os.File, st *unix.Stat_t) error {
	l := level{dir: dir, ino: st.Ino}
	d.way = append(d.way, l)
	if i := len(d.way) - 1 - levels; i > 0 {
		_ = d.way[i].dir.Close()
		d.way[i].dir = nil
	}
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if d.ctx.Err() != nil {
				return context.Cause(d.ctx)
			}
			var st unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // another process has removed the file
			}
			if err := d.visit(&st); err != nil {
				return err
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				l.subs = append(l.subs, name)
			}
		}
		if len(names) == 0 || err != nil { // the directory has no more entries, or an error prevents reading more
			d.way[len(d.way)-1].subs = l.subs
			return nil //nolint:nilerr // if the directory was removed meanwhile, the entries read so far count
		}
	}
}

// step enters the next subdirectory, or goes back to the parent if no subdirectory is left.
func (d *descent) step() error {
	at := &d.way[len(d.way)-1]
	if len(at.subs) == 0 {
		d.up()
		return nil
	}
	name := at.subs[len(at.subs)-1]
	at.subs = at.subs[:len(at.subs)-1]
	sub, err := openDirAt(int(at.dir.Fd()), name, name)
	if err != nil {
		return nil //nolint:nilerr // the directory was removed or replaced meanwhile
	}
	var st unix.Stat_t
	if unix.Fstat(int(sub.Fd()), &st) != nil || uint64(st.Dev) != d.dev { //nolint:unconvert // 32 bits on other systems
		return sub.Close()
	}
	return d.enter(sub, &st)
}

// up goes back to the parent directory. If the descriptor of the parent was closed, up opens the
// parent again through "..". If ".." is another directory, because the directory was moved, up goes
// back to the nearest parent that is still open.
func (d *descent) up() {
	last := len(d.way) - 1
	at := d.way[last]
	d.way = d.way[:last]
	if last == 0 {
		return
	}
	defer at.dir.Close()
	above := &d.way[last-1]
	if above.dir != nil {
		return
	}
	var st unix.Stat_t
	dir, err := openDirAt(int(at.dir.Fd()), "..", "..")
	if err == nil && unix.Fstat(int(dir.Fd()), &st) == nil && st.Ino == above.ino &&
		uint64(st.Dev) == d.dev { //nolint:unconvert // the field has 32 bits on other systems
		above.dir = dir
		return
	}
	if err == nil {
		_ = dir.Close()
	}
	// ".." no longer leads to the parents whose descriptors were closed, because the directory was
	// moved
	for len(d.way) > 0 && d.way[len(d.way)-1].dir == nil {
		d.way = d.way[:len(d.way)-1]
	}
}

// errNoTree is the error for a path that must not be removed: a relative path, or the root
// directory.
var errNoTree = errors.New("this is not the whole path of a directory to remove")

// removeTree removes path, which must be absolute, and everything below it, regardless of
// permissions. Symbolic links are removed, never followed. The caller makes sure that other users
// cannot change the parents of path.
func removeTree(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) == "/" {
		return &os.PathError{Op: "remove", Path: path, Err: errNoTree}
	}
	parent, err := os.Open(filepath.Dir(filepath.Clean(path)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	r := removal{}
	defer r.close()
	if err := r.one(parent, filepath.Base(filepath.Clean(path)), 0); err != nil {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// emptyTree removes everything below path, which must be absolute, and keeps path.
func emptyTree(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) == "/" {
		return &os.PathError{Op: "empty", Path: path, Err: errNoTree}
	}
	dir, err := openDir(path)
	if err != nil {
		return err
	}
	r := removal{top: dir}
	defer r.close()
	var st unix.Stat_t
	err = unix.Fstat(int(dir.Fd()), &st)
	r.dev = uint64(st.Dev) //nolint:unconvert // the field has 32 bits on other systems
	if err == nil {
		err = r.empty(dir, 1)
	}
	if err != nil {
		return &os.PathError{Op: "empty", Path: path, Err: err}
	}
	return nil
}

// removal is the removal of one tree.
type removal struct {
	top   *os.File // the topmost directory of the tree
	dev   uint64
	moved int // number of directories that were moved to the topmost directory because they were nested too deep
}

func (r *removal) close() {
	if r.top != nil {
		_ = r.top.Close()
	}
}

func (r *removal) one(dir *os.File, name string, depth int) error {
	if name == "." || name == ".." {
		return errNoTree
	}
	at := int(dir.Fd())
	err := unix.Unlinkat(at, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if derr := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); derr == nil || errors.Is(derr, unix.ENOENT) {
		return nil
	} else if errors.Is(derr, unix.ENOTDIR) {
		return err // the name is a file that cannot be removed
	}
	if depth >= levels { // move the directory to the topmost directory, which is read again later
		r.moved++
		return unix.Renameat(at, name, int(r.top.Fd()), ".deep-"+strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(r.moved))
	}
	openUp(dir, name)
	sub, err := openDirAt(at, name, name)
	if err != nil {
		return err
	}
	if r.top == nil {
		r.top = sub
	} else {
		defer sub.Close()
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(sub.Fd()), &st); err != nil {
		return err
	}
	if depth == 0 {
		r.dev = uint64(st.Dev) //nolint:unconvert // the field has 32 bits on other systems
	} else if uint64(st.Dev) != r.dev { //nolint:unconvert // the field has 32 bits on other systems
		return unix.EXDEV
	}
	if err := r.empty(sub, depth+1); err != nil {
		return err
	}
	if err := unix.Unlinkat(at, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// empty removes the entries of a directory. It reads the directory again until no entry is left,
// because the removal of entries changes which entries Readdirnames returns.
func (r *removal) empty(dir *os.File, depth int) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := dir.Readdirnames(1024)
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var failed error
		for _, name := range names {
			failed = errors.Join(failed, r.one(dir, name, depth))
		}
		if failed != nil {
			return failed
		}
	}
}
