package mqtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// script is the shell program between a test and its server. It starts epmd, starts the server in its
// own directory, sends signals to the server's process id, waits for the server, and answers each
// command with one line. At the end of its input it kills the server and epmd and removes the
// directory.
const script = `
server=$1 epmd=$2 dir=$3 pid=
"$epmd" -address 127.0.0.1 -port "$ERL_EPMD_PORT" >epmd.txt 2>&1 </dev/null &
epmd=$!
while read -r command signal; do
	case $command in
	start)
		"$server" -noinput >>log.txt 2>&1 </dev/null &
		pid=$!
		echo "$pid" ;;
	stop)
		kill -s "$signal" "$pid" 2>/dev/null
		wait "$pid"
		pid=
		echo stopped ;;
	esac
done
if [ -n "$pid" ]; then
	kill -s KILL "$pid" 2>/dev/null
	wait "$pid"
fi
kill -s KILL "$epmd" 2>/dev/null
wait "$epmd"
cd /
rm -rf "$dir" || { sleep 1; rm -rf "$dir"; }
`

func (s *Server) supervise() error {
	s.shell = exec.CommandContext(context.Background(), "sh", "-c", script, "mqtest", s.programs.server,
		s.programs.epmd, s.dir)
	s.shell.Dir, s.shell.Env = s.dir, s.environment()
	// The server has a process group of its own, which a Ctrl-C in the terminal does not reach, so
	// that the shell can end the server.
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := s.shell.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.shell.StdoutPipe()
	if err != nil {
		return errors.Join(err, in.Close())
	}
	s.in, s.out = in, bufio.NewReader(out)
	return s.shell.Start()
}

// tell sends the shell a command and returns its answer.
func (s *Server) tell(command string) (string, error) {
	if _, err := io.WriteString(s.in, command+"\n"); err != nil {
		return "", fmt.Errorf("%s the server: %w", command, err)
	}
	line, err := s.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%s the server: %w", command, err)
	}
	return strings.TrimSpace(line), nil
}

// Resume starts a server that was stopped or killed, and waits until it answers.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid != 0 {
		return errors.New("the server is running")
	}
	line, err := s.tell("start")
	if err != nil {
		return err
	}
	if s.pid, err = strconv.Atoi(line); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	if err = s.ready(); err == nil {
		_, err = s.eval("rabbit:await_startup()") // the server listens a moment before it answers everything
	}
	return err
}

// patience is how long a server may take to start. It takes about five seconds on an idle machine.
const patience = 90 * time.Second

// errPort reports that another process took a port of the server before the server did.
var errPort = errors.New("a port of the server is in use")

// ready waits until the server answers a client.
func (s *Server) ready() error {
	for deadline := time.Now().Add(patience); ; {
		err := s.answers()
		switch {
		case err == nil:
			return nil
		case strings.Contains(s.Log(), "eaddrinuse") || s.epmdFailed():
			return fmt.Errorf("start the server: %w\n%s", errPort, s.tail())
		case ended(s.pid):
			return fmt.Errorf("the server ended while it started\n%s", s.tail())
		case time.Now().After(deadline):
			return fmt.Errorf("the server does not answer after %s: %w\n%s", patience, err, s.tail())
		}
		<-time.After(20 * time.Millisecond) // polls, since no event announces a new listener
	}
}

// answers returns an error unless the server answers a client's first words with the beginning of a
// method. The server listens only at the end of its start.
func (s *Server) answers() (err error) {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", s.Address())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "AMQP\x00\x00\x09\x01"); err != nil {
		return err
	}
	var first [1]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		return err
	}
	if first[0] != 1 {
		return fmt.Errorf("the answer begins with byte %d", first[0])
	}
	return nil
}

// epmdFailed reports whether epmd has complained, as it does if its port is in use.
func (s *Server) epmdFailed() bool {
	b, err := os.ReadFile(s.path("epmd.txt"))
	return err == nil && strings.Contains(string(b), "in use")
}

// ended reports whether a process has ended, where the system tells it.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " Z")
}

// tail returns the end of the server's log, for the report of a failure.
func (s *Server) tail() string {
	const most = 8 << 10
	log := s.Log()
	return log[max(0, len(log)-most):]
}

// Stop shuts the server down: it closes its connections and writes everything to disk.
func (s *Server) Stop() error { return s.end("TERM") }

// Kill ends the server as a crash would. After Resume, the server has every persistent message that
// it had confirmed.
func (s *Server) Kill() error { return s.end("KILL") }

// Freeze stops the process of the server, which keeps its connections, until the returned function is
// called.
func (s *Server) Freeze() (thaw func() error, err error) {
	if s.outside != nil {
		return nil, errors.New("the server of " + envURL + " must not be stopped by a test")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid == 0 {
		return nil, errors.New("the server is stopped")
	}
	pid := s.pid
	return func() error { return syscall.Kill(pid, syscall.SIGCONT) }, syscall.Kill(pid, syscall.SIGSTOP)
}

// Restart stops the server and starts it again.
func (s *Server) Restart() error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.Resume()
}

func (s *Server) end(signal string) error {
	if s.outside != nil {
		return errors.New("the server of " + envURL + " must not be stopped by a test")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid == 0 {
		return nil
	}
	if _, err := s.tell("stop " + signal); err != nil {
		return err
	}
	s.pid = 0
	return nil
}

// Close ends the server and removes its files.
func (s *Server) Close() error {
	if s.outside != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell == nil || s.shell.Process == nil {
		return os.RemoveAll(s.dir)
	}
	err := s.in.Close()
	_, read := io.Copy(io.Discard, s.out)
	err = errors.Join(err, read, s.shell.Wait())
	s.shell, s.pid = nil, 0
	return err
}
