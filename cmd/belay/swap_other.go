//go:build !linux

package main

import "syscall"

// dieWithParent returns no attributes: only Linux kills a command when its parent ends.
func dieWithParent() *syscall.SysProcAttr { return nil }
