package jobs

import (
	"context"
	"os/exec"
	"syscall"
	"time"
)

// Command returns a command that runs in its own process group. When ctx ends, the whole group is
// killed. When this process ends, the leader of the group is killed.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
