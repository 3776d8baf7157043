//go:build !linux

package main

import (
	"os"
	"os/exec"
	"time"
)

// guard does nothing: only Linux has guards.
func guard() {}

// runGuarded runs the command of a swap. Only Linux can end all descendants of a command.
func runGuarded(cmd *exec.Cmd, _ *os.File, grace time.Duration) error {
	cmd.WaitDelay = grace
	return cmd.Run()
}
