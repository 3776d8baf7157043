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

// errAbsent means that a directory in the Command does not exist. Start then does not try another
// kind of isolation, because the directory would be missing there too.
var errAbsent = errors.New("it does not exist")

// view makes the command's view of the file system in the calling thread's mount namespace. sealed
// reports whether all files outside the writable directories are read-only in that view; with an
// old kernel they are not.
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
	// Short paths are mounted first, because a later mount on a directory would cover the earlier
	// mounts below that directory.
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Compare(a.depth(), b.depth())
	})
	var covers []string
	for _, p := range places {
		if p.what == surround && slices.Contains(covers, p.at) {
			continue // the directory is hidden
		}
		covered, err := p.put(o.User)
		if errors.Is(err, errUncovered) {
			for _, name := range p.without {
				o.loose = append(o.loose, filepath.Join(p.at, name))
			}
			continue
		}
		for _, at := range covered { // a cover on a directory hides earlier covers below that directory
			covers = slices.DeleteFunc(covers, func(c string) bool { return strings.HasPrefix(c, at+"/") })
		}
		covers = append(covers, covered...)
		if err != nil {
			return false, fmt.Errorf("%s %s: %w", p.what, p.at, err)
		}
	}
	for _, at := range covers { // makes each cover read-only, but not the mounts below the cover
		if err := unix.MountSetattr(unix.AT_FDCWD, at, 0,
			&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil && !errors.Is(err, unix.ENOSYS) {
			return false, fmt.Errorf("close %s: %w", at, err)
		}
	}
	return sealed, nil
}

// makeReadOnly makes every mount read-only except /proc, where the kernel checks each write itself.
// It reports whether the kernel supports this.
func makeReadOnly() (bool, error) {
	err := setMounts("/", unix.MOUNT_ATTR_RDONLY, 0)
	// the kernel is old, or the root directory is not a mount
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
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

// role says how a place (a path that the command sees differently from the rest of the machine)
// differs: it is hidden, or stays visible. The text of a role is used in error messages.
type role string

const (
	hide      role = "hide"
	surround  role = "cover the directory of a secret:"
	keepTmp   role = "keep for temporary files"
	keepRead  role = "keep readable"
	keepWrite role = "keep writable"
)

// place is a path that the command sees differently from the rest of the machine.
type place struct {
	what role
	at   string
	fd   int // a detached mount; -1 if an empty file or directory must cover the path
	dir  bool
	// without are the names of the secrets in a directory to surround.
	without []string
}

// depth returns how deep the mounts of the place are. A cover around secrets has mounts below it.
func (p place) depth() int {
	n := strings.Count(p.at, "/")
	if p.what == surround {
		n++
	}
	return n
}

type places []place

func (all places) close() {
	for _, p := range all {
		if p.fd >= 0 {
			_ = unix.Close(p.fd)
		}
	}
}

// shared are the directories in which every user may write temporary files.
var shared = []string{"/tmp", "/var/tmp", "/dev/shm"}

// takeUp lists the places of a run: hidden paths and paths that stay visible. For each path that
// stays visible it makes a detached mount, before other mounts hide the path or make it read-only.
func takeUp(o *order) (all places, err error) {
	all = o.surroundings() // before the other places with mounts of the same depth
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

// keep adds a path that stays visible. If a symbolic link leads to the path, keep adds both the
// real path and the path of the link, because a hidden directory may contain the link.
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

// take adds a place: the run will see the present content of path at target.
func (all places) take(what role, path, target string) (places, error) {
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
	return append(all, place{what: what, at: target, fd: fd, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}), nil
}

// put mounts the place and returns the paths that the mounts have covered. If the run's user may
// not pass through a directory on the path to the place, put covers that directory with a new
// directory that contains only the rest of the path. The user loses no access, because the other
// content of that directory was not accessible to the user before.
func (p place) put(user *host.User) (covered []string, err error) {
	switch p.what {
	case hide:
		return p.cover()
	case surround:
		return p.surround(user)
	}
	if user != nil {
		if closed := closedTo(*user, filepath.Dir(p.at)); closed != "" {
			if err := cover(closed); err != nil {
				return nil, err
			}
			covered = []string{closed}
		}
	}
	if err := p.makeMountPoint(); err != nil {
		return covered, fmt.Errorf("make a place to mount it: %w", err)
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

// makeMountPoint makes the directories on the path to the place, and an empty file or directory as
// the mount point.
func (p place) makeMountPoint() error {
	had := unix.Umask(0o022)
	defer unix.Umask(had)
	if p.dir {
		return os.MkdirAll(p.at, 0o755) //nolint:gosec // the run's user must be able to pass through the directory
	}
	// the run's user must be able to pass through the directory
	if err := os.MkdirAll(filepath.Dir(p.at), 0o755); err != nil { //nolint:gosec // the run's user passes through
		return err
	}
	// the run's user must be able to read the file
	f, err := os.OpenFile(p.at, os.O_CREATE|os.O_RDONLY, 0o444) //nolint:gosec // the run's user reads the file
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

// cover hides the place with an empty file or directory. It does nothing if the place does not
// exist in this view, for example because a directory above it is already covered.
func (p place) cover() (covered []string, err error) {
	switch _, err := os.Lstat(p.at); {
	case err != nil:
		return nil, nil //nolint:nilerr // a path that cannot be read needs no cover
	case p.dir:
		return []string{p.at}, cover(p.at)
	}
	return nil, unix.Mount(os.DevNull, p.at, "", unix.MS_BIND, "")
}

// cover mounts an empty directory on dir.
func cover(dir string) error {
	return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k,nr_inodes=1k,mode=0755")
}

// closedTo returns the first directory on the path to dir that the user may not pass through; "" if
// the user may pass through every directory.
func closedTo(user host.User, dir string) string {
	at := "/"
	for _, name := range append([]string{""}, strings.Split(strings.Trim(dir, "/"), "/")...) {
		at = filepath.Join(at, name)
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			return "" // dir does not exist, which the start of the command will report
		}
		if accessTo(user, &st)&0o1 == 0 {
			return at
		}
	}
	return ""
}

// setMounts sets and clears attributes of a mount and all mounts below it.
func setMounts(dir string, set, unset uint64) error {
	return unix.MountSetattr(unix.AT_FDCWD, dir, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: set, Attr_clr: unset})
}
