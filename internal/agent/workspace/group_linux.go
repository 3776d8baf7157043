package workspace

import "syscall"

// ownGroup puts a git into a process group of its own, so that it can be killed with its children,
// and makes it die with this process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
