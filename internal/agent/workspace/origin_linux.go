package workspace

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// origin is a local source whose directory this process has opened. The descriptors lead to the
// same directory even if another directory is later moved to the path.
type origin struct {
	dir *os.File
	// git is the .git directory of a work tree; nil if dir itself is the git directory, or if .git
	// is a file or a symbolic link.
	git *os.File
	// owner is the user who owns .git, or who owns dir if dir is the git directory.
	owner uint32
	bare  bool
}

// open opens a local source at its canonical path. The path was made canonical earlier and had no
// symbolic links then, so open refuses a path with a symbolic link.
func (s source) open() (*origin, error) {
	fd, err := openat2(unix.AT_FDCWD, s.url, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return nil, s.lost(err)
	}
	o := &origin{dir: os.NewFile(uintptr(fd), s.url)}
	var st unix.Stat_t
	err = unix.Fstatat(fd, ".git", &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		o.bare, err = true, unix.Fstat(fd, &st)
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		var sub int
		if sub, err = openat2(fd, ".git", unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH); err == nil {
			o.git = os.NewFile(uintptr(sub), s.url+"/.git")
			err = unix.Fstat(sub, &st)
		}
	}
	if o.owner = st.Uid; err == nil && o.owner != s.owner {
		err = errors.New("its owner has changed")
	}
	if err != nil {
		o.close()
		return nil, s.lost(err)
	}
	return o, nil
}

func openat2(at int, path string, resolve uint64) (int, error) {
	return unix.Openat2(at, path, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: resolve,
	})
}

// lost returns the error for a source that was removed or replaced after its path was checked.
func (s source) lost(err error) error {
	return &belay.Error{
		Code: belay.CodeNotFound, Message: "repository " + s.url +
			" cannot be opened, or was replaced meanwhile", Err: err,
	}
}

func (o *origin) close() {
	_ = o.dir.Close()
	if o.git != nil {
		_ = o.git.Close()
	}
}
