package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The versions of Landlock's interface in which each restriction appeared; see landlock(7).
const (
	landlockFiles    = 2 // the first version that can allow a rename from one directory to another
	landlockTruncate = 3
	landlockTCP      = 4
	landlockIoctl    = 5
	landlockScopes   = 6
	landlockMost     = 7 // the newest version that this package uses
)

// Landlock's rights over files. deviceRights are never granted, because the run could read the disk
// through a device file.
const (
	readRights  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writeRights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK
	deviceRights = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	ioctlRights  = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	fileRights   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// devices are the device files that every run may use.
var devices = []string{
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts",
}

// landlocked lists what Landlock restricts for a run.
type landlocked struct {
	abi     int
	files   uint64 // the rights that are denied unless a rule grants them
	tcp     bool
	port    int // the port to which TCP connections remain allowed
	signals bool
	sockets bool
	itself  bool // the run begins by executing this program, so the program must be readable
}

// landlockABI returns the version of the kernel's Landlock interface, at most landlockMost; 0 means
// that the kernel has no Landlock.
func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return min(int(abi), landlockMost)
}

// landlockFor returns the restrictions of Landlock for a run. hiddenByMounts says that mounts
// already hide the Hidden files.
func landlockFor(o *order, hiddenByMounts bool) landlocked {
	l := landlocked{abi: landlockABI(), port: o.Port}
	if slices.Contains(o.Without, byLandlock) {
		l.abi = 0
	}
	hides := len(o.Hidden) > 0 && !hiddenByMounts || len(o.loose) > 0
	if l.abi >= landlockFiles && (hides || len(o.Writable) > 0) {
		l.files = readRights | writeRights | deviceRights | ioctlRights
		if l.abi < landlockTruncate {
			l.files &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
		}
		if l.abi < landlockIoctl {
			l.files &^= ioctlRights
		}
	}
	l.tcp = l.abi >= landlockTCP && o.Network != HostNetwork && o.Isolation == Subreaper
	l.signals = l.abi >= landlockScopes
	l.sockets = l.signals && o.walled()
	return l
}

// covers returns the names of the restrictions, as in [Walls.Covers].
func (l *landlocked) covers() string {
	return joinMeans(mean{l.files != 0, "files"}, mean{l.tcp, "tcp"}, mean{l.signals, "signals"},
		mean{l.sockets, "sockets"})
}

// ruleset makes Landlock rules for a run from the calling thread's view of the file system, and
// returns their descriptor; -1 if the run needs no rules.
func (l *landlocked) ruleset(o *order) (int, error) {
	if l.covers() == "" {
		return -1, nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: l.files}
	if l.tcp {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if l.signals {
		attr.Scoped |= unix.LANDLOCK_SCOPE_SIGNAL
	}
	if l.sockets {
		attr.Scoped |= unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	fd, err := newRuleset(attr)
	if err != nil {
		return -1, err
	}
	r := rules{fd: fd, handled: l.files, itself: l.itself}
	if err := errors.Join(r.allowFiles(o), r.allowPort(l)); err != nil {
		unix.Close(r.fd)
		return -1, fmt.Errorf("make the rules of Landlock: %w", err)
	}
	return r.fd, nil
}

// enterInner puts the calling thread into a Landlock domain inside its present one. The inner domain
// restricts nothing but signals, which cannot leave it.
func enterInner() error {
	// Each domain denies a rename or a link from one directory to another unless a rule allows it.
	const refer = unix.LANDLOCK_ACCESS_FS_REFER
	fd, err := newRuleset(unix.LandlockRulesetAttr{Handled_access_fs: refer, Scoped: unix.LANDLOCK_SCOPE_SIGNAL})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r := rules{fd: fd, handled: refer}
	if err := r.allow("/", refer); err != nil {
		return err
	}
	return restrict(fd)
}

func newRuleset(attr unix.LandlockRulesetAttr) (int, error) {
	// An older kernel supports only the first fields of the structure, and requires zero in all
	// further fields.
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr),
		0)
	if errno != 0 {
		return -1, fmt.Errorf("make the rules of Landlock: %w", errno)
	}
	return int(fd), nil
}

// restrict applies the rules to the calling thread and to every process that the thread starts.
// Rules cannot be removed.
func restrict(ruleset int) error {
	if ruleset < 0 {
		return nil
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return fmt.Errorf("enter the rules of Landlock: %w", errno)
	}
	return nil
}

// rules is a Landlock ruleset to which rules are being added.
type rules struct {
	fd      int
	handled uint64
	itself  bool
}

// allowFiles adds a rule for every file and directory to which o allows access.
func (r *rules) allowFiles(o *order) error {
	if r.handled == 0 {
		return nil
	}
	base := r.handled
	if len(o.Writable) > 0 {
		base = readRights
	}
	hidden := o.loose
	if o.Isolation == Subreaper {
		hidden = o.Hidden // without a mount namespace only Landlock can hide these paths
	}
	for _, root := range append([]string{"/"}, o.Readable...) {
		rights := base
		if root != "/" {
			rights = readRights
		}
		visible, listed := beside(root, hidden)
		if err := errors.Join(r.allowThose(visible, rights),
			r.allowThose(listed, unix.LANDLOCK_ACCESS_FS_READ_DIR)); err != nil {
			return err
		}
	}
	if r.itself {
		if err := r.allow(ownPath, readRights); err != nil {
			return err
		}
	}
	for i, at := range o.Files {
		if at == "" {
			continue
		}
		if err := r.allowFD(socketFD+1+i, readRights); err != nil {
			return fmt.Errorf("allow descriptor %d: %w", i+3, err)
		}
	}
	return r.allowWriting(o)
}

func (r *rules) allowWriting(o *order) error {
	if len(o.Writable) == 0 {
		return nil
	}
	for _, path := range append(o.Writable[:len(o.Writable):len(o.Writable)], o.Tmp) {
		if path == "" {
			continue
		}
		if err := r.allow(path, readRights|writeRights); err != nil {
			return err
		}
	}
	if err := r.allowThose(devices, readRights|unix.LANDLOCK_ACCESS_FS_WRITE_FILE|unix.LANDLOCK_ACCESS_FS_TRUNCATE|
		ioctlRights); err != nil {
		return err
	}
	if o.Isolation != Subreaper && o.uid() != 0 {
		// a run must be able to write the files of its own processes in /proc, such as the name of a
		// thread or the id map of a user namespace
		return r.allow("/proc", readRights|unix.LANDLOCK_ACCESS_FS_WRITE_FILE)
	}
	return nil
}

// allowThose allows access to each of the paths, except paths that do not exist.
func (r *rules) allowThose(paths []string, rights uint64) error {
	for _, path := range paths {
		if err := r.allow(path, rights); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (r *rules) allow(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	defer unix.Close(fd)
	if err := r.allowFD(fd, rights); err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	return nil
}

func (r *rules) allowFD(fd int, rights uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: rights & r.handled, Parent_fd: int32(fd)}
	return r.add(unix.LANDLOCK_RULE_PATH_BENEATH, unsafe.Pointer(&beneath))
}

// allowPort allows TCP connections to the proxy's port.
func (r *rules) allowPort(l *landlocked) error {
	if !l.tcp || l.port == 0 {
		return nil
	}
	const netPort = 2 // the value of LANDLOCK_RULE_NET_PORT
	port := struct{ access, port uint64 }{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, uint64(l.port)}
	return r.add(netPort, unsafe.Pointer(&port))
}

func (r *rules) add(kind uintptr, rule unsafe.Pointer) error {
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), kind, uintptr(rule), 0, 0,
		0); errno != 0 {
		return errno
	}
	return nil
}

// beside returns two lists. The paths in visible together contain everything below root except the
// hidden paths. The directories in listed contain hidden files, and the run may list them. A
// directory above a hidden directory is not in listed, because a right to list a directory also
// applies to all directories below it. Symbolic links are omitted, because Landlock checks their
// targets.
func beside(root string, hidden []string) (visible, listed []string) {
	var below []string
	for _, path := range hidden {
		if strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/") {
			below = append(below, path)
		}
	}
	if len(below) == 0 {
		return []string{root}, nil
	}
	if !slices.ContainsFunc(below, isDirectory) {
		listed = []string{root}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, nil // this process may not read root, so the run may not either
	}
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		if e.Type()&os.ModeSymlink == 0 && !slices.Contains(hidden, path) {
			v, l := beside(path, below)
			visible, listed = append(visible, v...), append(listed, l...)
		}
	}
	return visible, listed
}

func isDirectory(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
