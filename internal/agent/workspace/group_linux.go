package workspace

import "syscall"

// ownGroup lets a git be killed with what it started, and die with us.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
