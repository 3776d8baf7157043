package pgtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// script is the shell program between a test and its server. It starts the server in its own
// directory, sends signals to the server's process id, waits for the server, and answers each
// command with one line. At the end of its input it stops the server immediately and removes the
// directory.
const script = `
bin=$1 pid=
while read -r command signal; do
	case $command in
	start)
		"$bin/postgres" -D data >>log 2>&1 </dev/null &
		pid=$!
		echo "$pid" ;;
	stop)
		backends=
		if [ "$signal" = KILL ]; then # stopped first, so that it starts no other backend
			kill -s STOP "$pid"
			while grep -q '^State:[[:space:]]*[RSD]' "/proc/$pid/status" 2>/dev/null; do sleep 0.01; done
			backends=$(cat "/proc/$pid/task/$pid/children")
		fi
		kill -s "$signal" "$pid" $backends 2>/dev/null
		wait "$pid"
		pid=
		for b in $backends; do # they keep its shared memory until they have ended
			while grep -q '^State:[[:space:]]*[RSDT]' "/proc/$b/status" 2>/dev/null; do sleep 0.01; done
		done
		echo stopped ;;
	esac
done
if [ -n "$pid" ]; then
	kill -s QUIT "$pid"
	wait "$pid"
fi
cd /
rm -rf "$2"
`

func (s *Server) supervise(attr *syscall.SysProcAttr) error {
	s.shell = exec.CommandContext(context.Background(), "sh", "-c", script, "pgtest", s.bin, s.dir)
	s.shell.Dir, s.shell.SysProcAttr = s.dir, attr
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
	return s.ready()
}

// Stop shuts the server down: it drops its connections and writes everything to disk.
func (s *Server) Stop() error { return s.end("INT") }

// Kill ends the server and its backends as a crash would. After Resume, the server has every write
// that it had acknowledged.
func (s *Server) Kill() error { return s.end("KILL") }

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

// Close stops the server and removes its files.
func (s *Server) Close() error {
	if s.outside != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shell == nil {
		return nil
	}
	err := s.in.Close()
	_, read := io.Copy(io.Discard, s.out)
	err = errors.Join(err, read, s.shell.Wait())
	s.shell, s.pid = nil, 0
	return err
}
