package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// seal makes everything read-only but the directories in which the run may write,
// in the mount namespace that the supervisor has for itself, and gives the run's
// user a way to these. It reports whether the kernel can do that.
func seal(o *order) (bool, error) {
	if len(o.Writable) == 0 || o.Isolation != PIDNamespace {
		return false, nil
	}
	open, err := takeUp(o)
	if errors.Is(err, unix.ENOSYS) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer open.close()
	groups := writableGroups()
	if err := setMounts("/", unix.MOUNT_ATTR_RDONLY, 0); err != nil {
		if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) { // an old kernel, or a root that is no mount
			return false, nil
		}
		return false, fmt.Errorf("make the machine read-only: %w", err)
	}
	for _, dir := range groups { // the supervisor's means to freeze and to limit, and root's only
		if err := setMounts(dir, 0, unix.MOUNT_ATTR_RDONLY); err != nil {
			return false, fmt.Errorf("keep %s writable: %w", dir, err)
		}
	}
	if err := mountProc(); err != nil {
		return false, err
	}
	for _, d := range open {
		if err := d.put(o.User); err != nil {
			return false, fmt.Errorf("keep %s writable: %w", d.at, err)
		}
	}
	return true, nil
}

// directory is one that stays writable: a mount of its own that is nowhere yet, and
// where it will be.
type directory struct {
	fd int
	at string
}

type directories []directory

func (all directories) close() {
	for _, d := range all {
		_ = unix.Close(d.fd)
	}
}

// shared are the places where programs leave files that every user may write.
var shared = []string{"/tmp", "/var/tmp", "/dev/shm"}

// takeUp makes mounts of the directories that stay writable, those of o.Tmp first:
// the others may not be hidden by them.
func takeUp(o *order) (directories, error) {
	var open directories
	take := func(dir, at string) error {
		fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return fmt.Errorf("take up %s: %w", dir, err)
		}
		open = append(open, directory{fd: fd, at: at})
		return nil
	}
	for _, at := range shared {
		info, err := os.Lstat(at)
		below := func(dir string) bool { return dir == at || strings.HasPrefix(dir, at+"/") }
		if o.Tmp == "" || err != nil || !info.IsDir() || slices.ContainsFunc(o.Writable, below) || below(o.Dir) {
			continue
		}
		if err := take(o.Tmp, at); err != nil {
			open.close()
			return nil, err
		}
	}
	for _, dir := range o.Writable {
		if err := take(dir, dir); err != nil {
			open.close()
			return nil, err
		}
	}
	return open, nil
}

// put mounts a directory where it belongs. Where the way there is closed to the
// user, an empty directory with nothing but the way takes the place of what closes
// it: whatever else is there, the user could not have seen.
func (d directory) put(user *host.User) error {
	if user != nil {
		if closed := closedTo(*user, filepath.Dir(d.at)); closed != "" {
			if err := hide(closed); err != nil {
				return err
			}
		}
	}
	had := unix.Umask(0o022)
	err := os.MkdirAll(d.at, 0o755) //nolint:gosec // a way for the run's user, where the old one is hidden
	unix.Umask(had)
	if err != nil {
		return fmt.Errorf("make a way there: %w", err)
	}
	if err := unix.MoveMount(d.fd, "", unix.AT_FDCWD, d.at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount it: %w", err)
	}
	return setMounts(d.at, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, unix.MOUNT_ATTR_RDONLY)
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

// hide puts an empty directory in the place of one.
func hide(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k,mode=0755"); err != nil {
		return fmt.Errorf("hide %s: %w", dir, err)
	}
	return nil
}

// setMounts sets and clears attributes of a mount and all those below it.
func setMounts(dir string, set, unset uint64) error {
	return unix.MountSetattr(unix.AT_FDCWD, dir, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: set, Attr_clr: unset})
}

// writableGroups lists the mounts of cgroups that can be written now.
func writableGroups() (dirs []string) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(raw)) {
		mount, source, ok := strings.Cut(line, " - ")
		f := strings.Fields(mount)
		if ok && len(f) >= 6 && strings.HasPrefix(source, "cgroup") && contains(f[5], "rw") {
			dirs = append(dirs, f[4])
		}
	}
	return dirs
}
