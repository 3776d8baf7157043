package host

// User is whom a process runs as, when that is somebody else than the process
// that starts it. Only root can start processes as another user.
type User struct {
	UID    uint32
	GID    uint32
	Groups []uint32
}
