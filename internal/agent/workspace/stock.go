package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// errExchanged means that another process has replaced the base (the cached clone), after the keeper
// had found the commit in the old base.
var errExchanged = errors.New("the base was made anew meanwhile")

// stock gives an empty checkout the objects of a base (a cached clone). dir is the base in which the
// keeper (the helper that fetches) has found the commit. The keeper has already read the refs, so
// the checkout does not need objects that a later fetch adds. The base is locked only while objects
// are copied.
//
// Objects are hard-linked only if the user of the command does not own them, because the owner of
// an object could change it through the link. The workspace then gets the objects a second time, in
// a directory where the command cannot remove them. Salvage checks the work of the command against
// this second set.
func (m *Manager) stock(ctx context.Context, b *base, dir *os.File, w *Workspace) error {
	release, err := b.use(ctx)
	if err != nil {
		return err
	}
	defer release()
	if !isStill(dir, b.dir) {
		return errExchanged
	}
	from, err := openDirAt(int(dir.Fd()), "objects", "objects")
	if err != nil {
		return err
	}
	defer from.Close()
	s := objectCopier{ctx: ctx, owner: b.owner(), link: w.User != nil}
	defer s.close()
	if err := s.add(w.Dir, w.User, ".git", "objects"); err != nil {
		return err
	}
	if w.User != nil {
		if err := s.add(w.root, nil, filepath.Base(w.objects)); err != nil {
			return err
		}
	}
	if err := s.copyAll(from); err != nil {
		return fmt.Errorf("copy the objects: %w", err)
	}
	return nil
}

// isStill reports whether path still leads to the same directory as the opened dir.
func isStill(dir *os.File, path string) bool {
	var is, was unix.Stat_t
	return unix.Fstat(int(dir.Fd()), &was) == nil && unix.Lstat(path, &is) == nil && is.Dev == was.Dev &&
		is.Ino == was.Ino
}

// objectCopier copies the objects of a base (a cached clone). The base belongs to the keeper (the user that fetches)
// and is not trusted, so objectCopier copies a file only if it is a regular file, the keeper owns it, and its name is
// the name of an object.
type objectCopier struct {
	ctx   context.Context
	owner uint32 // the owner that the files must have
	link  bool
	to    []objectDir
}

// objectDir is a directory into which objects are copied.
type objectDir struct {
	dir  *os.File
	user *host.User // the owner of the target; nil for the user of this process
}

// add makes a target directory: the directory parent, followed by path. Only this process has had
// access to parent.
func (s *objectCopier) add(parent string, user *host.User, path ...string) error {
	at, err := openDir(parent)
	if err != nil {
		return err
	}
	for _, name := range path {
		next, err := objectDir{at, user}.sub(name)
		_ = at.Close()
		if err != nil {
			return err
		}
		at = next.dir
	}
	s.to = append(s.to, objectDir{at, user})
	return nil
}

func (s *objectCopier) close() {
	for _, to := range s.to {
		_ = to.dir.Close()
	}
}

// sub makes a subdirectory of a target directory, with the same owner.
func (s objectDir) sub(name string) (objectDir, error) {
	at := int(s.dir.Fd())
	if err := unix.Mkdirat(at, name, 0o755); err != nil {
		return objectDir{}, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	dir, err := openDirAt(at, name, name)
	if err == nil && s.user != nil {
		err = dir.Chown(int(s.user.UID), int(s.user.GID))
	}
	if err == nil {
		err = dir.Chmod(0o755)
	}
	return objectDir{dir, s.user}, err
}

// copyAll copies all objects to all target directories.
func (s *objectCopier) copyAll(from *os.File) error {
	names, err := from.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != "pack" && !(len(name) == 2 && isHex(name)) {
			continue
		}
		if err := s.directory(from, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *objectCopier) directory(from *os.File, name string) error {
	dir, err := openDirAt(int(from.Fd()), name, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	sub := objectCopier{ctx: s.ctx, owner: s.owner, link: s.link}
	defer func() { sub.close() }()
	for _, above := range s.to {
		t, err := above.sub(name)
		if err != nil {
			return err
		}
		sub.to = append(sub.to, t)
	}
	for {
		names, err := dir.Readdirnames(512)
		for _, file := range names {
			if !isObjectFile(name, file) {
				continue
			}
			if err := sub.copyFile(dir, file); err != nil {
				return fmt.Errorf("%s/%s: %w", name, file, err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// isObjectFile reports whether a file in a directory of objects is an object or a pack that a
// checkout needs, and not, for example, a temporary file of a running fetch.
func isObjectFile(dir, name string) bool {
	if dir != "pack" {
		return isObject(dir + name)
	}
	id, kind, ok := strings.Cut(strings.TrimPrefix(name, "pack-"), ".")
	return ok && isObject(id) && (kind == "pack" || kind == "idx" || kind == "rev")
}

// copyFile copies a file to every target directory.
func (s *objectCopier) copyFile(from *os.File, name string) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	fd, err := unix.Openat(int(from.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), name)
	defer src.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != s.owner {
		return fmt.Errorf("it is not a file of user %d's", s.owner)
	}
	for _, t := range s.to {
		linked := false
		if s.link {
			if linked, err = linkInto(from, src, &st, name, t); err != nil {
				return err
			}
		}
		if !linked {
			if err := copyInto(src, name, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkInto makes a hard link to a file, and first makes the file readable for every user. It
// returns false if the file system does not allow the link.
func linkInto(from, src *os.File, st *unix.Stat_t, name string, to objectDir) (bool, error) {
	if st.Mode&0o777 != 0o444 {
		if err := src.Chmod(0o444); err != nil {
			return false, err
		}
	}
	err := unix.Linkat(int(from.Fd()), name, int(to.dir.Fd()), name, 0)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EMLINK) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var is unix.Stat_t
	if err := unix.Fstatat(int(to.dir.Fd()), name, &is, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	if is.Dev != st.Dev || is.Ino != st.Ino { // another process replaced the file
		return false, errors.Join(errors.New("it was replaced meanwhile"), unix.Unlinkat(int(to.dir.Fd()), name, 0))
	}
	return true, nil
}

func copyInto(src *os.File, name string, to objectDir) error {
	fd, err := unix.Openat(int(to.dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|
		unix.O_CLOEXEC, 0o444)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), name)
	_, err = src.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(dst, src)
	}
	if err == nil {
		err = dst.Chmod(0o444)
	}
	if err == nil && to.user != nil {
		err = dst.Chown(int(to.user.UID), int(to.user.GID))
	}
	return errors.Join(err, dst.Close())
}
