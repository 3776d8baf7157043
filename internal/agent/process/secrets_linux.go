package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/belaydev/belay/internal/host"
)

// A mount hides one file. A file that replaces it under the same name has no mount. So a mount of an
// empty directory covers the directory of a secret too, and the other entries are mounted again in it.
// The run then has no path to the real directory, and sees no file that is made there later.

const (
	// mostBeside is the maximum number of entries of a directory that are mounted again in a cover of
	// the directory.
	mostBeside = 1000
	// mostHops is the maximum number of links and absent directories on the path to a secret.
	mostHops = 256
)

// kernelDirs contain no files of the machine's disks. Programs need these directories as they are.
var kernelDirs = []string{"/proc", "/sys", "/dev"}

// neededWhole are directories that a run needs as a whole: services of the machine make new sockets
// and directories in /run, and no mount can cover the root directory.
var neededWhole = []string{"/", "/run"}

// within reports whether path is dir or below dir.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// withinOneOf reports whether path is one of the directories or below one of them.
func withinOneOf(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return dir != "" && within(path, dir) })
}

// trail returns the paths, without links in their directories, that must be hidden so that a secret
// stays hidden: the path of the secret; and if this path is a link, also the path of its target. If a
// directory on the path to the secret does not exist, the trail ends at that directory. The files of
// the kernel, such as /dev/stdin, have no trail.
func trail(path string) (all []string, err error) {
	for range mostHops {
		dir, name := filepath.Split(path)
		real, err := filepath.EvalSymlinks(dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
			path = strings.TrimRight(dir, "/")
			continue
		case errors.Is(err, os.ErrPermission):
			return append(all, filepath.Clean(path)), nil // neither this process nor the run can get there
		case err != nil:
			return nil, fmt.Errorf("hide %s: %w", path, err)
		}
		at := filepath.Join(real, name)
		if withinOneOf(at, kernelDirs) && !withinOneOf(at, shared) {
			return all, nil
		}
		all = append(all, at)
		target, err := os.Readlink(at)
		if err != nil {
			return all, nil //nolint:nilerr // at is no link, or does not exist
		}
		if path = target; !filepath.IsAbs(target) {
			path = real + "/" + target // not cleaned, because a link may stand before ".." in it
		}
	}
	return nil, fmt.Errorf("hide %s: it has too many links", path)
}

// follow finds the places of the order's secrets, and adds them to the hidden paths.
func (o *order) follow() error {
	var places []string
	for _, path := range o.Secrets {
		all, err := trail(path)
		if err != nil {
			return err
		}
		for _, at := range all {
			if at == "/" {
				continue
			}
			o.Hidden = append(o.Hidden, at)
			if !isDirectory(at) {
				places = append(places, at)
			}
		}
	}
	for _, list := range []*[]string{&o.Hidden, &places} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	o.Secrets = places
	return nil
}

// surroundings returns a place for each directory that has to be covered because of the secrets in
// it. The other secrets are added to o.loose and o.exempt.
func (o *order) surroundings() (all []place) {
	if len(o.Writable) == 0 { // the run may make files in every directory, and a cover would swallow them
		o.exempt = o.Secrets
		return nil
	}
	for _, at := range o.Secrets {
		dir := filepath.Dir(at)
		temporary := slices.Contains(shared, dir)
		switch i := slices.IndexFunc(all, func(p place) bool { return p.at == dir }); {
		case withinOneOf(dir, o.Writable): // the run makes files in this directory
			o.exempt = append(o.exempt, at)
		case (slices.Contains(neededWhole, dir) || temporary) && isSocket(at): // Landlock cannot close sockets
			o.exempt = append(o.exempt, at)
		case slices.Contains(neededWhole, dir) || temporary:
			o.loose = append(o.loose, at)
		case i >= 0:
			all[i].without = append(all[i].without, filepath.Base(at))
		default:
			all = append(all, place{what: surround, at: dir, fd: -1, dir: true, without: []string{filepath.Base(at)}})
		}
	}
	return all
}

func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSocket != 0
}

// errUncovered means that a directory cannot be covered without hiding other entries of it.
var errUncovered = errors.New("its entries cannot be mounted again")

// surround covers the directory and mounts again the entries that it has in this view of the file
// system, except for the secrets: these are empty files. It returns errUncovered, and has changed
// nothing, if it cannot mount the entries again.
func (p place) surround(user *host.User) (covered []string, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(p.at, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, nil // a directory that does not exist in this view needs no cover
	}
	beside, links, err := p.entries()
	defer beside.close()
	if err != nil {
		return nil, errors.Join(errUncovered, err)
	}
	access := uint32(0o7) // of root, and of the user of this process, who has read the directory
	if user != nil && user.UID != 0 {
		access = accessTo(*user, &st)
	}
	options := fmt.Sprintf("size=1m,nr_inodes=4k,mode=%#o", 0o111*access&0o555)
	if err := unix.Mount("tmpfs", p.at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return nil, err
	}
	covered = []string{p.at}
	for _, b := range beside {
		if err := b.makeMountPoint(); err != nil {
			return covered, fmt.Errorf("make a place to mount %s: %w", b.at, err)
		}
		if b.fd < 0 {
			continue
		}
		if err := unix.MoveMount(b.fd, "", unix.AT_FDCWD, b.at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return covered, fmt.Errorf("mount %s: %w", b.at, err)
		}
	}
	for at, to := range links {
		if err := os.Symlink(to, at); err != nil {
			return covered, err
		}
	}
	return covered, nil
}

// entries returns the entries of the directory to mount again, and its links with their targets. The
// secrets among the entries have no mount.
func (p place) entries() (all places, links map[string]string, err error) {
	f, err := os.Open(p.at)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	names, err := f.ReadDir(mostBeside + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if len(names) > mostBeside {
		return nil, nil, fmt.Errorf("it has more than %d entries", mostBeside)
	}
	links = make(map[string]string)
	for _, e := range names {
		at := filepath.Join(p.at, e.Name())
		switch {
		case slices.Contains(p.without, e.Name()):
			all = append(all, place{what: hide, at: at, fd: -1})
		case e.Type()&os.ModeSymlink != 0:
			if links[at], err = os.Readlink(at); errors.Is(err, os.ErrNotExist) {
				delete(links, at)
			} else if err != nil {
				return all, nil, err
			}
		default:
			if all, err = all.take(surround, at, at); err != nil && !errors.Is(err, errAbsent) {
				return all, nil, err
			}
		}
	}
	return all, links, nil
}

// accessTo returns the bits of a directory's mode that apply to a user: 4 to list it, 2 to write in
// it and 1 to pass through it.
func accessTo(user host.User, dir *unix.Stat_t) uint32 {
	switch {
	case dir.Uid == user.UID:
		return dir.Mode >> 6 & 0o7
	case dir.Gid == user.GID || slices.Contains(user.Groups, dir.Gid):
		return dir.Mode >> 3 & 0o7
	}
	return dir.Mode & 0o7
}
