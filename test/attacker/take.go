//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// hold is how long the attacker keeps the resources that it took. The server checks some limits
// only at intervals, because it spends at most a fiftieth of its time on these checks. The
// intervals are longer on a busy machine.
const hold = 15 * time.Second

// processes tries to start more processes than allowed.
func processes(s *spec) (string, error) {
	var started []*exec.Cmd
	defer func() {
		for _, c := range started {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range s.Processes + 20 {
		c := exec.Command("sleep", strconv.Itoa(int(most.Seconds()))) //nolint:noctx // this function kills the process
		c.Env = []string{"PATH=" + os.Getenv("PATH")}
		if err := c.Start(); err != nil {
			return "", fmt.Errorf("the next after so many: %w", bare(err))
		}
		started = append(started, c)
	}
	return fmt.Sprintf("%d processes", len(started)), nil
}

// memory tries to take more memory than allowed, in several processes.
func memory(s *spec) (string, error) {
	const parts = 7
	var started []*exec.Cmd
	defer func() {
		for _, c := range started {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range parts {
		c := again("hog", strconv.FormatInt(s.Memory/6, 10))
		out, err := c.StdoutPipe()
		if err != nil {
			return "", err
		}
		if err := c.Start(); err != nil {
			return "", bare(err)
		}
		started = append(started, c)
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			return "", errors.New("a process was killed, or got no memory")
		}
	}
	for _, c := range started {
		if err := c.Process.Signal(syscall.Signal(0)); err != nil || zombie(c.Process.Pid) {
			return "", errors.New("a process was killed")
		}
	}
	return "a sixth more", nil
}

// zombie reports whether a child has ended.
func zombie(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// hog takes memory, prints a line when it has the memory, and keeps it.
func hog(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	if _, err := fmt.Fprintln(os.Stdout, "taken"); err != nil {
		return err
	}
	return nap(nil)
}

// disk tries to take more disk space than allowed, in files that are open but deleted.
func disk(s *spec) (string, error) {
	piece := make([]byte, 1<<20)
	for i := range piece {
		piece[i] = byte(i * 7)
	}
	var open []*os.File
	defer func() {
		for _, f := range open {
			_ = f.Close()
		}
	}()
	var written int64
	for written < 3*s.Disk {
		f, err := os.OpenFile("unlinked", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return "", bare(err)
		}
		if err := os.Remove("unlinked"); err != nil {
			return "", bare(err)
		}
		open = append(open, f)
		for range 16 {
			n, err := f.Write(piece)
			written += int64(n)
			if err != nil {
				return "", bare(err)
			}
		}
	}
	time.Sleep(hold)
	return fmt.Sprintf("%d MiB", written>>20), nil
}

// inodes makes a large number of files in a directory that the server does not save.
func inodes(s *spec) (string, error) {
	many := filepath.Join(os.Getenv("TMPDIR"), "many")
	defer func() { _ = os.RemoveAll(many) }()
	for i := range s.Inodes {
		dir := filepath.Join(many, strconv.Itoa(i/1000))
		if i%1000 == 0 {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return "", bare(err)
			}
		}
		fd, err := unix.Open(filepath.Join(dir, strconv.Itoa(i)), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return "", bare(err)
		}
		_ = unix.Close(fd)
	}
	time.Sleep(hold)
	return fmt.Sprintf("%d files", s.Inodes), nil
}

// daemon leaves a process behind that shares nothing with the attacker: the process has another
// session, another parent, an empty environment and no open file.
func daemon(s *spec) (string, error) {
	c := again("detach", s.Token)
	c.Env = []string{}
	if err := c.Run(); err != nil {
		return "", bare(err)
	}
	return "the process was started", nil // the test checks whether the process outlives the job
}

// detach starts a process and does not wait for it.
func detach(args []string) error {
	c := again("nap", args[0])
	c.Env = []string{}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return c.Start()
}

// supervisor kills its parent process, which is the job's supervisor. If the kill succeeds, this is
// the last thing that the attacker does.
func supervisor(*spec) (string, error) {
	parent := os.Getppid()
	for range 20 {
		if err := syscall.Kill(parent, syscall.SIGKILL); err != nil {
			return "", err
		}
		time.Sleep(10 * time.Millisecond)
		if os.Getppid() != parent {
			return "the supervisor was killed", nil
		}
	}
	return "", errors.New("the supervisor is alive")
}
