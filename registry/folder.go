package registry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// folder is an open directory. Its methods take names of files in the directory, never follow a
// symbolic link, and open only regular files. So another user who may write to the directory cannot
// direct them to a file elsewhere.
type folder struct {
	fd   int
	path string
	stat unix.Stat_t
	step func(call, file string) error
}

// openFolder opens the data directory.
func openFolder(path string) (folder, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return folder{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return newFolder(fd, path)
}

func newFolder(fd int, path string) (folder, error) {
	d := folder{fd: fd, path: path}
	err := unix.Fstat(fd, &d.stat)
	switch {
	case err != nil:
		err = &fs.PathError{Op: "stat", Path: path, Err: err}
	case d.stat.Mode&0o002 != 0:
		err = &belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(
			"every user of this machine may write to %s; forbid it with: chmod o-w %s", path, path)}
	default:
		return d, nil
	}
	unix.Close(fd)
	return folder{}, err
}

func (d folder) close() error { return unix.Close(d.fd) }

// before calls the test's function, if there is one.
func (d folder) before(call, name string) error {
	if d.step == nil {
		return nil
	}
	if err := d.step(call, name); err != nil {
		return d.failed(call, name, err)
	}
	return nil
}

func (d folder) failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: filepath.Join(d.path, name), Err: err}
}

// sub opens a directory in the folder, and makes it if make is set.
func (d folder) sub(name string, create bool) (folder, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(d.fd, name, flags, 0)
	if errors.Is(err, fs.ErrNotExist) && create {
		if err = d.before("mkdir", name); err != nil {
			return folder{}, err
		}
		if err = unix.Mkdirat(d.fd, name, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			fd, err = unix.Openat(d.fd, name, flags, 0)
		}
		if err == nil {
			if err = d.share(fd, 0o700); err != nil {
				unix.Close(fd)
			}
		}
	}
	if err != nil {
		return folder{}, d.failed("open", name, err)
	}
	s, err := newFolder(fd, filepath.Join(d.path, name))
	if err == nil {
		d.shareAgain(fd, &s.stat, 0o700)
	}
	s.step = d.step
	return s, err
}

// open opens a file. A file that open creates gets the owner and the group of the folder, as far as
// this user may set them, so that all users of the folder can use the file.
func (d folder) open(name string, flags int) (*os.File, error) {
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK
	fd, err := unix.Openat(d.fd, name, flags&^unix.O_CREAT, 0)
	if errors.Is(err, fs.ErrNotExist) && flags&unix.O_CREAT != 0 {
		if err := d.before("create", name); err != nil {
			return nil, err
		}
		fd, err = d.create(name, flags|unix.O_EXCL)
		if errors.Is(err, fs.ErrExist) { // another process was faster
			fd, err = unix.Openat(d.fd, name, flags&^(unix.O_CREAT|unix.O_EXCL), 0)
		}
	}
	if err != nil {
		return nil, d.failed("open", name, err)
	}
	f := os.NewFile(uintptr(fd), filepath.Join(d.path, name))
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, errors.Join(d.failed("stat", name, err), f.Close())
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, errors.Join(d.failed("open", name, errors.New("it is not a regular file")), f.Close())
	}
	d.shareAgain(fd, &stat, 0o600)
	return f, nil
}

// create makes a file with a name that is free. Other users of the folder see the file only when it
// is theirs too: it has a temporary name before. The file freshName is itself temporary.
func (d folder) create(name string, flags int) (fd int, err error) {
	temporary := name
	if d.shared() && name != freshName {
		// a process that is killed here leaves the file, but several processes may make the lock at once
		temporary = fmt.Sprintf(".new-%s", newID())
	}
	if fd, err = unix.Openat(d.fd, temporary, flags, 0o600); err != nil {
		return -1, err
	}
	if err = d.share(fd, 0o600); err == nil && temporary != name {
		err = unix.Linkat(d.fd, temporary, d.fd, name, 0)
	}
	if err != nil || temporary != name {
		err = errors.Join(err, unix.Unlinkat(d.fd, temporary, 0))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// shared reports whether other users than this process's may use the folder.
func (d folder) shared() bool { return d.stat.Mode&0o020 != 0 || d.stat.Uid != uint32(os.Geteuid()) }

// shareAgain gives a file to the users of the folder if a process of this user has made the file and
// was killed before it could do that. Without success the file stays as it is.
func (d folder) shareAgain(fd int, stat *unix.Stat_t, mode uint32) {
	if stat.Uid == uint32(os.Geteuid()) && d.shared() && stat.Mode&0o777 != d.mode(mode) {
		_ = d.share(fd, mode)
	}
}

// mode adds the rights of the group to a mode, if the group may write to the folder.
func (d folder) mode(mode uint32) uint32 {
	if d.stat.Mode&0o020 != 0 {
		mode |= mode >> 3 & 0o070
	}
	return mode
}

// share gives a new file to the users of the folder.
func (d folder) share(fd int, mode uint32) error {
	mode = d.mode(mode)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Mode&0o777 != mode {
		if err := unix.Fchmod(fd, mode); err != nil {
			return err
		}
	}
	uid := -1
	if os.Geteuid() == 0 {
		uid = int(d.stat.Uid)
	}
	if stat.Gid == d.stat.Gid && (uid < 0 || stat.Uid == d.stat.Uid) {
		return nil
	}
	if err := unix.Fchown(fd, uid, int(d.stat.Gid)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}

// rename moves a file within the folder, and replaces the file that had the new name.
func (d folder) rename(from, to string) error {
	if err := d.before("rename", to); err != nil {
		return err
	}
	return d.failed("rename", to, unix.Renameat(d.fd, from, d.fd, to))
}

// link gives a file a second name, which must be free.
func (d folder) link(from, to string) error {
	if err := d.before("link", to); err != nil {
		return err
	}
	return d.failed("link", to, unix.Linkat(d.fd, from, d.fd, to, 0))
}

// remove removes a file. It is no error if there is none.
func (d folder) remove(name string) error {
	err := unix.Unlinkat(d.fd, name, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return d.failed("remove", name, err)
}

// regular reports whether the folder has a regular file of this name.
func (d folder) regular(name string) bool {
	var stat unix.Stat_t
	err := unix.Fstatat(d.fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG
}

// sync makes changes of names in the folder durable.
func (d folder) sync() error {
	if err := d.before("sync directory", "."); err != nil {
		return err
	}
	return d.failed("sync", ".", unix.Fsync(d.fd))
}

// write replaces the file name by data, atomically and durably: it writes the temporary file fresh
// beside the file, syncs it, renames it, and syncs the directory. Without the last step a power cut
// could undo the rename. write takes no lock; its callers have the lock.
func (d folder) write(name, fresh string, data []byte) error {
	if err := d.remove(fresh); err != nil { // a process was killed before its rename
		return err
	}
	f, err := d.open(fresh, unix.O_WRONLY|unix.O_CREAT)
	if err != nil {
		return err
	}
	err = d.fill(f, fresh, data)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.rename(fresh, name)
	}
	if err != nil {
		return errors.Join(err, d.remove(fresh))
	}
	return d.sync()
}

// fill writes data to an open file and syncs the file.
func (d folder) fill(f *os.File, name string, data []byte) error {
	if err := d.before("write", name); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := d.before("sync", name); err != nil {
		return err
	}
	return f.Sync()
}
