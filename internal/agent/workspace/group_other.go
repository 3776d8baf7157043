//go:build !linux

package workspace

import "syscall"

// ownGroup lets a git be killed with what it started.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
