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

// What others can write is counted and removed by descriptors: a directory is opened
// from the one above it and only if it is one, so that no link that takes its place is
// followed, and nothing on another file system is touched.

// levels is how many directories are open at a time, however deep they are nested.
const levels = 64

const openAsDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC

// openDir opens a directory, of whose path only the last name may be in others' hands.
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

// level is a directory on the way down.
type level struct {
	dir  *os.File // nil while too many others are open
	ino  uint64
	subs []string // which are still to be looked at
}

// descent looks at all that is below a directory.
type descent struct {
	ctx   context.Context
	dev   uint64
	way   []level
	visit func(st *unix.Stat_t) error
}

// descend calls visit for dir and for all that is below it on the same file system.
// What goes away or is moved meanwhile, or is closed to this process, may be passed over.
// The error is that of visit, or the cause of ctx.
func descend(ctx context.Context, dir *os.File, visit func(st *unix.Stat_t) error) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	if err := visit(&st); err != nil {
		return err
	}
	d := &descent{ctx: ctx, dev: uint64(st.Dev), visit: visit} //nolint:unconvert // of 32 bits elsewhere
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

// close closes what is open but the uppermost directory, which is the caller's.
func (d *descent) close() {
	for i := range d.way {
		if i > 0 && d.way[i].dir != nil {
			_ = d.way[i].dir.Close()
		}
	}
}

// enter looks at what is in a directory, and goes on from there.
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
				continue // gone
			}
			if err := d.visit(&st); err != nil {
				return err
			}
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				l.subs = append(l.subs, name)
			}
		}
		if len(names) == 0 || err != nil { // the end, or no more of it is to be had
			d.way[len(d.way)-1].subs = l.subs
			return nil //nolint:nilerr // a directory that goes away meanwhile counts for what was seen of it
		}
	}
}

// step goes one directory down, or up.
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
		return nil //nolint:nilerr // gone, or something else now
	}
	var st unix.Stat_t
	if unix.Fstat(int(sub.Fd()), &st) != nil || uint64(st.Dev) != d.dev { //nolint:unconvert // of 32 bits elsewhere
		return sub.Close()
	}
	return d.enter(sub, &st)
}

// up goes back to the directory above. Where that is not open any more, it is the one
// above in the file system, if nobody has moved this one.
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
		uint64(st.Dev) == d.dev { //nolint:unconvert // of 32 bits elsewhere
		above.dir = dir
		return
	}
	if err == nil {
		_ = dir.Close()
	}
	for len(d.way) > 0 && d.way[len(d.way)-1].dir == nil { // from there on nothing can be found again
		d.way = d.way[:len(d.way)-1]
	}
}

// errNoTree means that a path is none of which a tree could be removed by mistake only.
var errNoTree = errors.New("this is not the whole path of a directory to remove")

// removeTree removes path, an absolute one, and everything below it, whatever its modes.
// Links are removed, never followed. What leads to path is nobody else's.
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

// emptyTree removes everything below path, an absolute one, and not path.
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
	r.dev = uint64(st.Dev) //nolint:unconvert // of 32 bits elsewhere
	if err == nil {
		err = r.empty(dir, 1)
	}
	if err != nil {
		return &os.PathError{Op: "empty", Path: path, Err: err}
	}
	return nil
}

// removal removes one tree.
type removal struct {
	top   *os.File // the uppermost directory of it
	dev   uint64
	moved int // directories that were too deep down
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
		return err // it is a file, and may not go
	}
	if depth >= levels { // upwards with it, where it is met again
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
		r.dev = uint64(st.Dev) //nolint:unconvert // of 32 bits elsewhere
	} else if uint64(st.Dev) != r.dev { //nolint:unconvert // of 32 bits elsewhere
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

// empty removes what is in a directory, looking again until nothing is: removing
// shifts what is to be read.
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
