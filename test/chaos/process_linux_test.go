package chaos

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// starter starts processes that die with this process, whatever ends it. The kernel ties such a
// process to the thread that started it, so starter has a thread of its own that stays alive.
type starter struct{ asked chan func() }

func newStarter(t *testing.T) *starter {
	t.Helper()
	s := &starter{asked: make(chan func())}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for f := range s.asked {
			f()
		}
	}()
	t.Cleanup(func() { close(s.asked) })
	return s
}

// process is a process that this test started.
type process struct {
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{} // closed when the process has ended
}

// start starts a process whose output is appended to a file.
func (s *starter) start(cmd *exec.Cmd, log string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: f, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = f, f
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	started := make(chan error)
	s.asked <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		_ = f.Close()
		return nil, err
	}
	go func() {
		_ = cmd.Wait() // the process's log says how the process ended
		_ = f.Close()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end waits for the process to end, and kills the process if it still runs after the given time.
func (p *process) end(within time.Duration) {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-p.done:
		return
	case <-t.C:
	}
	p.signal(syscall.SIGKILL)
	<-p.done
}
