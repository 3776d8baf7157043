package host

// User is the user as which a process is started, if it is not the user of the starting process.
// Only root can start a process as another user.
type User struct {
	UID    uint32
	GID    uint32
	Groups []uint32
}
