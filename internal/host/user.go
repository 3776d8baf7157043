package host

// User is the user as which a process runs, if that is another user than that of the process that
// starts it. Only root can start processes as another user.
type User struct {
	UID    uint32
	GID    uint32
	Groups []uint32
}
