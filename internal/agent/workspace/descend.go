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

// deepest is how deep directories are followed. Each level costs a descriptor.
const deepest = 500

// errDeep means that directories are nested deeper than that.
var errDeep = errors.New("directories are nested too deep")

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

// descent looks at all that is below a directory.
type descent struct {
	ctx context.Context
	dev uint64
	// visit gets each thing that there is, the directory itself first.
	visit func(st *unix.Stat_t) error
}

// descend calls visit for dir and for all that is below it on the same file system.
// What goes away meanwhile, or is closed to this process, is passed over. The error
// is that of visit, the cause of ctx, or errDeep.
func descend(ctx context.Context, dir *os.File, visit func(st *unix.Stat_t) error) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return err
	}
	d := descent{ctx: ctx, dev: uint64(st.Dev), visit: visit} //nolint:unconvert // of 32 bits elsewhere
	if err := visit(&st); err != nil {
		return err
	}
	return d.below(dir, 1)
}

func (d *descent) below(dir *os.File, depth int) error {
	for {
		names, err := dir.Readdirnames(512)
		for _, name := range names {
			if err := d.one(dir, name, depth); err != nil {
				return err
			}
		}
		if len(names) == 0 || err != nil {
			return nil //nolint:nilerr // the end, or no more of it is to be had
		}
	}
}

func (d *descent) one(dir *os.File, name string, depth int) error {
	if d.ctx.Err() != nil {
		return context.Cause(d.ctx)
	}
	var st unix.Stat_t
	if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil // gone
	}
	if err := d.visit(&st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || uint64(st.Dev) != d.dev { //nolint:unconvert // of 32 bits elsewhere
		return nil
	}
	if depth >= deepest {
		return errDeep
	}
	sub, err := openDirAt(int(dir.Fd()), name, name)
	if err != nil {
		return nil //nolint:nilerr // gone, or something else now
	}
	defer sub.Close()
	return d.below(sub, depth+1)
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

// levels is how many directories are open at a time while a tree is removed.
const levels = 64

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
