//go:build !linux

package workspace

import "syscall"

// ownGroup puts a git into a process group of its own, so that it can be killed with its children.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
