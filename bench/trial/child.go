package trial

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Child is a process that a trial has started, usually this program in another Role. It reports in
// lines on its standard output, and must end when its standard input ends.
type Child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	ended chan struct{} // closed when the process has closed its standard output
}

// Spawn starts this program as another process, for a Request with a Role.
func Spawn(r Request) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c, err := Start(exec.Command(self, "trial")) //nolint:noctx // the child ends when its input is closed
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(c.in).Encode(r); err != nil {
		return nil, errors.Join(err, c.Kill())
	}
	return c, nil
}

// Start starts a command as a Child. The Child is killed when this process ends. The Child's
// standard error is that of this process, unless cmd.Stderr is set.
func Start(cmd *exec.Cmd) (*Child, error) {
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &Child{cmd: cmd, in: in, lines: make(chan string, 1000), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	return c, nil
}

// Ended is closed when the process has closed its standard output.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// PID returns the pid of the process.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Await returns the text after word in the first line that begins with word.
func (c *Child) Await(ctx context.Context, word string, patience time.Duration) (string, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return "", fmt.Errorf("the process ended before it said %q", word)
			}
			if rest, ok := strings.CutPrefix(line, word); ok {
				return strings.TrimSpace(rest), nil
			}
		case <-late.C:
			return "", fmt.Errorf("the process did not say %q within %s", word, patience)
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Kill ends the process as kill -9 does.
func (c *Child) Kill() error {
	err := c.cmd.Process.Kill()
	_ = c.cmd.Wait() // the error only says that the process was killed
	return err
}

// Finish closes the process's input.
func (c *Child) Finish() error { return c.in.Close() }

// Stop ends the process gracefully: it closes its input and sends SIGTERM.
func (c *Child) Stop(patience time.Duration) error {
	err := c.in.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil // the process has ended already
	}
	if serr := c.cmd.Process.Signal(syscall.SIGTERM); err == nil && !errors.Is(serr, os.ErrProcessDone) {
		err = serr
	}
	late := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	defer late.Stop()
	for range c.lines { // Wait may be called only when all output has been read
	}
	_ = c.cmd.Wait()
	return err
}
