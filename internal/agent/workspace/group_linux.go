package workspace

import "syscall"

// ownGroup makes git the leader of a new process group, so that this process can kill git together
// with its children. The kernel kills git when this process dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
