package workspace

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay"
)

// origin is a local source, opened: whatever becomes of its path, this directory is
// what is read.
type origin struct {
	dir *os.File
	// git is the git directory in it; nil if dir is one itself, or if a file or a link
	// leads to it.
	git *os.File
	// owner is whose the git directory is, or what leads to it.
	owner uint32
	bare  bool
}

// open opens a local source that was found at its canonical path. A link that has
// taken the place of any part of that is refused.
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
		err = errors.New("it changed hands")
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

// lost is the error for a source that is not any more what it was.
func (s source) lost(err error) error {
	return &belay.Error{
		Code: belay.CodeNotFound, Message: "repository " + s.url +
			" cannot be opened, or was exchanged while it was looked at", Err: err,
	}
}

func (o *origin) close() {
	_ = o.dir.Close()
	if o.git != nil {
		_ = o.git.Close()
	}
}
