package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// errAbsent means that a directory that was asked for is not there: no other isolation
// would have it.
var errAbsent = errors.New("it is not there")

// view makes the command's view of the machine, in the calling thread's mount
// namespace. It reports whether everything is read-only that is to be so; an old
// kernel cannot do that.
func view(o *order) (sealed bool, err error) {
	places, err := takeUp(o)
	defer places.close()
	if err != nil {
		return false, err
	}
	if len(o.Writable) > 0 {
		if sealed, err = makeReadOnly(); err != nil {
			return false, err
		}
	}
	// The shallow first, so that the deep are not covered by them.
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Compare(strings.Count(a.at, "/"), strings.Count(b.at, "/"))
	})
	var covers []string
	for _, p := range places {
		covered, err := p.put(o.User)
		for _, at := range covered { // what it covers is there no more, also if it was one itself
			covers = slices.DeleteFunc(covers, func(c string) bool { return strings.HasPrefix(c, at+"/") })
		}
		covers = append(covers, covered...)
		if err != nil {
			return false, fmt.Errorf("%s %s: %w", p.what, p.at, err)
		}
	}
	for _, at := range covers { // beyond them, mounts of their own are not touched
		if err := unix.MountSetattr(unix.AT_FDCWD, at, 0,
			&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil && !errors.Is(err, unix.ENOSYS) {
			return false, fmt.Errorf("close %s: %w", at, err)
		}
	}
	return sealed, nil
}

// makeReadOnly makes every mount read-only but /proc, whose files guard themselves,
// and reports whether the kernel can do that.
func makeReadOnly() (bool, error) {
	err := setMounts("/", unix.MOUNT_ATTR_RDONLY, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) { // an old kernel, or a root that is no mount
		return false, nil
	}
	if err == nil {
		err = setMounts("/proc", 0, unix.MOUNT_ATTR_RDONLY)
	}
	if err != nil {
		return false, fmt.Errorf("make the machine read-only: %w", err)
	}
	return true, nil
}

// role is what a place is for, in words.
type role string

const (
	hide      role = "hide"
	keepTmp   role = "keep for temporary files"
	keepRead  role = "keep readable"
	keepWrite role = "keep writable"
)

// place is something that the command sees otherwise than the machine has it.
type place struct {
	what role
	at   string
	fd   int // a mount that is nowhere yet; -1 where there is nothing to be seen
	dir  bool
}

type places []place

func (all places) close() {
	for _, p := range all {
		if p.fd >= 0 {
			_ = unix.Close(p.fd)
		}
	}
}

// shared are the places where programs leave files that every user may write.
var shared = []string{"/tmp", "/var/tmp", "/dev/shm"}

// takeUp lists the places of a run, and makes mounts of those that stay visible,
// before anything hides them or makes them read-only.
func takeUp(o *order) (all places, err error) {
	for _, at := range o.Hidden {
		if info, err := os.Lstat(at); err == nil {
			all = append(all, place{what: hide, at: at, fd: -1, dir: info.IsDir()})
		}
	}
	for _, at := range shared {
		info, err := os.Lstat(at)
		below := func(dir string) bool { return dir == at || strings.HasPrefix(dir, at+"/") }
		if o.Tmp == "" || len(o.Writable) == 0 || err != nil || !info.IsDir() ||
			slices.ContainsFunc(o.Writable, below) || slices.ContainsFunc(o.Readable, below) || below(o.Dir) {
			continue
		}
		if all, err = all.take(keepTmp, o.Tmp, at); err != nil {
			return all, err
		}
	}
	for _, path := range o.Readable {
		if all, err = all.keep(keepRead, path); err != nil && !errors.Is(err, errAbsent) {
			return all, err
		}
	}
	for _, path := range o.Writable {
		if all, err = all.keep(keepWrite, path); err != nil {
			return all, err
		}
	}
	return all, nil
}

// keep adds a path that stays visible: where it is, and where a symbolic link says
// that it is, since what is above may be hidden, and the link with it.
func (all places) keep(what role, path string) (places, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		err = errAbsent
	}
	if err != nil {
		return all, fmt.Errorf("%s %s: %w", what, path, err)
	}
	if all, err = all.take(what, real, real); err != nil || real == path {
		return all, err
	}
	return all.take(what, real, path)
}

// take adds a place that shows what is at path now.
func (all places) take(what role, path, at string) (places, error) {
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_SYMLINK_NOFOLLOW | unix.AT_RECURSIVE
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, flags)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		err = errAbsent
	}
	if err != nil {
		return all, fmt.Errorf("%s %s: %w", what, path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return all, fmt.Errorf("%s %s: %w", what, path, err)
	}
	return append(all, place{what: what, at: at, fd: fd, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}), nil
}

// put makes the place what it is to be, and answers with what it has covered. Where
// the way there is closed to the user, an empty directory with nothing but the way
// takes the place of what closes it: whatever else is there, the user could not have
// seen.
func (p place) put(user *host.User) (covered []string, err error) {
	if p.what == hide {
		return p.cover()
	}
	if user != nil {
		if closed := closedTo(*user, filepath.Dir(p.at)); closed != "" {
			if err := cover(closed); err != nil {
				return nil, err
			}
			covered = []string{closed}
		}
	}
	if err := p.clear(); err != nil {
		return covered, fmt.Errorf("make a way there: %w", err)
	}
	if err := unix.MoveMount(p.fd, "", unix.AT_FDCWD, p.at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return covered, fmt.Errorf("mount it: %w", err)
	}
	attributes := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if p.what == keepRead {
		attributes |= unix.MOUNT_ATTR_RDONLY
	}
	return covered, setMounts(p.at, attributes, 0)
}

// clear makes the way to the place, and something there that it can cover.
func (p place) clear() error {
	had := unix.Umask(0o022)
	defer unix.Umask(had)
	if p.dir {
		return os.MkdirAll(p.at, 0o755) //nolint:gosec // a way for the run's user, where the old one is hidden
	}
	if err := os.MkdirAll(filepath.Dir(p.at), 0o755); err != nil { //nolint:gosec // as above
		return err
	}
	f, err := os.OpenFile(p.at, os.O_CREATE|os.O_RDONLY, 0o444) //nolint:gosec // as above
	if err != nil && !errors.Is(err, unix.EROFS) {
		return err
	}
	if err == nil {
		err = f.Close()
	} else if _, err = os.Lstat(p.at); err != nil {
		return err
	}
	return err
}

// cover puts something empty in the place, unless what was above it is covered.
func (p place) cover() (covered []string, err error) {
	switch _, err := os.Lstat(p.at); {
	case err != nil:
		return nil, nil //nolint:nilerr // there is nothing to be seen
	case p.dir:
		return []string{p.at}, cover(p.at)
	}
	return nil, unix.Mount(os.DevNull, p.at, "", unix.MS_BIND, "")
}

// cover puts an empty directory in the place of one.
func cover(dir string) error {
	return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k,nr_inodes=1k,mode=0755")
}

// closedTo is the first directory on the way to dir that the user may not pass; ""
// if there is none.
func closedTo(user host.User, dir string) string {
	at := "/"
	for _, name := range append([]string{""}, strings.Split(strings.Trim(dir, "/"), "/")...) {
		at = filepath.Join(at, name)
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			return "" // not there, which shows when somebody goes there
		}
		pass := uint32(0o001)
		switch {
		case st.Uid == user.UID:
			pass = 0o100
		case st.Gid == user.GID || slices.Contains(user.Groups, st.Gid):
			pass = 0o010
		}
		if st.Mode&pass == 0 {
			return at
		}
	}
	return ""
}

// setMounts sets and clears attributes of a mount and all those below it.
func setMounts(dir string, set, unset uint64) error {
	return unix.MountSetattr(unix.AT_FDCWD, dir, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: set, Attr_clr: unset})
}
